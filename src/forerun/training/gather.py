"""The training rows of the store, as the cases that predictors are fitted to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from forerun.data import saved_graphs
from forerun.data.importers import importers
from forerun.data.measured import in_priced_format
from forerun.data.splits import in_turns
from forerun.data.sql import row_ids
from forerun.data.store import Store
from forerun.data.summary import without_masked_replays
from forerun.device import load_device
from forerun.device.kinds import CPU, GPU
from forerun.errors import ForerunError
from forerun.measure.core import python_file
from forerun.measure.core.quantised import BITSANDBYTES
from forerun.predictors.cases import Cases, TrainingCases
from forerun.runtimes.base import Runtime
from forerun.runtimes.registry import names_of, runtimes
from forerun.training import operators, published
from forerun.training.cases import (
    Progress,
    as_captured,
    model_cases,
    operator_cases,
    with_timing_group,
    workload_cases,
)
from forerun.workload import Workload

#: Latencies of onnxruntime grow with the time of a loop of Python to this power.
_PYTHON_EXPONENT = 0.6


def gather(
    store: Store, progress: Progress | None = None, *, public: bool = True, where: str | None = None,
    operators_kept: int | None = None,
) -> TrainingCases:  # fmt: skip
    """All cases of the store; without `public`, those of our own protocol only.

    `where` is an SQL condition on the table `models` ("family = 'resnet' and mode = 'training'") that rows of whole
    models under our own protocol must meet. `operators_kept` is how many single operators under our own protocol are
    taken, evenly over the kinds of operator; all without it.
    """
    parts = parts_to_gather(store, progress, public=public, where=where, operators_kept=operators_kept)
    found = {name: captured() for name, captured in parts.items()}
    found.setdefault("operators", found["models"].take(np.zeros(len(found["models"]), dtype=bool)))
    return TrainingCases(**found)


def parts_to_gather(
    store: Store, progress: Progress | None = None, *, public: bool = True, where: str | None = None,
    operators_kept: int | None = None,
) -> dict[str, Callable[[], Any]]:  # fmt: skip
    """By field of TrainingCases, what captures it: each by itself, so that hours of capturing can be taken in turns."""
    rows = own_rows(chosen_models(store, where))
    part = rows["device"].map(parts_of(rows["device"]))
    gpu = rows[(part == GPU.part) & rows["device_ms"].notna()]
    if gpu.empty:
        chosen = f" that meets {where!r}" if where else ""
        raise ForerunError(
            f"no row{chosen} is of a model that ran well on a GPU under our own protocol (forerun data ls)"
        )
    cpu = rows[part == CPU.part]
    ops = store.read("operators")
    ops = ops[(ops["status"] == "ok") & (ops["device_ms"] > 0) & ops["op"].map(operators.known)]
    ops = ops[~ops["dtype"].isin(BITSANDBYTES)]  # several kernels each, of which graph/quantise.py makes several ops
    ops = ops[ops["device"].map(parts_of(ops["device"])) == GPU.part]
    measured = ops[ops["protocol"].str.startswith("forerun/")]
    if operators_kept is not None:
        measured = measured.loc[in_turns(measured["op"])[:operators_kept]]
    others = sample(ops) if public else ops.iloc[:0]

    def models() -> Cases:
        saved = saved_graphs.load(store, set(gpu.loc[gpu["source"] == python_file.SOURCE, "graph_hash"]))
        return as_captured(model_cases(gpu, progress, saved))

    def apart() -> dict[str, Cases]:
        chosen_rows = chosen_models(store, where)
        found = {run.part: cases_apart(run, store, chosen_rows, progress) for run in runtimes() if run.part is not None}
        return {name: cases for name, cases in found.items() if cases is not None}

    parts: dict[str, Callable[[], Any]] = {"models": models, "apart": apart}
    if len(measured):
        parts["operators"] = lambda: operator_cases(measured, progress)
    if len(others):
        parts["published_operators"] = lambda: operator_cases(others, progress)
    if len(cpu):
        parts["cpu_models"] = lambda: model_cases(cpu, progress)
    if public and published.has_any(store.read("models")):
        parts["published_models"] = lambda: published.published_cases(store, progress)
    return parts


def cases_apart(
    run: Runtime, store: Store, models: pd.DataFrame, progress: Progress | None = None
) -> Cases | None:  # fmt: skip
    """The CPU rows of a runtime that is learned by itself, under our own protocol, with graphs as it fuses them; graphs
    of model files are stored with the rows."""
    rows = models[(models["runtime"] == run.name) & (models["status"] == "ok")]
    rows = rows[rows["protocol"].fillna("").str.startswith("forerun/")]
    rows = rows[rows["device"].map(parts_of(rows["device"])) == CPU.part]
    if rows.empty:
        return None
    if not run.runs_files:
        return model_cases(rows, progress)
    graphs = saved_graphs.load(store)
    rows = rows[rows["graph_hash"].isin(list(graphs))]
    rows = rows.assign(latency_ms=_undisturbed)
    workloads = [
        Workload(graphs[name], batch=int(batch), dtype="fp32", runtime=run.name)
        for name, batch in zip(rows["graph_hash"], rows["batch"], strict=True)
    ]
    return workload_cases(rows, workloads, progress) if len(rows) else None


def _undisturbed(rows: pd.DataFrame) -> pd.Series:
    """Latency at the speed of an undisturbed machine. Cores of a shared host are half as fast while others use them,
    which the time of a loop of Python beside each row shows; latency grows less than in proportion to it. The median
    over calls is taken, since others use the host in bursts."""
    probes = [json.loads(text) for text in rows["extra"]]
    sides = ("host_probe_before", "host_probe_after")
    python_us = pd.Series([min(p[s]["python_us"] if s in p else np.nan for s in sides) for p in probes], rows.index)
    quiet_us = python_us.groupby(rows["host"]).transform(lambda each: each.quantile(0.1))
    slower = (python_us / quiet_us).fillna(1.0).clip(lower=1.0)
    return rows["latency_median_ms"] / slower**_PYTHON_EXPONENT


def chosen_models(store: Store, where: str | None) -> pd.DataFrame:
    """The rows of the table `models` that meet an SQL condition; without one, all of them."""
    rows = store.read("models")
    if where is None:
        return rows
    chosen = rows[rows["row_id"].isin(row_ids(store, "models", where))]
    if chosen.empty:
        raise ForerunError(
            f"no row of a model meets {where!r}; models are named like timm/resnet50 (forerun data query)"
        )
    return chosen


def own_rows(models: pd.DataFrame) -> pd.DataFrame:
    """Successful rows of PyTorch models under our own protocol, without those that are learned apart."""
    rows = models[models["protocol"].fillna("").str.startswith("forerun/") & (models["status"] == "ok")]
    rows = rows[names_of(rows).isin([run.name for run in runtimes() if run.calls_modules and run.part is None])]
    rows = rows[~rows["source"].isin(["tabular", "onnx"]) & in_priced_format(rows)]
    rows = rows[rows["mode"] != "generate"]  # many calls each (evaluate/generations.py)
    # Stores of older versions hold repeats without a number of their own.
    rows = rows[rows["case_key"].isna() | ~rows.duplicated(["case_key", "device", "repeat"])]
    return without_masked_replays(rows)


def parts_of(devices: pd.Series) -> dict[str, str | None]:
    """By device, whether GPUs or CPUs are learned from its rows; None for kinds of device that are not learned, and for
    devices that the catalogue lacks."""

    def part(name: str) -> str | None:
        try:
            traits = load_device(name).traits
        except ForerunError:
            return None
        return traits.part if traits.learned else None

    return {name: part(name) for name in devices.unique()}


def sample(ops: pd.DataFrame) -> pd.DataFrame:
    """The published operator rows in training, with the group they were timed in.

    A sample of each set, the same every time, with all devices and operators, long calls as well as short ones: one row
    of each octave of time, then a second of each, until an importer's `operator_rows` are reached.
    """
    by = ["device", "op", "dtype", "runtime", "protocol"]
    parts = []
    for name, importer in importers().items():
        subset = ops[(ops["dataset"] == name) & (ops["devices"].fillna(1) <= 1)]
        if not importer.operator_rows or subset.empty:
            continue
        subset = subset.sort_values("row_id").sample(frac=1, random_state=0)
        group = subset.groupby(by, dropna=False).ngroup().astype(str)
        octave = np.floor(np.log2(subset["device_ms"])).astype(str)
        parts.append(subset.loc[in_turns(group + "/" + octave)].groupby(by, dropna=False).head(importer.operator_rows))
    return with_timing_group(pd.concat(parts) if parts else ops.iloc[:0])
