"""Looks predictors up: by the name of their entry point or registration, or in a folder that `forerun train` wrote."""

from __future__ import annotations

from pathlib import Path

from forerun._util.companion import MODULE, companion
from forerun._util.extras import missing
from forerun._util.readable import short
from forerun._util.registry import Registry
from forerun.errors import ForerunError
from forerun.predictors.base import Predictor
from forerun.predictors.saved import FILE, read_description, shipped_folder

PREDICTORS: Registry[Predictor] = Registry("predictor", Predictor, ["forerun.predictors"])


def predictors() -> list[str]:
    """The name of every predictor that is installed or registered."""
    return PREDICTORS.names()


def saved_folder(predictor: str | Path) -> Path | None:
    """The folder of a fitted predictor: the one given, or the shipped one of a name; None where there is none."""
    folder = shipped_folder(str(predictor)) if str(predictor) in predictors() else Path(predictor)
    return folder if (folder / FILE).is_file() else None


def predictor_class(name: str) -> type[Predictor]:
    """The class of a known predictor, or of the one that was saved in a folder."""
    folder = None if name in predictors() else saved_folder(name)
    if folder is not None:
        return predictor_class(str(read_description(folder).get("predictor")))
    return PREDICTORS.kind(name)


def load_predictor(predictor: str | Path | Predictor) -> Predictor:
    """A predictor by name ('default' is the best one shipped), from a folder, or the object given."""
    if isinstance(predictor, Predictor):
        return predictor
    if not isinstance(predictor, (str, Path)):
        raise ForerunError(f"a predictor is a name, a folder or a Predictor, got {short(predictor)}")
    name, folder = str(predictor), saved_folder(predictor)
    kind = predictor_class(name)
    if folder is not None:
        return kind.load(folder)
    registered = PREDICTORS.load(name)
    if isinstance(registered, Predictor):
        return registered
    if kind.needs_fit:
        if kind.__module__.startswith("forerun.") and companion() is None:
            raise missing(f"the predictor {name} as it comes fitted", MODULE)
        raise ForerunError(
            f"the predictor {name} was not fitted: run forerun train {name} --out FOLDER, give the folder"
        )
    return kind()
