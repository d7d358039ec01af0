"""A fitted estimator of scikit-learn, XGBoost or LightGBM as a tabular model: its settings, and what became of it.

Nothing here imports those libraries: an estimator is known by its class, and read through what it offers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forerun.errors import ForerunError
from forerun.frontends.tabular.kinds import KINDS, Tabular

#: Class without Classifier or Regressor -> kind.
_CLASSES = {
    "DecisionTree": "decision_tree", "RandomForest": "random_forest", "ExtraTrees": "extra_trees",
    "GradientBoosting": "gradient_boosting", "HistGradientBoosting": "hist_gradient_boosting", "XGB": "xgboost",
    "LGBM": "lightgbm", "LinearRegression": "linear_regression", "Ridge": "ridge",
    "LogisticRegression": "logistic_regression", "KNeighbors": "knn", "SVC": "svm", "SVR": "svm", "MLP": "mlp",
}  # fmt: skip
_LIBRARIES = ("sklearn", "xgboost", "lightgbm")
#: Setting of ours -> parameters of the libraries.
_PARAMETERS = {
    "trees": ("n_estimators", "max_iter"), "depth": ("max_depth",), "leaves": ("max_leaf_nodes", "num_leaves"),
    "bins": ("max_bins", "max_bin"), "iterations": ("max_iter",), "epochs": ("max_iter",),
    "neighbors": ("n_neighbors",),
}  # fmt: skip


def is_estimator(model: Any) -> bool:
    """Whether it is an estimator of a library of tabular models, fitted or not, known or not."""
    if isinstance(model, (str, type)):
        return False
    return any(base.__module__.partition(".")[0] in _LIBRARIES for base in type(model).__mro__) and all(
        callable(getattr(model, method, None)) for method in ("fit", "get_params")
    )


def read(model: Any) -> Tabular:
    """A fitted estimator as a tabular model. What is missing or unknown is a ForerunError of one sentence."""
    name = type(model).__name__
    kind = _CLASSES.get(name.removesuffix("Classifier").removesuffix("Regressor"))
    if kind is None:
        raise ForerunError(f"no law of {name} is known: the estimators with one are {', '.join(_names())}")
    columns = _columns(model)
    if columns is None:
        raise ForerunError(
            f"this {name} is not fitted: fit it first, or name it, as in tabular:{kind},rows=…,columns=…"
        )
    parameters = model.get_params()
    settings: dict[str, int] = {"columns": columns}
    for key, setting in KINDS[kind].settings.items():
        found = next((parameters[p] for p in _PARAMETERS.get(key, ()) if parameters.get(p) is not None), None)
        if key != "columns" and found is not None and int(found) > 0:
            settings[key] = int(found)
        elif setting.default is not None and key not in ("columns", "rows"):
            settings[key] = setting.default
    if "classes" in KINDS[kind].settings:
        settings["classes"] = _classes(model)
    if kind == "mlp":
        hidden = model.coefs_[:-1]
        settings |= {"layers": len(hidden), "width": round(sum(w.shape[1] for w in hidden) / max(1, len(hidden)))}
    rows = _first(model, _ROWS.get(kind, ()))
    if rows:
        settings["rows"] = int(rows)
    return Tabular(kind, settings, _facts(model, kind, settings))


def _names() -> list[str]:
    """The classes, without what tells a classifier from a regressor."""
    return sorted(_CLASSES)


def _columns(model: Any) -> int | None:
    try:
        found = getattr(model, "n_features_in_", None)
    except Exception:  # noqa: BLE001 - XGBoost and LightGBM have errors of their own for what is not fitted
        return None
    fits = found is not None and (not hasattr(model, "__sklearn_is_fitted__") or _is_fitted(model))
    return int(found) if fits and found else None


def _is_fitted(model: Any) -> bool:
    try:
        return bool(model.__sklearn_is_fitted__())
    except Exception:  # noqa: BLE001 - as above
        return False


def _classes(model: Any) -> int:
    if not type(model).__name__.endswith(("Classifier", "SVC", "LogisticRegression")):
        return 0
    return len(model.classes_)


#: How a fitted estimator tells the rows that it was fitted to, where it does.
_ROWS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "decision_tree": (lambda m: m.tree_.weighted_n_node_samples[0],),
    "random_forest": (lambda m: m.estimators_[0].tree_.weighted_n_node_samples[0],),
    "extra_trees": (lambda m: m.estimators_[0].tree_.weighted_n_node_samples[0],),
    "gradient_boosting": (lambda m: m.estimators_[0, 0].tree_.weighted_n_node_samples[0],),
    "hist_gradient_boosting": (lambda m: m._predictors[0][0].nodes[0]["count"],),
    "knn": (lambda m: m.n_samples_fit_,),
    "svm": (lambda m: m.shape_fit_[0],),
    "mlp": (lambda m: m.t_ / m.n_iter_,),
}


def _first(model: Any, ways: tuple[Callable[[Any], Any], ...]) -> Any:
    for way in ways:
        try:
            return way(model)
        except (AttributeError, TypeError, ValueError, IndexError, ZeroDivisionError):
            continue
    return None


def _facts(model: Any, kind: str, settings: dict[str, int]) -> dict[str, float]:
    """The nodes of its trees, the iterations it took, the support vectors it keeps."""
    if kind == "svm":
        return {"support_vectors": float(len(model.support_))}
    if kind in ("mlp", "logistic_regression"):
        return {"iterations": float(max(_flat(model.n_iter_)))}
    counted = _nodes(model, kind)
    if not counted:
        return {}
    nodes = float(sum(n for n, _ in counted))
    depths = [deep for _, deep in counted if deep is not None]
    facts = {"nodes": nodes, "trees": float(len(counted))}
    return facts | ({"mean_depth": sum(depths) / len(depths)} if depths else {})


def _nodes(model: Any, kind: str) -> list[tuple[int, float | None]]:
    """The nodes of every tree and its depth, where it is cheap to know."""
    if kind == "decision_tree":
        return [(int(model.tree_.node_count), float(model.tree_.max_depth))]
    if kind in ("random_forest", "extra_trees", "gradient_boosting"):
        trees = _flat(model.estimators_)
        return [(int(one.tree_.node_count), float(one.tree_.max_depth)) for one in trees]
    if kind == "hist_gradient_boosting":
        return [(len(tree.nodes), float(tree.get_max_depth())) for step in model._predictors for tree in step]
    if kind == "xgboost":
        dumps = [text.splitlines() for text in model.get_booster().get_dump()]
        return [(len(lines), float(max(line.count("\t") for line in lines))) for lines in dumps]
    if kind == "lightgbm":
        text = model.booster_.model_to_string()
        leaves = [int(line.partition("=")[2]) for line in text.splitlines() if line.startswith("num_leaves=")]
        return [(2 * n - 1, None) for n in leaves]
    return []


def _flat(values: Any) -> list[Any]:
    ravel = getattr(values, "ravel", None)
    return list(ravel()) if callable(ravel) else list(values) if isinstance(values, (list, tuple)) else [values]
