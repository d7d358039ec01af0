"""Published times of whole models as cases: timm and pytorch-gpu-benchmark, eager, on GPUs of the catalogue.

What a row means is told by the scripts that made it. timm: autocast to fp16 over fp32 weights, steps of SGD with
momentum, at a batch that fills the card. pytorch-gpu-benchmark: 12 images on one GPU, the whole model in fp32 or fp16,
training without an optimizer step. Its oldest files (20 iterations) time images that lie on the GPU; in all others
eight processes load images meanwhile, and copying them to the GPU is part of the time. Both sets call `zero_grad`,
which before the second PyTorch wrote zeros that backward then added to.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd

from forerun.data.splits import in_turns
from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.graph.ir import Graph, Op
from forerun.graph.sources import load_graph
from forerun.predictors.host import idle_ms
from forerun.training.cases import Cases, Progress, workload_cases
from forerun.training.fit_host import HostFit
from forerun.workload import Workload

TIMM, TORCHVISION = "timm", "pytorch_gpu_benchmark"
#: timm models taken, one or two of each family; the whole set would take hours to capture.
TIMM_MODELS = 110
#: Pageable memory to the GPU over PCIe, GB/s. An RTX 2080 Ti was measured with and without copies: the smallest models
#: take 1.8 to 2.0 ms longer with, in half precision half of that.
COPY_GBS = 4.0
#: How far the least time of the device must lie above the host's for a row to tell about the device.
CLEARLY, CREDIBLE = 1.0, 0.7
#: The version of PyTorch whose zero_grad frees gradients.
SETS_TO_NONE = 20_000
_CASE = ["dataset", "device", "model", "mode", "dtype", "amp", "batch", "input_shape", "protocol", "software"]
_ITEM_BYTES = {"fp32": 4, "fp16": 2}


def published_cases(store: Store, progress: Progress | None = None, *, timm_models: int = TIMM_MODELS) -> Cases:
    """Rows of both sets with `latency_ms` and `copy_ms` (part of it); what cannot be captured is left out."""
    rows = published_rows(store.read("models"), timm_models)
    return workload_cases(rows, [workload_of_row(r) for r in rows.to_dict("records")], progress, load=as_measured)


def published_rows(rows: pd.DataFrame, timm_models: int = TIMM_MODELS) -> pd.DataFrame:
    """One row a case: eager, one GPU that the catalogue has; the median of repeats."""
    rows = rows[(rows["status"] == "ok") & (rows["runtime"] == "eager") & (rows["latency_ms"] > 0)]
    rows = rows[rows["devices"].fillna(1) == 1]
    gpu = rows["device"].map({name: _has_specs(name) for name in rows["device"].unique()})
    rows = rows[gpu.astype(bool)]
    timm = _timm(rows[(rows["dataset"] == TIMM) & (rows["protocol"] == "timm")], timm_models)
    vision = rows[(rows["dataset"] == TORCHVISION) & rows["dtype"].isin(_ITEM_BYTES)]
    both = pd.concat([timm, vision])
    if both.empty:
        raise ForerunError("the store has no published times of models: see forerun data import timm")
    both = both.assign(latency_ms=both.groupby(_CASE, dropna=False)["latency_ms"].transform("median"))
    both = both.drop_duplicates(_CASE).reset_index(drop=True)
    keys = both[[c for c in _CASE if c not in ("dataset", "device")]].astype("string").fillna("")
    both = both.assign(case_key=keys.agg("|".join, axis=1), copy_ms=_copy_ms(both))
    return both.sort_values(["case_key", "device"], ignore_index=True)


def workload_of_row(row: dict[str, object]) -> Workload:
    """The row as a workload. Workload has no autocast in inference: those rows of timm stand as fp16 throughout."""
    training = row["mode"] == "training"
    # sgd stands for no optimizer step (see as_measured).
    optimizer = ("momentum" if row["dataset"] == TIMM else "sgd") if training else None
    return Workload(
        str(row["model"]),
        batch=int(float(str(row["batch"]))),
        dtype=str(row["dtype"]),
        mode=str(row["mode"]),
        input_shape=tuple(json.loads(str(row["input_shape"]))),
        optimizer=optimizer,
        amp="fp16" if training and row["amp"] == "fp16" else None,
    )


def as_measured(workload: Workload, software: object = None) -> Graph:
    """The graph of what was timed. sgd stands for no optimizer step; the first PyTorch also zeroed gradients."""
    graph = load_graph(workload)
    if workload.mode != "training":
        return graph
    ops = [op for op in graph.ops if workload.optimizer != "sgd" or op.phase != "optimizer"]
    old = isinstance(software, str) and _version(software) < SETS_TO_NONE
    return replace(graph, ops=[*ops, *(_zeroing(graph) if old else ())])


def _zeroing(graph: Graph) -> list[Op]:
    """Per parameter, zeros written over its gradient and the new one added (a tensor as large as the gradient stands
    for it). Behind all other ops, whose numbers stay."""
    first: dict[int, int] = {}
    for i, t in enumerate(graph.tensors):
        if graph.storages[t.storage].role == "parameter":
            first.setdefault(t.storage, i)
    out = []
    for storage, i in first.items():
        times = graph.storages[storage].repeat
        out.append(Op("fill", "aten::zero_", (), (i,), repeat=times))
        out.append(Op("elementwise", "aten::add_.Tensor", (i, i), (i,), phase="backward", repeat=times))
    return out


def device_bound(published: Cases, host: HostFit) -> Cases:
    """Cases whose time the device sets, by roofline and well above the host's; that time as `device_ms`."""
    rows = published.rows
    light = published.light_ms
    measured = (rows["latency_ms"] - rows["copy_ms"]).to_numpy(dtype=float)
    busy = measured - idle_ms(published.launches, host.lead_us, host.gap_us)
    # Rows far below their roofline tell that the spec sheet lacks something (tensor cores of a Titan V).
    sure = (light > CLEARLY * host.host_ms(published.launches)) & (busy > CREDIBLE * light)
    kept = published.take(sure)
    return replace(kept, rows=kept.rows.assign(device_ms=busy[sure]))


