"""Boosters of XGBoost as JSON text: made smaller, and checked before XGBoost sees them.

XGBoost trusts the indices in its files, so a manipulated file could make it read out of bounds. Every index is
therefore checked here first.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun._util.documents import read_json
from forerun._util.extras import needed
from forerun.errors import ForerunError
from forerun.predictors import saved

if TYPE_CHECKING:
    from xgboost import Booster

#: Lists of a tree that are saved, one entry per node: those that predictions and contributions need.
_SAVED = ("left_children", "right_children", "split_indices", "split_conditions", "default_left", "sum_hessian")
#: Further lists that XGBoost requires, with constant entries: gains during training, and kinds of splits.
_FILLED: dict[str, float] = {"base_weights": 0.0, "loss_changes": 0.0, "split_type": 0}
#: What XGBoost calls the parent of a root.
_NO_PARENT = 2**31 - 1


def xgboost() -> Any:
    """The package, which is an extra."""
    with needed("the predictor trees"):
        import xgboost as found
    return found


def trained(features: np.ndarray, target: np.ndarray, rounds: int, settings: dict[str, Any]) -> Booster:
    """A booster of `rounds` trees; one thread, so that the same rows give the same trees."""
    library = xgboost()
    rows = library.DMatrix(features, target, nthread=1)
    return library.train({**settings, "tree_method": "hist", "nthread": 1}, rows, rounds)


def predicted(booster: Booster, features: np.ndarray) -> np.ndarray:
    """The prediction for every line."""
    return np.asarray(booster.predict(xgboost().DMatrix(features, nthread=1)), dtype=float)


def contributions(booster: Booster, features: np.ndarray) -> np.ndarray:
    """[lines, features + 1]: Shapley values of every feature, and the booster's mean prediction."""
    return np.asarray(booster.predict(xgboost().DMatrix(features, nthread=1), pred_contribs=True), dtype=float)


def write(booster: Booster, path: Path) -> str:
    """Writes the booster as JSON, without lists that no prediction needs; returns the hash of the file."""
    content = json.loads(bytes(booster.save_raw("json")))
    for tree in _trees(content):
        for name in {*_FILLED, "parents"}:
            del tree[name]
        for name in ("split_conditions", "sum_hessian"):
            tree[name] = [int(x) if x == int(x) else x for x in tree[name]]
    text = json.dumps(content, separators=(",", ":")) + "\n"
    path.write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read(path: Path, features: int) -> Booster:
    """The booster of a file that `write` wrote, for this number of features."""
    library = xgboost()
    try:
        content = read_json(path) if path.is_file() or not (data := saved.content(path)) else json.loads(data)
        _check(content, features)
        made = library.Booster({"nthread": 1})
        made.load_model(bytearray(json.dumps(content).encode()))
    except library.core.XGBoostError as error:
        raise ForerunError(f"{path} holds no trees that XGBoost can read: train them again") from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)[:120]
        raise ForerunError(f"{path} holds no whole trees ({reason}): train them again") from error
    return made


def _trees(content: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = content["learner"]["gradient_booster"]["model"]["trees"]
    return found


def _check(content: dict[str, Any], features: int) -> None:
    """Raises ValueError where an index is out of range."""
    learner = content["learner"]
    if int(learner["learner_model_param"]["num_feature"]) != features:
        raise ValueError(f"they were fitted to other features than {features}")
    model = learner["gradient_booster"]["model"]
    trees = _trees(content)
    if len(trees) != int(model["gbtree_model_param"]["num_trees"]) or len(trees) != len(model["tree_info"]):
        raise ValueError("some trees are missing")
    if any(model["tree_info"]) or learner["gradient_booster"]["name"] != "gbtree":
        raise ValueError("they are not trees for one quantity")
    for tree in trees:
        _check_tree(tree, features)


def _check_tree(tree: dict[str, Any], features: int) -> None:
    """Checks the lists of a tree, and fills in those that were not saved."""
    nodes = len(tree["left_children"])
    if nodes == 0 or any(len(tree[name]) != nodes for name in _SAVED):
        raise ValueError("a tree has lists of different lengths")
    about = tree["tree_param"]
    if int(about["num_nodes"]) != nodes or int(about["num_feature"]) != features or tree["categories"]:
        raise ValueError("a tree does not fit its own description")
    if int(about["size_leaf_vector"]) > 1:
        raise ValueError("a tree has several values a leaf")
    left, right, split = (np.array(tree[n], dtype=int) for n in ("left_children", "right_children", "split_indices"))
    here = np.flatnonzero(left != -1)
    below = np.concatenate([left[here], right[here]])
    above = np.concatenate([here, here])
    if (right[left == -1] != -1).any() or (below <= above).any() or (below >= nodes).any():
        raise ValueError("a tree names nodes that it does not have")
    if len(np.unique(below)) != nodes - 1 or len(below) != nodes - 1:
        raise ValueError("a tree has nodes that no way leads to")
    if (split < 0).any() or (split >= features).any():
        raise ValueError("a tree splits by features that there are not")
    parents = np.full(nodes, _NO_PARENT)
    parents[below] = above
    tree |= {name: [value] * nodes for name, value in _FILLED.items()} | {"parents": parents.tolist()}
    for name in ("split_conditions", "sum_hessian"):
        numbers = np.array(tree[name], dtype=float)
        if not np.isfinite(numbers).all():
            raise ValueError("a tree has numbers that are none")
        tree[name] = numbers.tolist()
