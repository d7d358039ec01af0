"""The training rows of the store, as the cases that predictors are fitted to."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from forerun.data import onnx_graphs
from forerun.data.importers import importers
from forerun.data.splits import in_turns
from forerun.data.sql import row_ids
from forerun.data.store import Store
from forerun.data.summary import without_masked_replays
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.measure.core.runtimes import COMPILE_MODES
from forerun.predictors.cases import Cases, TrainingCases
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

#: How latencies of onnxruntime follow the speed of a loop of Python, as a power.
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
    own = own_rows(chosen_models(store, where))
    kind = own["device"].map(kinds_of(own["device"]))
    gpu = own[(kind == "gpu") & own["device_ms"].notna()]
    if gpu.empty:
        chosen = f" that meets {where!r}" if where else ""
        raise ForerunError(
            f"no row{chosen} is of a model that ran well on a GPU under our own protocol (forerun data ls)"
        )
    cpu = own[kind == "cpu"]
    ops = store.read("operators")
    ops = ops[(ops["status"] == "ok") & (ops["device_ms"] > 0) & ops["op"].map(operators.known)]
    ops = ops[ops["device"].map(kinds_of(ops["device"])) == "gpu"]
    ours = ops[ops["protocol"].str.startswith("forerun/")]
    if operators_kept is not None:
        ours = ours.loc[in_turns(ours["op"])[:operators_kept]]
    others = sample(ops) if public else ops.iloc[:0]
    models = as_captured(model_cases(gpu, progress))
    return TrainingCases(
        models,
        operator_cases(ours, progress) if len(ours) else models.take(np.zeros(len(models), dtype=bool)),
        operator_cases(others, progress) if len(others) else None,
        model_cases(cpu, progress) if len(cpu) else None,
        published.published_cases(store, progress) if public and published.has_any(store.read("models")) else None,
        onnxruntime_cases(store, chosen_models(store, where), progress),
    )


def onnxruntime_cases(store: Store, models: pd.DataFrame, progress: Progress | None = None) -> Cases | None:
    """ONNX files that onnxruntime ran under our own protocol, as it fuses them; their graphs are kept with the rows."""
    rows = models[(models["runtime"] == "onnxruntime") & (models["status"] == "ok")]
    rows = rows[rows["protocol"].fillna("").str.startswith("forerun/")]
    rows = rows[rows["device"].map(kinds_of(rows["device"])) == "cpu"]
    if rows.empty:
        return None
    graphs = onnx_graphs.kept(store)
    rows = rows[rows["graph_hash"].isin(list(graphs))]
    rows = rows.assign(latency_ms=_undisturbed)
    workloads = [
        Workload(graphs[name], batch=int(batch), dtype="fp32", runtime="onnxruntime")
        for name, batch in zip(rows["graph_hash"], rows["batch"], strict=True)
    ]
    return workload_cases(rows, workloads, progress) if len(rows) else None


def _undisturbed(rows: pd.DataFrame) -> pd.Series:
    """Latency at the speed of an undisturbed machine: cores of a shared host are half as fast while others use them,
    which a loop of Python beside each row shows. Calls follow it less than in proportion; their median is taken, since
    others come in bursts."""
    probes = [json.loads(text) for text in rows["extra"]]
    sides = ("host_probe_before", "host_probe_after")
    python_us = pd.Series([min(p[s]["python_us"] if s in p else np.nan for s in sides) for p in probes], rows.index)
    quiet_us = python_us.groupby(rows["host"]).transform(lambda each: each.quantile(0.1))
    slower = (python_us / quiet_us).fillna(1.0).clip(lower=1.0)
    return rows["latency_median_ms"] / slower**_PYTHON_EXPONENT


def chosen_models(store: Store, where: str | None) -> pd.DataFrame:
    """The rows of the table `models` that meet an SQL condition; all without one."""
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
    """Successful rows of PyTorch models under our own protocol, run eagerly or compiled."""
    own = models[models["protocol"].fillna("").str.startswith("forerun/") & (models["status"] == "ok")]
    own = own[own["runtime"].fillna("eager").isin(["eager", *COMPILE_MODES])]
    own = own[~own["source"].isin(["tabular", "onnx"])]
    # Stores of older versions hold repeats without a number of their own.
    own = own[own["case_key"].isna() | ~own.duplicated(["case_key", "device", "repeat"])]
    return without_masked_replays(own)


def kinds_of(devices: pd.Series) -> dict[str, str | None]:
    """gpu, cpu … by device; None for what the catalogue does not have, which nothing can be learned from."""

    def kind(name: str) -> str | None:
        try:
            return load_device(name).kind
        except ForerunError:
            return None

    return {name: kind(name) for name in devices.unique()}


def sample(ops: pd.DataFrame) -> pd.DataFrame:
    """The published operator rows in training, with the group they were timed in.

    A part of each set, the same every time, with all devices and operators in it, long calls as well as short ones: one
    of each octave of time, then a second of each, until an importer's `operator_rows` are reached.
    """
    by = ["device", "op", "dtype", "runtime", "protocol"]
    parts = []
    for name, importer in importers().items():
        some = ops[(ops["dataset"] == name) & (ops["devices"].fillna(1) <= 1)]
        if not importer.operator_rows or some.empty:
            continue
        some = some.sample(frac=1, random_state=0)
        group = some.groupby(by, dropna=False).ngroup().astype(str)
        octave = np.floor(np.log2(some["device_ms"])).astype(str)
        parts.append(some.loc[in_turns(group + "/" + octave)].groupby(by, dropna=False).head(importer.operator_rows))
    return with_timing_group(pd.concat(parts) if parts else ops.iloc[:0])
