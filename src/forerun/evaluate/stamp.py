"""Which code made the stored held-out predictions of a predictor, and whether today's code predicts the same.

Held-out predictions cannot be made again without fitting again, which takes hours. So a file beside them holds a hash
of all that they depend on: the source of the modules behind a prediction (without comments, docstrings and formatting),
the weights, and the datasheets of the devices that were measured. When the hash differs, `make gate`
(benchmarks/gate.py) compares the predictions of today's code with those of the code that made them, on frozen
questions, and writes how far they moved; `forerun evaluate` prints that.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from forerun._util.documents import read_json
from forerun._util.source_hash import defining_file, modules, remembered_source_hash
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.graph.cache import CAPTURING
from forerun.predictors.base import Predictor
from forerun.predictors.registry import load_predictor, predictor_class, saved_folder
from forerun.predictors.saved import ARRAYS, FILE, SHIPPED, content

NAME = "made_by.json"
_PACKAGE = Path(__file__).parents[1]


def folder_of(name: str) -> Path:
    """The folder of a predictor, by its name or its folder."""
    return saved_folder(name) or SHIPPED / name


def prediction_hash(name: str) -> str:
    """A hash of all that the predictions of a predictor depend on: code, weights, datasheets of measured devices."""
    folder, kind = folder_of(name), predictor_class(name)
    files, root = _modules_behind(kind), _PACKAGE.parent
    of_folder = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    digest = hashlib.sha256(remembered_source_hash(files, root, f"prediction_code_{of_folder}").encode())
    for file in (folder / FILE, folder / ARRAYS):
        digest.update(content(file) or b"")
    for device in sorted(load_predictor(name).measured_devices() or ()):
        digest.update(repr(_facts(device)).encode())
    return digest.hexdigest()[:16]


def _facts(device: str) -> Any:
    """The datasheet of a device; its name where the catalogue of this machine lacks it."""
    try:
        known = dataclasses.asdict(load_device(device))
    except ForerunError:
        return device
    return sorted((key, value) for key, value in known.items() if key not in ("note", "provenance"))


def _modules_behind(kind: type[Predictor]) -> list[Path]:
    """The modules of graphs and cost laws, of workloads, and of predictors that this one uses."""
    files = set(modules(*(_PACKAGE / room for room in (*CAPTURING, "device")), _PACKAGE / "workload.py"))
    defining = (defining_file(one) for one in kind.__mro__ if issubclass(one, Predictor))
    waiting = [file for file in defining if file is not None]
    while waiting:
        file = waiting.pop()
        if file not in files:
            files.add(file)
            waiting += _imported(file)
    return sorted(files)


def _imported(file: Path) -> list[Path]:
    """The modules of predictors that a module imports."""
    out = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("forerun.predictors"):
            place = _PACKAGE.parent.joinpath(*str(node.module).split("."))
            named = [place / f"{alias.name}.py" for alias in node.names]
            out += [path for path in (place.with_suffix(".py"), place / "__init__.py", *named) if path.is_file()]
    return out


def write_stamp(name: str, moved: dict[str, Any] | None = None) -> None:
    """Notes that today's code predicts the same as the code that made the held-out predictions of a predictor, except
    for what `moved` says; without `moved`, that today's code made them."""
    now, path = prediction_hash(name), folder_of(name) / NAME
    made_by = now if moved is None else _read(path).get("made_by", now)
    path.write_text(json.dumps({"made_by": made_by, "compared": now, "moved": moved or {}}, indent=1) + "\n")


def made_by(name: str) -> str | None:
    """The hash of the code and weights that made the held-out predictions of a predictor; None where it is not
    noted."""
    return _read(folder_of(name) / NAME).get("made_by")


def is_current(name: str) -> bool:
    """Whether the note is about today's code and weights."""
    return _read(folder_of(name) / NAME).get("compared") == prediction_hash(name)


def notice(name: str) -> str | None:
    """A sentence where the held-out predictions of a predictor are not those of today's code; None where they are."""
    folder = folder_of(name)
    known = _read(folder / NAME)
    again = f"forerun train {predictor_class(name).name} --out {folder.name} makes them anew"
    if not known:
        return f"nothing says which code made the held-out predictions of {name}: {again}"
    if known.get("compared") != prediction_hash(name):
        return (
            f"the prediction code or the weights of {name} changed since its held-out predictions were made, and "
            f"nobody compared the two (make gate STAMP=1): {again}"
        )
    moved = known.get("moved") or {}
    if not moved:
        return None
    parts = [
        f"{target} {each['mean']:.1%} in the mean and {each['most']:.1%} at most" if each["most"] else f"{target} alone"
        for target, each in moved.items()
    ]
    return (
        f"the prediction code of {name} changed since its held-out predictions were made; on the frozen questions of "
        f"make gate about the devices that it is judged on, its predictions moved: {', '.join(parts)}: {again}"
    )


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
