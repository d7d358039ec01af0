"""Rows of the store as training cases: every row is the sum of its ops, whether it measured one operator or a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.graph.profile import profile
from forerun.graph.sources import load_graph
from forerun.measure.cases import workload_of
from forerun.predictors.features import NUMBERS, OpTable, op_table
from forerun.training import operators

Progress = Callable[[Iterable[Any], int], Iterable[Any]]


@dataclass(frozen=True)
class Cases:
    """Cases as columns over their ops; `case` says which row of `rows` an op belongs to."""

    rows: pd.DataFrame
    ops: OpTable
    case: np.ndarray  # [n ops]
    weight: np.ndarray  # [n ops] how often the op runs in a call

    def take(self, chosen: np.ndarray) -> Cases:
        """Some of the cases (a boolean over rows)."""
        place = np.full(len(self.rows), -1)
        place[chosen] = np.arange(int(chosen.sum()))
        kept = place[self.case] >= 0
        ops = OpTable(**{f.name: getattr(self.ops, f.name)[kept] for f in fields(OpTable)})
        return Cases(self.rows[chosen].reset_index(drop=True), ops, place[self.case[kept]], self.weight[kept])

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Per case, the weighted sum over its ops."""
        return np.bincount(self.case, self.weight * values, minlength=len(self.rows))


def join(parts: list[Cases]) -> Cases:
    starts = np.cumsum([0, *(len(p.rows) for p in parts)])
    ops = OpTable(**{f.name: np.concatenate([getattr(p.ops, f.name) for p in parts]) for f in fields(OpTable)})
    case = np.concatenate([p.case + start for p, start in zip(parts, starts[:-1], strict=True)])
    rows = pd.concat([p.rows for p in parts], ignore_index=True)
    return Cases(rows, ops, case, np.concatenate([p.weight for p in parts]))


def model_cases(rows: pd.DataFrame, progress: Progress | None = None) -> Cases:
    """Our own model rows (with a `case`); rows whose model cannot be captured are left out."""
    kept: list[int] = []
    tables: list[OpTable] = []
    weights: list[np.ndarray] = []
    facts: list[dict[str, float]] = []
    known: dict[tuple[str, str], tuple[OpTable, np.ndarray, dict[str, float]]] = {}
    records = list(zip(rows.index, rows["case"], rows["case_key"], rows["device"], strict=True))
    for index, said, key, device in progress(records, len(records)) if progress else records:
        if (key, device) not in known:
            workload = workload_of(json.loads(said))
            try:
                graph = load_graph(workload)
                columns = profile(graph, workload.dtype)
                table = op_table(columns, load_device(device))
            except ForerunError:
                continue
            known[key, device] = (table, columns.repeat, _facts(graph, columns))
        table, repeat, fact = known[key, device]
        kept.append(index)
        tables.append(table)
        weights.append(repeat)
        facts.append(fact)
    chosen = rows.loc[kept].reset_index(drop=True)
    return _stacked(pd.concat([chosen, pd.DataFrame(facts)], axis=1), tables, weights)


def _facts(graph: Any, columns: Any) -> dict[str, float]:
    from forerun.graph.memory import simulate

    simulated = simulate(graph)
    return {
        "graph_flops": float((columns.flops[:, 0] * columns.repeat).sum()),
        "graph_bytes": float((columns.bytes[:, 0] * columns.repeat).sum()),
        "graph_launches": float((columns.kernels * columns.repeat).sum()),
        "graph_allocated_mb": simulated.allocated_mb, "graph_reserved_mb": simulated.reserved_mb,
    }  # fmt: skip


def operator_cases(rows: pd.DataFrame, progress: Progress | None = None) -> Cases:
    """Operator rows, ours and published ones; ops that have no builder are left out."""
    wanted = rows[rows["op"].map(operators.known) & (rows["devices"].fillna(1) <= 1)]
    kept: list[int] = []
    tables: list[OpTable] = []
    weights: list[np.ndarray] = []
    devices: dict[str, Device] = {}
    columns: dict[tuple[str, ...], Any] = {}
    records = list(wanted[["op", "shape", "dtype", "direction", "device"]].itertuples(name=None))
    for index, op, shape, dtype, direction, device in progress(records, len(records)) if progress else records:
        said = (op, shape, dtype, direction or "forward")
        if said not in columns:
            try:
                graph = operators.graph_of(*said)
            except (RuntimeError, KeyError, ValueError, ZeroDivisionError):
                columns[said] = None
            else:
                # Operators in fp32 were measured with TF32 off everywhere.
                columns[said] = profile(graph, "fp32-ieee" if dtype == "fp32" else dtype) if graph.ops else None
        if columns[said] is None:
            continue
        if device not in devices:
            devices[device] = load_device(device)
        kept.append(index)
        tables.append(op_table(columns[said], devices[device]))
        weights.append(columns[said].repeat)
    return _stacked(wanted.loc[kept].reset_index(drop=True), tables, weights)


def _stacked(rows: pd.DataFrame, tables: list[OpTable], weights: list[np.ndarray]) -> Cases:
    if not tables:
        none = np.zeros(0)
        empty = OpTable(
            none.astype(int), none.astype(int), none.astype(int), np.zeros((0, len(NUMBERS))), none, none, none
        )
        return Cases(rows, empty, none.astype(int), none)
    ops = OpTable(**{f.name: np.concatenate([getattr(t, f.name) for t in tables]) for f in fields(OpTable)})
    return Cases(
        rows, ops, np.repeat(np.arange(len(tables)), [len(t.classes) for t in tables]), np.concatenate(weights)
    )
