"""Holds the roofline predictor against our own H200 rows: `python benchmarks/h200_accuracy.py` (about ten minutes).

The predictor's constants were fitted to these very rows, so its figures here are not held out; they say how much a
hundred constants can explain. Beside them stand a trivial baseline, the plain roofline, and what repeating a
measurement gives.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from forerun.api import predict_workload
from forerun.device import load_device
from forerun.graph import torch_compat
from forerun.graph.profile import profile
from forerun.graph.sources import load_graph
from forerun.measure.core.rows import merge
from forerun.prediction import Prediction
from forerun.predictors.roofline import RooflinePredictor
from forerun.workload import Workload

ROWS = Path(__file__).resolve().parent.parent / "datasets" / "h200" / "rows.jsonl.gz"


def workload(case: dict[str, Any]) -> Workload:
    """The case of a row as a workload; networks with changed hyper-parameters are built as modules."""
    settings: dict[str, Any] = {"batch": case["batch"], "dtype": case["dtype"], "mode": case["mode"]}
    if case["mode"] == "training":
        settings |= {"optimizer": {"sgd": "momentum"}.get(case["optimizer"], case["optimizer"]), "amp": case.get("amp")}
    overrides = case.get("overrides") or {}
    shape = tuple(case["input_shape"]) if case.get("input_shape") else None
    if case["source"] == "hf":
        return Workload({**case["config"], **overrides}, seq_len=case.get("seq_len"), **settings)
    if case["source"] == "cnn":
        return Workload(case["name"], **settings)
    if case["source"] in ("timm", "torchvision") and not overrides:
        return Workload(f"{case['source']}/{case['name']}", input_shape=shape, **settings)
    import torch

    torch_compat.prepare()
    with torch.device("meta"):
        if case["source"] == "unet":
            from forerun.graph.sources import unet_family

            return Workload(unet_family.build(**unet_family.parse(case["name"])), input_shape=(3, 96, 128), **settings)
        import timm
        import torchvision

        make = timm.create_model if case["source"] == "timm" else torchvision.models.get_model
        return Workload(make(case["name"], **overrides), input_shape=shape or (3, 224, 224), **settings)


def line(what: str, said: np.ndarray, real: np.ndarray, inside: np.ndarray | None = None) -> None:
    error = np.abs(said / real - 1)
    covered = "" if inside is None else f"   in the 90 % interval: {inside.mean():.0%}"
    print(f"  {what:<26} mean error {error.mean():7.1%}   median {np.median(error):7.1%}{covered}")


def repeats(rows: list[dict[str, Any]], field: str) -> np.ndarray:
    """Differences between repeats of the same case, as shares."""
    groups = defaultdict(list)
    for row in rows:
        if row.get(field):
            groups[row["key"]].append(row[field])
    return np.array([abs(v[1] / v[0] - 1) for v in groups.values() if len(v) > 1])


def main() -> None:
    warnings.filterwarnings("ignore")
    with gzip.open(ROWS, "rt") as lines:
        rows = [r for r in merge([json.loads(text) for text in lines]) if r["kind"] == "model" and r["status"] == "ok"]
    device = load_device("h200")
    pairs: list[tuple[dict[str, Any], Prediction]] = []
    plain: list[float] = []
    for row in track([r for r in rows if r["repeat"] == 0 and r.get("kernel_ms")], description="predicting"):
        case = workload(row["case"])
        graph = load_graph(case)
        light = RooflinePredictor().times(profile(graph, case.dtype), [device], case).light_ms
        plain.append(float(light[0, 0]))
        pairs.append((row, predict_workload(dataclasses.replace(case, model=graph), device)))

    def column(read: Any) -> np.ndarray:
        return np.array([read(row, p) for row, p in pairs], dtype=float)

    print(
        f"{len(pairs)} cases of {len({r['case']['family'] for r, _ in pairs})} families, of {len(rows)} measured rows"
    )
    for name, field in (("latency_ms", "latency_ms"), ("device_ms", "kernel_ms"), ("energy_j", "energy_j")):
        real = column(lambda row, p, f=field: row[f] or np.nan)
        said = column(lambda row, p, n=name: getattr(p, n).value)
        inside = column(lambda row, p, n=name, f=field: getattr(p, n).low <= (row[f] or np.nan) <= getattr(p, n).high)
        keep = ~np.isnan(real)
        print(f"{name}: repeating moves it by {repeats(rows, field).mean():.1%} on average")
        line("always the median", np.full(keep.sum(), np.median(real[keep])), real[keep])
        if name != "energy_j":
            line("plain roofline per op", np.array(plain)[keep], real[keep])
        line("with constants (in sample)", said[keep], real[keep], inside[keep])
    ratios = defaultdict(list)
    for row, p in pairs:
        if p.device_ms is not None:
            ratios[row["case"]["family"]].append(p.device_ms.value / row["kernel_ms"])
    ranked = sorted((float(np.median(r)), family) for family, r in ratios.items())
    worst = sorted(ranked, key=lambda f: -abs(np.log(f[0])))[:8]
    print("worst families, device time predicted / measured: " + ", ".join(f"{f} {r:.2f}" for r, f in worst))
    for name, read in (
        ("memory_allocated_mb", lambda row: row["memory"]["allocated_mb"]),
        ("memory_mb", lambda row: row["memory"]["used_mb"]),
    ):
        real, said = column(lambda row, p, f=read: f(row)), column(lambda row, p, n=name: getattr(p, n).value)
        inside = column(lambda row, p, n=name, f=read: getattr(p, n).low <= f(row) <= getattr(p, n).high)
        print(name)
        for group, modes in (
            ("transformers", ("hf",)),
            ("convolutional and other", ("timm", "torchvision", "cnn", "unet")),
        ):
            some = np.array([row["case"]["source"] in modes for row, _ in pairs])
            line(group, said[some], real[some], inside[some])


if __name__ == "__main__":
    main()