def other_families(published: Cases, asked: pd.DataFrame) -> Cases:
    """Without the families of the rows that are asked for, whatever each set calls them."""
    families, stems = set(asked["family"].dropna()), {_stem(name) for name in asked["model"]}
    known = published.rows["family"].isin(families) | published.rows["model"].map(_stem).isin(stems)
    return published.take(~known.to_numpy())


def _stem(model: str) -> str:
    """resnet of timm/resnet50d?layers=[2,2]: the letters before the first digit or underscore."""
    return re.split(r"[\d_?:]", model.rpartition("/")[2] or model)[0]


def has_any(rows: pd.DataFrame) -> bool:
    return bool(rows["dataset"].isin((TIMM, TORCHVISION)).any())


def _timm(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """The newest run of models that were run in every setting, at their smallest image; names without their weights."""
    if rows.empty:
        return rows
    rows = rows.assign(
        model="timm/" + rows["model"].str.split(".").str[0],
        torch=rows["software"].map({s: _version(s) for s in rows["software"].unique()}),
        side=rows["input_shape"].map({s: json.loads(s)[-1] for s in rows["input_shape"].unique()}),
    )
    setting = rows["device"] + "/" + rows["mode"]
    everywhere = setting.groupby(rows["model"]).nunique() == setting.nunique()
    rows = rows[rows["model"].map(everywhere)]
    chosen = _evenly(rows.drop_duplicates("model").set_index("model")["family"], count)
    rows = rows[rows["model"].isin(chosen)]
    newest = rows["torch"] == rows.groupby(["device", "mode", "model"])["torch"].transform("max")
    rows = rows[newest]
    smallest = rows["side"] == rows.groupby(["device", "mode", "model"])["side"].transform("min")
    return rows[smallest].drop(columns=["torch", "side"])


def _evenly(families: pd.Series, count: int) -> set[str]:
    """Names drawn evenly over families, the same every time: one of each, then a second of each …"""
    mixed = families.fillna("unknown").sort_index().sample(frac=1, random_state=0)
    return set(in_turns(mixed)[:count])


def _version(software: str) -> int:
    """torch 2.4.0 as 20400."""
    parts = [*map(int, str(json.loads(software)["torch"]).split(".")), 0, 0]
    return parts[0] * 10_000 + parts[1] * 100 + parts[2]


def _copy_ms(rows: pd.DataFrame) -> np.ndarray:
    """What copying the images takes, where that is part of the time."""
    pixels = rows["input_shape"].map({s: float(np.prod(json.loads(s))) for s in rows["input_shape"].unique()})
    copied = pixels * rows["batch"] * rows["dtype"].map(_ITEM_BYTES)
    timed = (rows["dataset"] == TORCHVISION) & ~rows["protocol"].str.endswith("/20-iterations")
    return (copied / COPY_GBS / 1e6).where(timed, 0.0).to_numpy(dtype=float)


def _has_specs(name: str) -> bool:
    try:
        return load_device(name).kind == "gpu"
    except ForerunError:
        return False
