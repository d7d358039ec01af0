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
from forerun.graph.ir import Graph
from forerun.graph.profile import profile
from forerun.graph.sources import load_graph
from forerun.measure.cases import workload_of
from forerun.predictors.energy import energy_terms
from forerun.predictors.features import OpTable, op_table
from forerun.predictors.host import launch_counts
from forerun.predictors.memory import estimate
from forerun.training import operators
from forerun.workload import Workload

Progress = Callable[[Iterable[Any], int], Iterable[Any]]


@dataclass(frozen=True)
class Cases:
    """Cases as columns over their ops; `case` says which row of `rows` an op belongs to."""

    rows: pd.DataFrame
    ops: OpTable
    case: np.ndarray  # [n ops]
    weight: np.ndarray  # [n ops] how often the op runs in a call
    launches: np.ndarray  # [rows, host.COUNTED]; no columns for operators
    joules: np.ndarray  # [rows, energy.TERMS] for a call of one second; no columns for operators

    def take(self, chosen: np.ndarray) -> Cases:
        """Some of the cases (a boolean over rows)."""
        place = np.full(len(self.rows), -1)
        place[chosen] = np.arange(int(chosen.sum()))
        kept = place[self.case] >= 0
        ops = OpTable(**{f.name: getattr(self.ops, f.name)[kept] for f in fields(OpTable)})
        return Cases(
            self.rows[chosen].reset_index(drop=True), ops, place[self.case[kept]], self.weight[kept],
            self.launches[chosen], self.joules[chosen],
        )  # fmt: skip

    @property
    def light_ms(self) -> np.ndarray:
        """Per case, the plain roofline."""
        return self.sum(np.maximum(self.ops.compute_s, self.ops.memory_s)) * 1e3

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Per case, the weighted sum over its ops."""
        return np.bincount(self.case, self.weight * values, minlength=len(self.rows))


def join(parts: list[Cases]) -> Cases:
    starts = np.cumsum([0, *(len(p.rows) for p in parts)])
    ops = OpTable(**{f.name: np.concatenate([getattr(p.ops, f.name) for p in parts]) for f in fields(OpTable)})
    case = np.concatenate([p.case + start for p, start in zip(parts, starts[:-1], strict=True)])
    rows = pd.concat([p.rows for p in parts], ignore_index=True)
    none = np.zeros((len(rows), 0))
    return Cases(rows, ops, case, np.concatenate([p.weight for p in parts]), none, none)


def model_cases(rows: pd.DataFrame, progress: Progress | None = None) -> Cases:
    """Our own model rows (with a `case`); rows whose model cannot be captured are left out."""
    return workload_cases(rows, [workload_of(json.loads(said)) for said in rows["case"]], progress)


def workload_cases(
    rows: pd.DataFrame, workloads: list[Workload], progress: Progress | None = None,
    load: Callable[[Workload, Any], Graph] = lambda workload, _: load_graph(workload),
) -> Cases:  # fmt: skip
    """Model rows (with a `case_key`) and the workload of each; a graph is loaded once for neighbours of one key, of the
    workload and the software that ran it."""
    kept: list[int] = []
    seen: list[_Seen] = []
    known: dict[tuple[str, str], _Seen] = {}
    held: tuple[str, Graph | None] = ("", None)
    records = list(zip(rows.index, rows["case_key"], rows["device"], workloads, rows["software"], strict=True))
    for index, key, device, workload, software in progress(records, len(records)) if progress else records:
        if (key, device) not in known:
            try:
                if held[0] != key:
                    held = key, None
                    held = key, load(workload, software)
                if held[1] is None:
                    continue
                known[key, device] = _look(held[1], workload.dtype, load_device(device))
            except ForerunError:
                continue
        kept.append(index)
        seen.append(known[key, device])
    chosen = rows.loc[kept].reset_index(drop=True)
    facts = pd.DataFrame([s.facts for s in seen])
    return _stacked(pd.concat([chosen, facts], axis=1), seen)


def as_captured(cases: Cases) -> Cases:
    """Without the rows of another program than the one captured: some versions of transformers fuse the attention of a
    model (Gemma 2) that others do not."""
    fused = [
        (json.loads(said) if isinstance(said, str) else {}).get("attention") == "sdpa" for said in cases.rows["extra"]
    ]
    return cases.take(~(np.array(fused, dtype=bool) & (cases.rows["fused_attentions"] == 0).to_numpy()))


@dataclass(frozen=True)
class _Seen:
    """One graph as training sees it."""

    table: OpTable
    repeat: np.ndarray
    launches: np.ndarray
    joules: np.ndarray
    facts: dict[str, Any]


def _look(graph: Graph, dtype: str, device: Device) -> _Seen:
    columns = profile(graph, dtype)
    memory = estimate(graph, device)
    fused = sum(op.kind == "attention" for op in graph.ops)
    facts = {"told_memory": memory.needed_mb, "told_allocated": memory.allocated_mb, "fused_attentions": fused,
             "memory_sort": memory.sort}  # fmt: skip
    joules = energy_terms(columns, [device])[0, 0]
    sorts, times = columns.distinct_ops  # layers come many times
    return _Seen(op_table(columns.only(sorts), [device]), times, launch_counts(columns), joules, facts)


def operator_cases(rows: pd.DataFrame, progress: Progress | None = None) -> Cases:
    """Operator rows, ours and published ones; ops that have no builder are left out."""
    wanted = rows[rows["op"].map(operators.known) & (rows["devices"].fillna(1) <= 1)]
    kept: list[int] = []
    seen: list[_Seen] = []
    none = np.zeros(0)
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
        seen.append(_Seen(op_table(columns[said], [devices[device]]), columns[said].repeat, none, none, {}))
    return _stacked(wanted.loc[kept].reset_index(drop=True), seen)


def _stacked(rows: pd.DataFrame, seen: list[_Seen]) -> Cases:
    if not seen:
        raise ForerunError("the store has no rows to learn from; see: forerun data ls")
    tables = [one.table for one in seen]
    ops = OpTable(**{f.name: np.concatenate([getattr(t, f.name) for t in tables]) for f in fields(OpTable)})
    return Cases(
        rows, ops, np.repeat(np.arange(len(tables)), [len(t.classes) for t in tables]),
        np.concatenate([one.repeat for one in seen]), np.stack([one.launches for one in seen]),
        np.stack([one.joules for one in seen]),
    )  # fmt: skip
