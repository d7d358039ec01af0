"""Where predictors are found: by the name of their entry point, or in a folder that `forerun train` wrote."""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from forerun.errors import ForerunError, did_you_mean
from forerun.predictors.base import Predictor
from forerun.predictors.saved import FILE, read_description

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


def predictor_class(name: str) -> type[Predictor]:
    """The class of a registered predictor."""
    known = predictors()
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
    name, folder = str(predictor), Path(predictor)
    if name not in predictors() and (folder / FILE).is_file():
        return predictor_class(str(read_description(folder).get("predictor"))).load(folder)
    return predictor_class(name).shipped()
