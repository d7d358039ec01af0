"""Where predictors are found: by the name of their entry point, or in a folder that `forerun train` wrote."""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from forerun.errors import ForerunError, did_you_mean
from forerun.predictors.base import Predictor
from forerun.predictors.saved import FILE, SHIPPED, read_description

GROUP = "forerun.predictors"


@functools.cache
def predictors() -> dict[str, EntryPoint]:
    """Every registered predictor by name. Two of one name are an error."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in found and found[point.name].value != point.value:
            raise ForerunError(f"two predictors are called {point.name}: {found[point.name].value}, {point.value}")
        found[point.name] = point
    return found


def saved_folder(predictor: str | Path) -> Path | None:
    """Where a fitted predictor lies: the folder itself, or of a name the one that ships; None where there is none."""
    folder = SHIPPED / str(predictor) if str(predictor) in predictors() else Path(predictor)
    return folder if (folder / FILE).is_file() else None


def predictor_class(name: str) -> type[Predictor]:
    """The class of a registered predictor, or of the one that was saved in a folder."""
    known = predictors()
    folder = None if name in known else saved_folder(name)
    if folder is not None:
        return predictor_class(str(read_description(folder).get("predictor")))
    if name not in known:
        hint = did_you_mean(name, known) or f" Known: {', '.join(sorted(known))}."
        raise ForerunError(f"no predictor is called {name!r}.{hint}")
    kind = known[name].load()
    if not (isinstance(kind, type) and issubclass(kind, Predictor)):
        raise ForerunError(f"the predictor {name} ({known[name].value}) is not a subclass of forerun's Predictor")
    return kind


def load_predictor(predictor: str | Path | Predictor) -> Predictor:
    """A predictor by name ('default' is the best one shipped), from a folder, or the object given."""
    if isinstance(predictor, Predictor):
        return predictor
    name, folder = str(predictor), saved_folder(predictor)
    kind = predictor_class(name)
    if folder is None and kind.needs_fit:
        raise ForerunError(
            f"the predictor {name} was not fitted: run forerun train {name} --out FOLDER, give the folder"
        )
    return kind() if folder is None else kind.load(folder)
