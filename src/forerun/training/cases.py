"""Rows of the store as training cases: every row is a sum over ops, whether one operator or a model was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.parallel import side_by_side
from forerun.data.importers import importers
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.graph.blocks import block_of
from forerun.graph.ir import Graph
from forerun.graph.profile import Profile, profile
from forerun.measure.cases import workload_of
from forerun.measure.core import python_file
from forerun.predictors.cases import Cases, as_asked
from forerun.predictors.laws.energy import energy_terms
from forerun.predictors.laws.features import OpTable, op_table
from forerun.predictors.laws.graph_numbers import of_graph
from forerun.predictors.laws.host import launch_counts
from forerun.predictors.laws.memory import estimate
from forerun.training import operators
from forerun.workload import Workload

Progress = Callable[[Iterable[Any], int], Iterable[Any]]


def model_cases(
    rows: pd.DataFrame, progress: Progress | None = None, saved: Mapping[str, Graph] | None = None
) -> Cases:
    """Our own model rows (with a `case`); rows whose model cannot be captured are dropped. `saved` has the graphs of
    rows of Python files, which are not run for their rows."""
    workloads = []
    for text, name in zip(rows["case"], rows.get("graph_hash", [None] * len(rows)), strict=True):
        case = json.loads(text)
        workload = workload_of(case)
        if case["source"] == python_file.SOURCE and name in (saved or {}):
            workload = replace(workload, model=(saved or {})[name], input_shape=None)
        workloads.append(workload)
    return workload_cases(rows, workloads, progress)


def workload_cases(
    rows: pd.DataFrame, workloads: list[Workload], progress: Progress | None = None,
    load: Callable[[Workload, Any], Graph] | None = None,
) -> Cases:  # fmt: skip
    """Model rows (with a `case_key`) and the workload of each; rows whose model cannot be captured are dropped.

    Rows of one key share a graph, of the workload and the software that ran it. Graphs are captured in parallel.
    """
    load = load or as_asked
    software = rows["software"].tolist()
    devices: dict[str, dict[str, int]] = {}  # by key and device, the first row
    for place, (key, device) in enumerate(zip(rows["case_key"], rows["device"], strict=True)):
        devices.setdefault(key, {}).setdefault(device, place)

    def look(places: dict[str, int]) -> dict[str, _Seen]:
        """One graph as training sees it, by device; empty where it cannot be captured."""
        first = next(iter(places.values()))
        try:
            graph = load(workloads[first], software[first])
            return {name: _look(graph, workloads[at].dtype, load_device(name)) for name, at in places.items()}
        except ForerunError:
            return {}

    captured = side_by_side(look, list(devices.values()))
    looked = dict(zip(devices, progress(captured, len(devices)) if progress else captured, strict=True))
    pairs = list(zip(rows["case_key"], rows["device"], strict=True))
    places = [i for i, (key, device) in enumerate(pairs) if device in looked[key]]
    indices, chosen_workloads = rows.index[places], [workloads[i] for i in places]
    seen = [looked[pairs[i][0]][pairs[i][1]] for i in places]
    facts = pd.DataFrame([s.facts for s in seen])
    chosen = rows.loc[indices].reset_index(drop=True).drop(columns=facts.columns, errors="ignore")
    stacked = _stacked(pd.concat([chosen, facts], axis=1), seen)
    return replace(
        stacked, rows=stacked.rows.assign(roofline_ms=stacked.roofline_ms), workloads=tuple(chosen_workloads), load=load
    )  # fmt: skip


def as_captured(cases: Cases) -> Cases:
    """Without rows that ran another program than the one captured: some versions of transformers fuse the attention of
    a model (Gemma 2), others do not."""
    fused = [
        (json.loads(text) if isinstance(text, str) else {}).get("attention") == "sdpa" for text in cases.rows["extra"]
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
    flops, moved = columns.work
    facts = {
        "simulated_memory_mb": memory.needed_mb, "simulated_memory_allocated_mb": memory.allocated_mb,
        "memory_group": memory.calibration_group, "fused_attentions": sum(op.kind == "attention" for op in graph.ops),
        "flops": float(flops.sum()), "bytes": float(moved[0]), "device_kind": device.kind,
        "kernel_launches": float(columns.kernels @ columns.repeat), **of_graph(columns),
        "op_kinds": " ".join(sorted({op.kind for op in graph.ops})), "block": block_of(graph),
    }  # fmt: skip
    joules = energy_terms(columns, [device])[0, 0]
    representatives, counts = columns.distinct_ops  # layers come many times
    table = op_table(columns.only(representatives), [device])
    return _Seen(table, counts, launch_counts(columns), joules, facts)


def operator_cases(rows: pd.DataFrame, progress: Progress | None = None) -> Cases:
    """Operator rows, ours and published ones; ops that have no builder are dropped."""
    wanted = rows[rows["op"].map(operators.known) & (rows["devices"].fillna(1) <= 1)]
    records = list(wanted[["op", "shape", "dtype", "direction", "device"]].itertuples(name=None))
    called = [(op, shape, dtype, direction or "forward") for _, op, shape, dtype, direction, _ in records]
    calls = list(dict.fromkeys(called))
    captured = side_by_side(_operator, calls)
    columns = dict(zip(calls, progress(captured, len(calls)) if progress else captured, strict=True))
    devices = {name: load_device(name) for name in wanted["device"].unique()}
    none = np.zeros(0)
    indices: list[int] = []
    seen: list[_Seen] = []
    for (index, *_, device), call in zip(records, called, strict=True):
        one = columns[call]
        if one is not None:
            indices.append(index)
            seen.append(_Seen(op_table(one, [devices[device]]), one.repeat, none, none, {}))
    return _stacked(wanted.loc[indices].reset_index(drop=True), seen)


def _operator(call: tuple[str, str, str, str]) -> Profile | None:
    """The ops that one call of an operator launches, as columns; None where it cannot be recorded."""
    try:
        graph = operators.graph_of(*call)
    except (RuntimeError, KeyError, ValueError, ZeroDivisionError):
        return None
    # Operators in fp32 were measured with TF32 off everywhere.
    return profile(graph, "fp32-ieee" if call[2] == "fp32" else call[2]) if graph.ops else None


def with_timing_group(rows: pd.DataFrame) -> pd.DataFrame:
    """Published rows with the column `timing_group`, as the importer of each set states it."""
    group = pd.Series("", index=rows.index, dtype=object)
    for name, selected in rows.groupby("dataset"):
        group[selected.index] = importers()[str(name)].timing_group(selected)
    return rows.assign(timing_group=group)


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
