"""`forerun doctor`: what is installed, what is missing, which command adds it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from forerun.graph import cache
from forerun.graph.sources import converter_env

#: package -> what it is for
_PACKAGES = {
    "torch": "PyTorch models", "timm": "models by name", "torchvision": "models by name",
    "transformers": "Hugging Face models", "onnx": "ONNX files", "pandas": "predict_many and compare",
}  # fmt: skip


def examine() -> dict[str, Any]:
    """Everything doctor knows, as plain data."""
    packages = []
    for name, purpose in _PACKAGES.items():
        try:
            packages.append({"name": name, "for": purpose, "installed": version(name), "add": None})
        except PackageNotFoundError:
            packages.append({"name": name, "for": purpose, "installed": None, "add": f"pip install {name}"})
    for name, purpose in (("keras", "Keras and TensorFlow models"), ("paddle", "PaddlePaddle models")):
        state = converter_env.status(name)
        ready = state["state"] in ("here", "installed")
        packages.append(
            {"name": name, "for": purpose, "installed": state["state"] if ready else None, "add": state["command"]}
        )
    folder = cache.folder()
    files = list(folder.glob("*.json.z")) if folder.is_dir() else []
    writable = os.access(folder if folder.exists() else next(p for p in folder.parents if p.exists()), os.W_OK)
    return {
        "python": platform.python_version(), "packages": packages,
        "cache": {"folder": str(folder), "graphs": len(files), "writable": writable,
                  "mb": round(sum(f.stat().st_size for f in files) / 2**20, 2)},
    }  # fmt: skip


def view(found: dict[str, Any]) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("package", "for", "installed", "to add it"):
        table.add_column(column)
    for p in found["packages"]:
        table.add_row(
            p["name"], p["for"], p["installed"] or "missing", p["add"] or "", style=None if p["installed"] else "yellow"
        )
    c = found["cache"]
    state = "" if c["writable"] else " (not writable: every model is captured anew)"
    return [
        Text(f"Python {found['python']}", style="bold"), table, Text(),
        Text(f"{c['graphs']} captured graphs, {c['mb']} MB, in {c['folder']}{state}", style="dim"),
    ]  # fmt: skip
