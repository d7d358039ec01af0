"""Tabular models named by their settings: `tabular:xgboost,trees=500,depth=8,rows=1e6,columns=50`.

`rows` and `columns` are those of the training table; what is not named is as the library has it by default. Nothing
here needs scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.errors import ForerunError, did_you_mean
from forerun.networks.base import Setting, Settings, read_settings

PREFIX = "tabular:"
#: Setting -> what it was called in older names.
_FORMERLY = {"columns": "features"}

_TABLE = {"rows": Setting(10_000, 2, 10**9), "columns": Setting(None, 1, 10**6)}
_CLASSES = {"classes": Setting(2, 0, 1000)}
_TREES = {"trees": Setting(100, 1, 100_000)}
_UNLIMITED = {"depth": Setting(None, 1, 64)}
_LEAVES = {"leaves": Setting(31, 2, 100_000)}


def _kind(library: str, *settings: Mapping[str, Setting]) -> Kind:
    merged = {key: one for part in settings for key, one in part.items()}
    return Kind(library, {**merged, **_TABLE})


@dataclass(frozen=True)
class Kind:
    """One kind of estimator: its library, and the settings of its names. A depth that is not named has no limit;
    classes=0 is regression."""

    library: str
    settings: Mapping[str, Setting]


KINDS: dict[str, Kind] = {
    "decision_tree": _kind("sklearn", _UNLIMITED, _CLASSES),
    "random_forest": _kind("sklearn", _TREES, _UNLIMITED, _CLASSES),
    "extra_trees": _kind("sklearn", _TREES, _UNLIMITED, _CLASSES),
    "gradient_boosting": _kind("sklearn", _TREES, {"depth": Setting(3, 1, 64)}, _CLASSES),
    "hist_gradient_boosting": _kind("sklearn", _TREES, _UNLIMITED, _LEAVES, {"bins": Setting(255, 2, 255)}, _CLASSES),
    "xgboost": _kind("xgboost", _TREES, {"depth": Setting(6, 1, 64), "bins": Setting(256, 2, 65_536)}, _CLASSES),
    "lightgbm": _kind("lightgbm", _TREES, _UNLIMITED, _LEAVES, {"bins": Setting(255, 2, 65_535)}, _CLASSES),
    "linear_regression": _kind("sklearn"),
    "ridge": _kind("sklearn"),
    "logistic_regression": _kind("sklearn", {"iterations": Setting(100, 1, 100_000)}, _CLASSES),
    "knn": _kind("sklearn", {"neighbors": Setting(5, 1, 10_000)}, _CLASSES),
    "svm": _kind("sklearn", _CLASSES),
    "mlp": _kind(
        "sklearn",
        {"layers": Setting(1, 1, 64), "width": Setting(100, 1, 65_536), "epochs": Setting(200, 1, 100_000)},
        _CLASSES,
    ),
}


@dataclass(frozen=True)
class Tabular:
    """A tabular model: its kind, every setting, and what is known of the fitted one (nodes, support vectors)."""

    kind: str
    settings: Settings
    facts: Mapping[str, float] | None = None

    @property
    def name(self) -> str:
        """The name that `parse` reads back to the same settings; defaults other than the table's are omitted."""
        shown = [
            f"{key}={self.settings[key]}"
            for key, setting in KINDS[self.kind].settings.items()
            if key in self.settings and (key in _TABLE or self.settings[key] != setting.default)
        ]
        return PREFIX + ",".join([self.kind, *shown])

    @property
    def library(self) -> str:
        return KINDS[self.kind].library


def is_tabular(model: object) -> bool:
    return isinstance(model, str) and model.strip().startswith(PREFIX)


def parse(name: str) -> Tabular:
    """The model of a name; a ForerunError says what is wrong with it."""
    kind, *parts = (part.strip() for part in name.strip().removeprefix(PREFIX).split(","))
    settings = settings_of(kind)
    given = read_settings(name, [_today(part, settings) for part in parts], settings)
    if "columns" not in given:
        raise ForerunError(f"'{name}' needs columns=, as in {PREFIX}{kind},rows=100000,columns=20.")
    filled = {key: given.get(key, one.default) for key, one in settings.items()}
    complete = {key: value for key, value in filled.items() if value is not None}
    if complete.get("classes") == 1:
        raise ForerunError(f"classes=1 in '{name}': a classifier has 2 classes or more, and classes=0 is regression.")
    if complete.get("neighbors", 0) > complete["rows"]:
        raise ForerunError(f"'{name}' asks for {complete['neighbors']} neighbors among {complete['rows']} rows.")
    return Tabular(kind, complete)


def settings_of(kind: str) -> Mapping[str, Setting]:
    """The settings of a kind; a ForerunError where there is none."""
    if kind not in KINDS:
        raise ForerunError(f"'{kind}' is no kind of tabular model ({', '.join(KINDS)}).{did_you_mean(kind, KINDS)}")
    return KINDS[kind].settings


def _today(part: str, settings: Mapping[str, Setting]) -> str:
    """A setting with the name that it has now."""
    key, equals, value = part.partition("=")
    for now, before in _FORMERLY.items():
        if key.strip() == before and now in settings:
            return f"{now}{equals}{value}"
    return part
