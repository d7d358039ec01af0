"""Which frontends there are, and which of them takes a model. `base.Frontend` is the contract of one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from forerun._util.registry import Registry
from forerun.errors import ForerunError, did_you_mean
from forerun.frontends.base import Frontend, weights_only
from forerun.frontends.tabular.fitted import is_estimator
from forerun.frontends.tabular.kinds import is_tabular

FRONTENDS: Registry[Frontend] = Registry("frontend", Frontend, ["forerun.frontends", "forerun.sources"])
#: Files that hold weights or code and no architecture, unless a frontend says otherwise.
_WEIGHTS = (".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".pkl")


def frontends() -> dict[str, Frontend]:
    """Every frontend that is installed or registered by name, in the order they are asked."""
    made = {name: FRONTENDS.made(name) for name in FRONTENDS.names()}
    return dict(sorted(made.items(), key=lambda item: (-item[1].priority, item[0])))


def find_frontend(model: Any) -> tuple[str, Frontend]:
    """The frontend that takes this model; a ForerunError with suggestions when there is none."""
    claimed: dict[str, Frontend] = {}
    if isinstance(model, (str, Path)):
        path = Path(model)
        if not 0 < len(str(model)) < 1000 or any(len(part) > 255 for part in path.parts):
            raise ForerunError("a model needs a name, an id or a path of reasonable length")
        claimed = _claimants(path)
    weights = isinstance(model, (str, Path)) and Path(model).suffix.lower() in _WEIGHTS
    if isinstance(model, str) and not claimed and not weights and Path(model).exists():
        named = _frontend_of_name(model)  # a folder called resnet18 does not hide the model: ./resnet18 is the folder
        if named is not None:
            return named
    for name, frontend in (claimed if claimed or weights else frontends()).items():
        if frontend.matches(model):
            return name, frontend
    if weights:
        raise ForerunError(weights_only(model))
    raise ForerunError(_unknown(model, is_file=bool(claimed)))


def is_known_name(name: str) -> bool:
    """Whether a frontend lists a model of this name, whatever files are here."""
    return _frontend_of_name(name) is not None


def _frontend_of_name(name: str) -> tuple[str, Frontend] | None:
    return next(((found, frontend) for found, frontend in frontends().items() if frontend.knows(name)), None)


def is_file(model: str | Path) -> bool:
    """Whether a name is that of a file, by its suffix: one that a frontend claims, or one of weights."""
    path = Path(model)
    return path.suffix.lower() in _WEIGHTS or bool(_claimants(path))


def _claimants(path: Path) -> dict[str, Frontend]:
    """The frontends that claim the suffix of a path."""
    suffix = path.suffix.lower()
    return {name: frontend for name, frontend in frontends().items() if suffix in frontend.suffixes} if suffix else {}


def model_names() -> list[str]:
    """Every name a frontend offers."""
    return [name for frontend in frontends().values() for name in frontend.names()]


def _unknown(model: Any, is_file: bool) -> str:
    """Why no frontend takes a model, and what would be taken."""
    if is_tabular(model) or is_estimator(model):
        return "a tabular model has no graph of operations: forerun predict, measure, verify and sweep take it"
    taken = [f"{d.takes} ({', '.join(d.suffixes)})" if d.suffixes else d.takes for d in frontends().values()]
    if not isinstance(model, (str, Path)):
        return f"a {type(model).__name__} is not a model forerun knows; it takes {', '.join(taken)}"
    text = str(model)
    if is_file and not Path(text).exists():
        return f"there is no file {text}"
    if is_file or (re.search(r"[/\\]", text) and Path(text).exists()):
        return f"{text} is not a model forerun knows; it takes {', '.join(taken)}"
    return f"no model is called {text!r}.{did_you_mean(text, model_names()) or ' See: forerun models'}"
