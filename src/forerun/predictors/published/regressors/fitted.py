"""Fitted models of scikit-learn as arrays, and their predictions computed from these arrays alone.

`arrays` turns a fitted model into arrays, `answers` predicts with them: what is saved needs neither pickle nor
scikit-learn.
Trees are flat lists of nodes, those of all trees of a forest one after another; a leaf is its own child.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
#: Lists of a forest that have an entry a node, and one that has an entry a tree.
_NODES = ("feature", "threshold", "left", "right", "value")
#: Number of lines that go through a forest at once.
_AT_ONCE = 4096


def arrays(model: Any) -> Arrays:
    """The arrays of a fitted model."""
    kind = type(model).__name__
    if kind in ("LinearRegression", "Ridge", "Lasso"):
        return {"weights": np.append(model.coef_, model.intercept_).astype(float)}
    if kind == "SVR":
        return {
            "supports": model.support_vectors_, "weights": np.append(model.dual_coef_, model.intercept_).astype(float),
            "gamma": np.array([model.gamma], dtype=float),
        }  # fmt: skip
    if kind == "DecisionTreeRegressor":
        return _forest([model], 1.0, 0.0)
    if kind == "RandomForestRegressor":
        return _forest(model.estimators_, 1 / len(model.estimators_), 0.0)
    if kind == "GradientBoostingRegressor":
        start = float(np.ravel(model.init_.constant_)[0])
        return _forest(list(model.estimators_[:, 0]), model.learning_rate, start)
    if kind == "StackingRegressor":
        first, second = (arrays(one) for one in model.estimators_)
        both = {f"first_{name}": v for name, v in first.items()} | {f"second_{name}": v for name, v in second.items()}
        final = model.final_estimator_
        return both | {"mixture": np.append(final.coef_, final.intercept_).astype(float)}
    raise TypeError(f"{kind} has no arrays")


def answers(found: Arrays, features: np.ndarray) -> np.ndarray:
    """The model's prediction for every line of features."""
    if "mixture" in found:
        parts = [
            answers({n.removeprefix(p): v for n, v in found.items() if n.startswith(p)}, features)
            for p in ("first_", "second_")
        ]
        return np.column_stack(parts) @ found["mixture"][:-1] + found["mixture"][-1]
    if "supports" in found:
        supports = found["supports"]
        squares = (features**2).sum(axis=1)[:, None] + (supports**2).sum(axis=1) - 2 * features @ supports.T
        return np.exp(-found["gamma"][0] * squares) @ found["weights"][:-1] + found["weights"][-1]
    if "roots" in found:
        starts = range(0, len(features), _AT_ONCE)
        each = [_sum_of_trees(found, features[at : at + _AT_ONCE]) for at in starts]
        sums = np.concatenate(each) if each else np.zeros(0)
        return found["scale"][1] + found["scale"][0] * sums
    return features @ found["weights"][:-1] + found["weights"][-1]


def check(found: Arrays, features: int) -> None:
    """Raises ValueError where arrays, read from a file, do not fit each other."""
    if "mixture" in found:
        for prefix in ("first_", "second_"):
            check({n.removeprefix(prefix): v for n, v in found.items() if n.startswith(prefix)}, features)
        fits = found["mixture"].shape == (3,)
    elif "supports" in found:
        supports = found["supports"]
        fits = supports.ndim == 2 and supports.shape[1] == features and found["gamma"].shape == (1,)
        fits = fits and found["weights"].shape == (len(supports) + 1,)
    elif "roots" in found:
        fits = _trees_fit(found, features)
    else:
        fits = "weights" in found and found["weights"].shape == (features + 1,)
    if not fits:
        raise ValueError("its arrays do not fit each other")


def _forest(trees: list[Any], scale: float, start: float) -> Arrays:
    """Trees as nodes: a prediction is `start` plus `scale` times the sum of the leaves."""
    nodes: dict[str, list[np.ndarray]] = {name: [] for name in _NODES}
    roots, at = [], 0
    for one in trees:
        tree = one.tree_
        here = np.arange(tree.node_count)
        leaf = tree.children_left < 0
        roots.append(at)
        nodes["feature"].append(np.where(leaf, 0, tree.feature).astype(np.int16))
        nodes["threshold"].append(_below(np.where(leaf, 0.0, tree.threshold)))
        nodes["left"].append((np.where(leaf, here, tree.children_left) + at).astype(np.int32))
        nodes["right"].append((np.where(leaf, here, tree.children_right) + at).astype(np.int32))
        nodes["value"].append(np.where(leaf, tree.value[:, 0, 0], 0.0))
        at += tree.node_count
    joined = {name: np.concatenate(parts) for name, parts in nodes.items()}
    return joined | {"roots": np.array(roots, dtype=np.int32), "scale": np.array([scale, start], dtype=float)}


def _below(thresholds: np.ndarray) -> np.ndarray:
    """The largest single-precision number that is not above each threshold: scikit-learn compares features in single
    precision with thresholds in double, and x <= threshold holds for the same x after this."""
    near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)


def _sum_of_trees(found: Arrays, features: np.ndarray) -> np.ndarray:
    seen = features.astype(np.float32)
    lines = np.arange(len(seen))[:, None]
    node = np.broadcast_to(found["roots"], (len(seen), len(found["roots"])))
    while True:
        goes_left = seen[lines, found["feature"][node]] <= found["threshold"][node]
        below = np.where(goes_left, found["left"][node], found["right"][node])
        if np.array_equal(below, node):
            return found["value"][node].sum(axis=1)
        node = below


def _trees_fit(found: Arrays, features: int) -> bool:
    """Whether every path down a tree ends, and all indices of nodes and features are in range."""
    count = len(found["left"])
    here = np.arange(count)
    inner = found["left"] != here
    sizes = all(found[name].shape == (count,) for name in _NODES) and found["scale"].shape == (2,)
    most = {"left": count, "right": count, "roots": count, "feature": features}
    inside = all((found[name] >= 0).all() and (found[name] < top).all() for name, top in most.items())
    if not (sizes and inside):
        return False
    down = (found["left"][inner] > here[inner]).all() and (found["right"][inner] > here[inner]).all()
    return bool(down and (found["right"][~inner] == here[~inner]).all())
