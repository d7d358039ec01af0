"""Collects what published sets measured, as calls by their parts: what the prior is fitted to and ADAPT.md judged on.

    python benchmarks/adaptation/collect.py OUT [NETWORKS]     OUT: a folder, a file for each device

The store needs help_nas_latency and pytorch_gpu_benchmark (`forerun data import`). Of NAS-Bench-201, NETWORKS (160)
cells are drawn by a seed, the same for all devices. Graphs are captured once (half an hour on two cores).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from forerun.api.questions import profiled
from forerun.data.importers import importers
from forerun.data.store import Store
from forerun.device import Device, load_device
from forerun.errors import ForerunError
from forerun.graph.profile import profile
from forerun.networks import nasbench201
from forerun.predictors.laws.adaptation import Calls, join_calls
from forerun.predictors.registry import load_predictor
from forerun.workload import Workload

SPECS = Path(__file__).with_name("devices.yaml")
NAS, ZOO = "help_nas_latency", "pytorch_gpu_benchmark"
SEED, NETWORKS = 38, 160
#: From HW-NAS-Bench, whose runtime folds constants: graphs of their own, so fewer of them.
FOLDING, FOLDED = ("pixel-3", "raspberry-pi-4"), 120


def specs() -> dict[str, dict[str, Any]]:
    """Fields of the devices of devices.yaml, with `part` and `held_out`."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(SPECS.read_text())
    return found


def device(name: str) -> Device:
    """A device of devices.yaml, else of the catalogue."""
    fields = specs().get(name)
    if fields is None:
        return load_device(name)
    return load_device({"id": name, "name": name, **{k: v for k, v in fields.items() if k not in ("part", "held_out")}})


Line = tuple[str, str, float, Calls]
_COLUMNS = ("models", "settings", "measured", "device_ms", "known")  # the last two by held_out.py


def of_cells(store: Store, count: int) -> dict[str, list[Line]]:
    """Rows of NAS-Bench-201 by device: model, setting, measured milliseconds, parts."""
    predictor = load_predictor("default")
    rows = store.read("models", filters=[("dataset", "=", NAS), ("source", "=", "nasbench201")])
    names = rows["model"].unique()
    chosen = np.random.default_rng(SEED).permutation(names)[:count]
    out: dict[str, list[Line]] = {}
    for number, model in enumerate(chosen):
        whole, cut = (f"nasbench201:{form(str(model).partition('/')[2])}" for form in (str, nasbench201.folded))
        for name, measured in rows[rows["model"] == model].sort_values("batch").groupby("device"):
            if name in FOLDING and number >= FOLDED:
                continue
            workload = Workload(cut if name in FOLDING else whole)
            question = profiled(workload)
            graph = question.scalable or question.graph
            columns = profile(graph, "fp32", measured["batch"].to_numpy(dtype=int))
            calls = predictor.calls(columns, device(str(name)), workload)
            assert calls is not None
            for place, (batch, time) in enumerate(zip(measured["batch"], measured["latency_ms"], strict=True)):
                line = (whole, f"batch {batch}", float(time), calls.take(np.array([place])))
                out.setdefault(str(name), []).append(line)
    return out


def of_zoo(store: Store) -> dict[str, list[Line]]:
    """Rows of torchvision models on one GPU by device; the time to copy images is taken off."""
    predictor, importer = load_predictor("default"), importers()[ZOO]
    rows = store.read("models", filters=[("dataset", "=", ZOO)])
    cases = importer.model_rows(rows[rows["devices"] == 1])
    assert cases is not None
    graphs: dict[Any, Any] = {}
    out: dict[str, list[Line]] = {}
    for row in cases.sort_values("case_key").to_dict("records"):
        try:
            on = device(str(row["device"]))
            workload, key = importer.workload(row), (row["case_key"], str(row["software"]))
            if key not in graphs:
                graphs[key] = profile(importer.graph(workload, row["software"]), workload.dtype)
            calls = predictor.calls(graphs[key], on, workload)
        except ForerunError:
            continue
        assert calls is not None
        setting = f"{row['mode']}, {row['dtype']}, batch {row['batch']}"
        out.setdefault(on.id, []).append((row["model"], setting, row["latency_ms"] - row["copy_ms"], calls))
    return out


def save(folder: Path, name: str, lines: list[Line]) -> None:
    lines = [line for line in lines if line[2] > 0]
    calls = join_calls([line[3] for line in lines])
    np.savez_compressed(
        folder / f"{name}.npz", models=np.array([line[0] for line in lines]),
        settings=np.array([line[1] for line in lines]), measured=np.array([line[2] for line in lines]),
        parts_ms=calls.parts_ms, idle_ms=calls.idle_ms, host_ms=calls.host_ms, sharpness=calls.sharpness,
    )  # fmt: skip


def saved(folder: Path, sets: tuple[str, ...] = ("cells", "zoo")) -> dict[str, tuple[pd.DataFrame, Calls]]:
    """What was saved, by device and set: models, settings and measured times, and the parts."""
    out = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as one:
            if path.stem.rpartition(".")[2] not in sets:
                continue
            rows = pd.DataFrame({name: one[name] for name in _COLUMNS if name in one})
            calls = Calls(one["parts_ms"], one["idle_ms"], one["host_ms"], float(one["sharpness"]))
        out[path.stem] = rows, calls
    return out


def main(folder: Path, count: int = NETWORKS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    store = Store()
    for name, found in (("cells", of_cells(store, count)), ("zoo", of_zoo(store))):
        for device_id, lines in found.items():
            save(folder, f"{device_id}.{name}", lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int((*sys.argv[2:], NETWORKS)[0]))
