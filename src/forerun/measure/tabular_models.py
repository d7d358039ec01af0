"""Tabular models, named by a string such as `tabular:random_forest,trees=100,depth=8,features=32`.

Each is a classifier of two classes from scikit-learn or XGBoost, trained in seconds on synthetic rows of a fixed seed.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np

from forerun._util.extras import needed
from forerun.errors import ForerunError, did_you_mean
from forerun.networks.base import Setting, read_settings

PREFIX = "tabular:"
SEED = 0
_TREES = ("trees", "depth", "features")
KINDS: dict[str, tuple[str, ...]] = {
    "random_forest": _TREES,
    "extra_trees": _TREES,
    "hist_gradient_boosting": _TREES,
    "xgboost": _TREES,
    "logistic_regression": ("features",),
    "mlp": ("layers", "width", "features"),
}
# Deeper trees and fewer features are refused, since not every kind of tree would reach that depth on the training rows.
_LIMITS = {"trees": (1, 5000), "depth": (1, 16), "features": (4, 4096), "layers": (1, 16), "width": (1, 4096)}
_EXAMPLE = {"trees": 100, "depth": 8, "features": 32, "layers": 2, "width": 64}


def parse(name: str) -> tuple[str, dict[str, int]]:
    """Kind and settings from `tabular:KIND,key=value,…`; every setting of the kind is required."""
    if not name.startswith(PREFIX):
        raise ForerunError(f"'{name}' does not name a tabular model: it must begin with '{PREFIX}'.")
    kind, *parts = (part.strip() for part in name[len(PREFIX) :].split(","))
    wanted = settings_of(kind)
    settings = read_settings(name, parts, {key: Setting(None, *_LIMITS[key]) for key in wanted})
    for key in wanted:
        if key not in settings:
            example = _named(kind, {key: _EXAMPLE[key] for key in wanted})
            raise ForerunError(f"'{name}' needs {key}=, as in {example}.")
    return kind, {key: settings[key] for key in wanted}


def name(kind: str, **settings: int) -> str:
    """The name of a kind with its settings, the inverse of `parse`."""
    return _named(*parse(_named(kind, settings)))


def settings_of(kind: str) -> tuple[str, ...]:
    if kind not in KINDS:
        raise ForerunError(f"'{kind}' is no kind of tabular model ({', '.join(KINDS)}).{did_you_mean(kind, KINDS)}")
    return KINDS[kind]


def library(module: str) -> Any:
    """A module of scikit-learn or XGBoost, which are optional dependencies."""
    with needed("a tabular model of this kind", "tabular"):
        return importlib.import_module(module)


def build(kind: str, **settings: int) -> Any:
    """The trained model, with just enough training rows for its trees to reach their depth."""
    model = _untrained(kind, settings)
    rng = np.random.default_rng(SEED)
    rows, features = training_rows(settings), settings["features"]
    x = rng.standard_normal((rows, features), dtype=np.float32)
    # Every feature is slightly correlated with the label, so that trees split on all of them; noise makes them deep.
    y = np.sin(2 * x).sum(axis=1) / features**0.5 + rng.standard_normal(rows) > 0
    # Boosting on few rows is faster with one thread, since several mostly wait for each other.
    with library("threadpoolctl").threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the MLP need not converge, since its weights do not affect time
        return model.fit(x, y.astype(np.int64))


def training_rows(settings: dict[str, int]) -> int:
    """16 rows per leaf of a full tree; with 4096 rows the longest branches exceed depth 16, as in practice."""
    return min(max(512, 16 * 2 ** settings.get("depth", 0)), 4096)


def facts(kind: str, model: Any) -> dict[str, Any]:
    """Facts of the trained model, such as its actual number of trees and depth."""
    if kind == "mlp":
        return {"parameters": sum(part.size for part in [*model.coefs_, *model.intercepts_])}
    if kind == "logistic_regression":
        return {"parameters": model.coef_.size + model.intercept_.size}
    if kind == "xgboost":
        # The dump has one line per node, indented by one tab per level.
        dumps = [text.splitlines() for text in model.get_booster().get_dump()]
        counted = [(len(lines), max(line.count("\t") for line in lines)) for lines in dumps]
    elif kind == "hist_gradient_boosting":
        counted = [(len(tree.nodes), int(tree.get_max_depth())) for step in model._predictors for tree in step]
    else:
        counted = [(int(one.tree_.node_count), int(one.tree_.max_depth)) for one in model.estimators_]
    nodes, depths = zip(*counted, strict=True)
    mean = sum(depths) / len(depths)
    return {"trees": len(nodes), "nodes": sum(nodes), "max_depth": max(depths), "mean_depth": mean}


def _named(kind: str, settings: dict[str, int]) -> str:
    return PREFIX + ",".join([kind, *(f"{key}={value}" for key, value in settings.items())])


def _untrained(kind: str, settings: dict[str, int]) -> Any:
    """The untrained model, with few bins and few candidate features, so that training is fast and trees differ.

    Splits continue down to leaves of one row (four for scikit-learn's boosting), so that only the depth ends a branch;
    a small learning rate leaves as much to learn for the last trees as for the first.
    """
    if kind == "logistic_regression":
        return library("sklearn.linear_model").LogisticRegression()
    if kind == "mlp":
        hidden = (settings["width"],) * settings["layers"]
        return library("sklearn.neural_network").MLPClassifier(hidden, max_iter=2, random_state=SEED)
    trees, depth, features = settings["trees"], settings["depth"], settings["features"]
    if kind == "xgboost":
        cheap = {"max_bin": 16, "colsample_bytree": min(1.0, 16 / features), "subsample": 0.8, "learning_rate": 0.05}
        cheap["n_jobs"] = 1
        return library("xgboost").XGBClassifier(
            n_estimators=trees, max_depth=depth, tree_method="hist", min_child_weight=0, random_state=SEED, **cheap
        )
    ensemble = library("sklearn.ensemble")
    if kind == "hist_gradient_boosting":
        cheap = {"max_bins": 16, "max_features": min(1.0, 4 / features), "learning_rate": 0.05}
        limits = {"max_depth": depth, "max_leaf_nodes": None, "min_samples_leaf": 4, "early_stopping": False}
        return ensemble.HistGradientBoostingClassifier(max_iter=trees, random_state=SEED, **cheap, **limits)
    forest = {"random_forest": "RandomForestClassifier", "extra_trees": "ExtraTreesClassifier"}[kind]
    return getattr(ensemble, forest)(trees, max_depth=depth, max_features=4, n_jobs=-1, random_state=SEED)
