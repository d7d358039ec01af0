"""Builds tabular models and the synthetic tables that they are fitted to, and reads what became of a fitted one."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np

from forerun._util.extras import needed
from forerun.frontends.tabular.kinds import Tabular

SEED = 0
#: Columns that the label depends on, at most: the others are noise, as in practice.
INFORMATIVE = 16
SMALL = 256  # rows of the fit that starts the library's threads


def library(module: str) -> Any:
    """A module of scikit-learn, XGBoost or LightGBM, which are optional dependencies."""
    with needed("a tabular model of this kind", "tabular"):
        return importlib.import_module(module)


def table(model: Tabular, rows: int | None = None) -> tuple[Any, Any]:
    """Columns of normally distributed numbers in fp32, and a label that depends on some of them beside noise, so that
    trees grow as deep as they may."""
    settings = model.settings
    rng = np.random.default_rng(SEED)
    count = settings["rows"] if rows is None else rows
    x = rng.standard_normal((count, settings["columns"]), dtype=np.float32)
    used = x[:, :INFORMATIVE]
    score = np.sin(2 * used).sum(axis=1) / used.shape[1] ** 0.5 + rng.standard_normal(count, dtype=np.float32)
    classes = settings.get("classes", 0)
    if not classes:
        return x, score
    y = np.searchsorted(np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]), score)
    y[: min(classes, count)] = np.arange(min(classes, count))  # every class occurs
    return x, y


def questions(model: Tabular, rows: int) -> Any:
    """Rows to predict, which were not in the training table."""
    rng = np.random.default_rng(SEED + 1)
    return rng.standard_normal((rows, model.settings["columns"]), dtype=np.float32)


def untrained(model: Tabular, threads: int) -> Any:
    """The estimator with its library's defaults for all that the settings do not say."""
    got = model.settings
    trees, depth, classes = got.get("trees"), got.get("depth"), got.get("classes", 0)
    suffix = "Classifier" if classes else "Regressor"
    seeded = {"random_state": SEED}
    if model.kind == "xgboost":
        cls = getattr(library("xgboost"), f"XGB{suffix}")
        grown = {"n_estimators": trees, "max_depth": depth, "max_bin": got["bins"], "tree_method": "hist"}
        return cls(**grown, n_jobs=threads, **seeded)
    if model.kind == "lightgbm":
        cls = getattr(library("lightgbm"), f"LGBM{suffix}")
        grown = {"n_estimators": trees, "max_depth": depth or -1, "num_leaves": got["leaves"], "max_bin": got["bins"]}
        return cls(**grown, n_jobs=threads, verbose=-1, **seeded)
    if model.kind == "decision_tree":
        return getattr(library("sklearn.tree"), f"DecisionTree{suffix}")(max_depth=depth, **seeded)
    ensemble = library("sklearn.ensemble")
    if model.kind == "hist_gradient_boosting":
        grown = {"max_iter": trees, "max_depth": depth, "max_leaf_nodes": got["leaves"], "max_bins": got["bins"]}
        return getattr(ensemble, f"HistGradientBoosting{suffix}")(**grown, early_stopping=False, **seeded)
    if model.kind == "gradient_boosting":
        return getattr(ensemble, f"GradientBoosting{suffix}")(n_estimators=trees, max_depth=depth, **seeded)
    if model.kind in ("random_forest", "extra_trees"):
        cls = getattr(ensemble, {"random_forest": "RandomForest", "extra_trees": "ExtraTrees"}[model.kind] + suffix)
        return cls(n_estimators=trees, max_depth=depth, n_jobs=threads, **seeded)
    return _without_trees(model, threads, suffix)


def _without_trees(model: Tabular, threads: int, suffix: str) -> Any:
    got = model.settings
    linear = library("sklearn.linear_model")
    if model.kind == "linear_regression":
        return linear.LinearRegression()
    if model.kind == "ridge":
        return linear.Ridge()
    if model.kind == "logistic_regression":
        return linear.LogisticRegression(max_iter=got["iterations"], tol=1e-12)  # as many iterations as it is given
    if model.kind == "knn":
        neighbors = library("sklearn.neighbors")
        return getattr(neighbors, f"KNeighbors{suffix}")(got["neighbors"], n_jobs=threads)
    if model.kind == "svm":
        return getattr(library("sklearn.svm"), "SVC" if got["classes"] else "SVR")()
    hidden = (got["width"],) * got["layers"]
    epochs = {"max_iter": got["epochs"], "n_iter_no_change": got["epochs"]}  # none is saved by stopping early
    return getattr(library("sklearn.neural_network"), f"MLP{suffix}")(hidden, **epochs, random_state=SEED)


def fit(estimator: Any, x: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an iteration limit is meant to be reached
        return estimator.fit(x, y)


def asked(estimator: Any, kind: str) -> Any:
    """What is called to predict: probabilities, where a kind has them without a model of their own."""
    return estimator.predict_proba if kind != "svm" and hasattr(estimator, "predict_proba") else estimator.predict


def facts(estimator: Any, kind: str) -> dict[str, Any]:
    """What is known of a fitted model: nodes and depths of its trees, iterations, support vectors, weights."""
    if kind == "mlp":
        weights = sum(part.size for part in [*estimator.coefs_, *estimator.intercepts_])
        return {"parameters": int(weights), "iterations": int(estimator.n_iter_)}
    if kind in ("linear_regression", "ridge", "logistic_regression"):
        ran = {"iterations": int(np.max(estimator.n_iter_))} if kind == "logistic_regression" else {}
        return {"parameters": int(np.size(estimator.coef_) + np.size(estimator.intercept_)), **ran}
    if kind == "svm":
        return {"support_vectors": len(estimator.support_)}
    if kind == "knn":
        return {"searches_tree": int(estimator._fit_method != "brute")}
    nodes, depths = zip(*_trees(estimator, kind), strict=True)
    return {
        "trees": len(nodes), "nodes": sum(nodes), "max_depth": max(depths), "mean_depth": sum(depths) / len(depths),
    }  # fmt: skip


def _trees(estimator: Any, kind: str) -> list[tuple[int, int]]:
    """The nodes and the depth of every tree."""
    if kind == "xgboost":
        # The dump has one line per node, indented by one tab per level.
        dumps = [text.splitlines() for text in estimator.get_booster().get_dump()]
        return [(len(lines), max(line.count("\t") for line in lines)) for lines in dumps]
    if kind == "lightgbm":
        return _lightgbm_trees(estimator.booster_.model_to_string())
    if kind == "hist_gradient_boosting":
        return [(len(tree.nodes), int(tree.get_max_depth())) for step in estimator._predictors for tree in step]
    members = [estimator] if kind == "decision_tree" else np.ravel(estimator.estimators_)
    return [(int(one.tree_.node_count), int(one.tree_.max_depth)) for one in members]


def _lightgbm_trees(text: str) -> list[tuple[int, int]]:
    """The same from LightGBM's own text of a model, where a child below zero is a leaf."""
    out: list[tuple[int, int]] = []
    leaves, children = 1, list[list[int]]()
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "num_leaves":
            leaves, children = int(value), []
            if leaves == 1:
                out.append((1, 0))
        elif name in ("left_child", "right_child") and leaves > 1:
            children.append([int(word) for word in value.split()])
            if len(children) == 2:
                depth = [0] * (leaves - 1)
                for node in range(leaves - 1):  # a parent comes before its children
                    for child in (children[0][node], children[1][node]):
                        if child > 0:
                            depth[child] = depth[node] + 1
                out.append((2 * leaves - 1, 1 + max(depth)))
    return out
