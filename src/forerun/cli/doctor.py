"""`forerun doctor`: versions, this machine, the store and the weights, for users and for bug reports."""

from __future__ import annotations

import importlib.util
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from forerun._util import extras
from forerun._util.version import __version__
from forerun.errors import ForerunError
from forerun.frontends.converters import environment as converter_env
from forerun.graph import cache

#: package -> its purpose, and the extra that installs it; None: it is a dependency of forerun
_PACKAGES: dict[str, tuple[str, str | None]] = {
    "torch": ("PyTorch models", None), "timm": ("models by name", None), "torchvision": ("models by name", None),
    "transformers": ("Hugging Face models", None), "pandas": ("predict_many and compare", None),
    "numpy": ("all predictions", None), "safetensors": ("weights", None), "onnx": ("ONNX files", "onnx"),
    "onnxruntime": ("measuring ONNX files", "onnxruntime"), "duckdb": ("queries of the store", "data"),
    "pyarrow": ("the store", "data"), "nvidia-ml-py": ("energy and memory of NVIDIA GPUs", "measure"),
    "scipy": ("packing of MIG slices", "mig"), "forerun-data": ("training and evaluation", "evaluate"),
    "xgboost-cpu": ("the predictor trees", "trees"), "torch_geometric": ("graph networks", "gnn"),
    "plotly": ("reports", "report"), "optuna": ("tuning", "tune"), "gradio": ("the web page", "web"),
    "umap-learn": ("the landscape study", "landscape"),
}  # fmt: skip


def examine() -> dict[str, Any]:
    """The report of doctor as plain data."""
    return {
        "forerun": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": _packages(),
        "device": _device(),
        "store": _store(),
        "weights": _weights(),
        "cache": _cache(),
    }


def _packages() -> list[dict[str, Any]]:
    """Every package that forerun uses, with its version or the command that installs it."""
    packages: list[dict[str, Any]] = []
    for name, (purpose, extra) in _PACKAGES.items():
        try:
            packages.append({"name": name, "for": purpose, "installed": version(name), "add": None})
        except PackageNotFoundError:
            add = extras.command(extra) if extra else f"pip install {name}"
            packages.append({"name": name, "for": purpose, "installed": None, "add": add})
    for name, purpose in (("keras", "Keras and TensorFlow models"), ("paddle", "PaddlePaddle models")):
        state = converter_env.status(name)
        ready = state["state"] in ("here", "installed")
        packages.append(
            {"name": name, "for": purpose, "installed": state["state"] if ready else None, "add": state["command"]}
        )
    return packages


def _device() -> dict[str, Any]:
    """The device that `forerun measure` would use, with the versions of its driver and libraries."""
    from forerun.device import aliases, device_ids
    from forerun.measure.core import host_facts, meters
    from forerun.measure.machine import name_of, plain_name

    has_torch = importlib.util.find_spec("torch") is not None
    meter = meters.meter_for("auto" if has_torch else "cpu")
    described, host = meter.describe(), host_facts.host()
    name = plain_name(name_of(described, host))
    report = {**described, "catalogue": name if name in device_ids() else aliases().get(name), "host": host}
    if has_torch:
        versions = host_facts.software(meter)
        report |= {part: versions[part] for part in ("cuda", "cudnn", "driver")}
    return report


def _store() -> dict[str, Any]:
    """The folder of the store, and the number of rows of each data set."""
    from forerun.data.places import default_folder

    folder = default_folder()
    report: dict[str, Any] = {"folder": str(folder), "writable": _writable(folder), "problem": None}
    try:
        from forerun.data.store import Store
        from forerun.data.summary import contents

        store = Store(folder)
        table = contents(store)
    except ForerunError as error:
        return report | {"rows": {}, "problem": str(error)}
    rows = {f"{row.dataset}/{row.table}": int(row.rows) for row in table.itertuples()}
    return report | {"rows": rows, "set_aside": [str(path) for path in store.set_aside]}


def _weights() -> dict[str, Any]:
    """The default predictor, and the rows that it was fitted to."""
    from forerun.predictors.registry import load_predictor

    try:
        return {"predictor": "default", **load_predictor("default").provenance, "problem": None}
    except ForerunError as error:
        return {"predictor": "default", "problem": str(error)}


def _cache() -> dict[str, Any]:
    """Captured graphs on disk."""
    folder = cache.folder()
    files = list(folder.glob("*.json.z")) if folder.is_dir() else []
    return {
        "folder": str(folder), "graphs": len(files), "writable": _writable(folder),
        "mb": round(sum(f.stat().st_size for f in files) / 2**20, 2),
    }  # fmt: skip


def _writable(folder: Path) -> bool:
    return os.access(next(p for p in (folder, *folder.parents) if p.exists()), os.W_OK)


def view(report: dict[str, Any]) -> list[Any]:
    """The report for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("package", "for", "installed", "to add it"):
        table.add_column(column)
    for p in report["packages"]:
        table.add_row(
            p["name"], p["for"], p["installed"] or "missing", p["add"] or "", style=None if p["installed"] else "yellow"
        )
    device, store, weights, graphs = (report[part] for part in ("device", "store", "weights", "cache"))
    known = f"in the catalogue as {device['catalogue']}" if device["catalogue"] else "not in the catalogue"
    stored = store["problem"] or f"{sum(store['rows'].values()):,} rows"
    fitted = weights["problem"] or f"fitted on {weights.get('fitted', 'an unknown date')}"
    return [
        Text(f"forerun {report['forerun']}, Python {report['python']}, {report['platform']}", style="bold"), table,
        Text(),
        Text(f"Device: {device['name']}, {known}", style="dim"),
        Text(f"Store: {stored}, in {store['folder']}{_state(store, 'measurements are not kept')}", style="dim"),
        Text(f"Weights: {weights['predictor']}, {fitted}", style="dim"),
        Text(f"Cache: {graphs['graphs']} captured graphs, {graphs['mb']} MB, in {graphs['folder']}"
             f"{_state(graphs, 'every model is captured again')}", style="dim"),
    ]  # fmt: skip


def _state(place: dict[str, Any], consequence: str) -> str:
    return "" if place["writable"] else f" (not writable: {consequence})"
