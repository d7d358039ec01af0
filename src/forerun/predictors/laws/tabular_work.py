"""What fitting a tabular model and predicting with it counts: visits of tree nodes, histograms, products, bytes.

The cost laws of tabular models, in one place. Amounts are in units whose cost a law learns (`tabular.py`). Work is of
four sorts: `serial` and `parallel` work of threads, `gemm` (floating-point operations of products of matrices) and
`stream` (bytes that are read once).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from forerun.frontends.tabular.kinds import Tabular

Amounts = dict[tuple[str, str], float]  # (sort, name) -> how much

FORESTS = ("decision_tree", "random_forest", "extra_trees")
HISTOGRAMS = ("hist_gradient_boosting", "xgboost", "lightgbm")
BOOSTED = ("gradient_boosting", *HISTOGRAMS)
LINEAR = ("linear_regression", "ridge", "logistic_regression")
#: Kinds whose fit does little but store its table.
STORED = ("knn",)
#: Kinds that use one thread whatever they are given.
ONE_THREAD = ("decision_tree", "gradient_boosting", "svm")
#: Rows that a leaf needs at least.
_LEAST_ROWS = {"hist_gradient_boosting": 20, "lightgbm": 20}
#: Leaves of a tree without limits, per row; those of a label of numbers, where every row differs. Counted in trees that
#: were grown on a label of which half is noise.
_LEAVES_PER_ROW = {"decision_tree": (0.2, 1.0), "random_forest": (0.2, 0.63), "extra_trees": (0.35, 1.0)}
#: How much longer the way to a leaf is than in a balanced tree.
UNBALANCED = 1.25
#: scikit-learn's k-NN searches a tree up to so many columns, and every row beyond.
TREE_COLUMNS = 15
#: Support vectors per row, where a fitted model does not say: half of the label is noise.
_SUPPORT = {"classes": 0.75, "numbers": 0.9}
#: Iterations after which a logistic regression converges, where it may make more: those of our own tables.
_CONVERGED = 25
_BATCH = 200  # rows of a step of an MLP


@dataclass(frozen=True)
class Trees:
    """The trees of a model: how many, leaves of each, nodes on the way to a leaf."""

    count: int
    leaves: float
    path: float

    @property
    def nodes(self) -> float:
        return self.count * (2 * self.leaves - 1)


def trees(model: Tabular) -> Trees:
    """The trees of a fitted model as they are, those of another one as they are expected to grow."""
    got = model.settings
    classes = got.get("classes", 0)
    count = got.get("trees", 1) * (classes if model.kind in BOOSTED and classes > 2 else 1)
    if model.facts and "nodes" in model.facts:
        count = int(model.facts.get("trees", count))
        leaves = max(1.0, (model.facts["nodes"] / count + 1) / 2)
        deep = model.facts.get("mean_depth", math.inf)
    else:
        depth = got.get("depth", math.inf)
        rows_limit = got["rows"] / _LEAST_ROWS.get(model.kind, 2)
        if model.kind in _LEAVES_PER_ROW:
            rows_limit = got["rows"] * _LEAVES_PER_ROW[model.kind][0 if classes else 1]
        full = 2.0 ** min(depth, 40)
        leaves = max(1.0, min(1 / (1 / full + 1 / max(rows_limit, 1.0)), float(got.get("leaves", math.inf))))
        deep = depth
    path = min(deep, UNBALANCED * math.log2(leaves + 1))
    return Trees(count, leaves, max(path, 0.5))


def fitting(model: Tabular, threads: int) -> Amounts:
    """The work of a fit with so many threads."""
    if model.kind in FORESTS:
        return _grown(model) | _started(model, threads)
    if model.kind in BOOSTED:
        return _boosted(model) | _started(model, threads)
    if model.kind in LINEAR:
        return _solved(model)
    return {"knn": _stored, "svm": _separated, "mlp": _stepped}[model.kind](model)


def _started(model: Tabular, threads: int) -> Amounts:
    """Threads that are started, and handed the trees, or the nodes of each tree."""
    if threads == 1 or model.kind in ONE_THREAD:
        return {}
    grown = trees(model)
    pieces = {"started tree": float(grown.count)}
    if model.kind in HISTOGRAMS:
        pieces["started node"] = grown.nodes
    return {("serial", name): amount for name, amount in {"started": 1.0, **pieces}.items()}


def predicting(model: Tabular, rows: int, threads: int) -> Amounts:
    """The work of one call that predicts so many rows with so many threads."""
    got, out = model.settings, {("serial", "call"): 1.0}
    columns, outputs = got["columns"], max(1, got.get("classes", 0))
    if model.kind in (*FORESTS, *BOOSTED):
        grown = trees(model)
        visits = float(rows) * grown.count * grown.path
        cold = max(0.0, math.log2(max(1.0, 64 * grown.nodes / 2**20)))  # of MB of nodes, which no longer fit a cache
        if threads > 1 and model.kind not in ONE_THREAD:
            out |= {("serial", "started"): 1.0, ("serial", "started tree"): float(grown.count)}
        return out | {
            ("serial", "tree"): float(grown.count), ("serial", "node"): grown.nodes, ("parallel", "visit"): visits,
            ("parallel", "cold visit"): visits * cold, ("parallel", "output"): float(rows) * grown.count * outputs,
            ("serial", "row"): float(rows), ("stream", "table"): 4.0 * rows * columns,
        }  # fmt: skip
    if model.kind in LINEAR:
        return out | {("stream", "table"): 4.0 * rows * columns, ("serial", "output"): float(rows) * outputs}
    if model.kind == "knn":
        return out | _neighbors(model, rows) | ({("serial", "started"): 1.0} if threads > 1 else {})
    if model.kind == "svm":
        vectors = float((model.facts or {}).get("support_vectors", support_vectors(model)))
        each = rows * vectors
        return out | {("serial", "product"): each * columns, ("serial", "kernel"): each, ("serial", "row"): float(rows)}
    return out | {
        ("gemm", "product"): 2.0 * rows * weights(model), ("stream", "units"): 4.0 * rows * units(model),
        ("serial", "layer"): float(got["layers"] + 1), ("serial", "row"): float(rows) * outputs,
    }  # fmt: skip


def weights(model: Tabular) -> float:
    """Weights of an MLP or of a linear model."""
    got = model.settings
    outputs = got.get("classes", 0) if got.get("classes", 0) > 2 else 1
    if model.kind != "mlp":
        return float((got["columns"] + 1) * outputs)
    sizes = [got["columns"], *[got["width"]] * got["layers"], outputs]
    return float(sum(a * b + b for a, b in itertools.pairwise(sizes)))


def units(model: Tabular) -> float:
    return float(model.settings["width"] * model.settings["layers"] + max(1, model.settings.get("classes", 0)))


def support_vectors(model: Tabular) -> float:
    return model.settings["rows"] * _SUPPORT["classes" if model.settings.get("classes", 0) else "numbers"]


def parallel_items(model: Tabular) -> float:
    """How many pieces of a fit can run at once."""
    if model.kind in ONE_THREAD:
        return 1.0
    return float(model.settings["trees"]) if model.kind in FORESTS else math.inf


def model_bytes(model: Tabular) -> float:
    """Bytes of a fitted model."""
    got = model.settings
    classes, columns = got.get("classes", 0), got["columns"]
    if model.kind in (*FORESTS, *BOOSTED):
        values = 8 * max(1, classes) if model.kind in (*FORESTS, "gradient_boosting") else 0
        return (64 + values) * trees(model).nodes
    if model.kind == "knn":
        return 4.0 * got.get("rows", 0) * columns
    if model.kind == "svm":
        return 8.0 * float((model.facts or {}).get("support_vectors", support_vectors(model))) * columns
    return 4.0 * weights(model)


def bytes_of(model: Tabular, mode: str, rows: int) -> dict[str, float]:
    """Bytes of the arrays that a call adds to its process: its table, the model that a fit makes, and what it works on.
    A law learns the share of each."""
    got, fits = model.settings, mode == "training"
    columns, classes = got["columns"], got.get("classes", 0)
    count = got["rows"] if fits else rows
    out = {"table": 4.0 * count * columns, "label": 8.0 * count * max(1, classes)}
    if fits:
        out["model"] = model_bytes(model)
    if fits and model.kind in HISTOGRAMS:
        out["bins"] = float(count) * columns
        out["histograms"] = 16.0 * columns * got["bins"] * min(trees(model).leaves, 4096.0)
    elif model.kind == "knn" and not fits:
        out["distances"] = 8.0 * min(float(rows) * got["rows"], 2.0**24)
    elif model.kind == "svm" and fits:
        out["kernel"] = min(200 * 2.0**20, 4.0 * count**2)
    elif model.kind == "mlp":
        out["units"] = 4.0 * (_BATCH if fits else count) * units(model)
    return out


def least_bytes(model: Tabular, mode: str, rows: int) -> float:
    """What a call holds at the least: its table and, where an MLP is fitted, weights, gradients and two moments."""
    table = bytes_of(model, mode, rows)["table"]
    return table + (16.0 * weights(model) if mode == "training" and model.kind == "mlp" else 0.0)


def takes_threads(kind: str, mode: str) -> bool:
    """Whether more threads than one do the work that is counted as parallel."""
    return kind not in ONE_THREAD and not (mode == "training" and kind in STORED)


def _grown(model: Tabular) -> Amounts:
    """Trees that sort each candidate column at every node, or draw one threshold for it."""
    got, grown = model.settings, trees(model)
    n, classes = float(got["rows"]), got.get("classes", 0)
    tried = got["columns"]
    if model.kind != "decision_tree" and classes:
        tried = max(1, math.isqrt(tried))
    if model.kind == "extra_trees" and not classes:
        tried = got["columns"]
    visits = grown.count * n * grown.path
    sorting = max(1.0, math.log2(max(2.0, n)) - grown.path / 2)
    return {
        ("serial", "fit"): 1.0, ("serial", "tree"): float(grown.count), ("parallel", "node"): grown.nodes,
        ("parallel", "sorted"): visits * tried * (1.0 if model.kind == "extra_trees" else sorting),
        ("parallel", "tried"): visits * tried * (1 + max(1, classes) / 4),
        ("parallel", "node column"): grown.nodes * tried, ("parallel", "tree row"): grown.count * n,
        ("stream", "table"): 4 * n * got["columns"],
    }  # fmt: skip


def _boosted(model: Tabular) -> Amounts:
    got, grown = model.settings, trees(model)
    n, columns = float(got["rows"]), got["columns"]
    out = {
        ("serial", "fit"): 1.0, ("serial", "tree"): float(grown.count), ("parallel", "tree row"): grown.count * n,
        ("serial", "node"): grown.nodes, ("stream", "table"): 4 * n * columns,
    }  # fmt: skip
    visits = grown.count * n * grown.path * columns
    if model.kind == "gradient_boosting":
        sorting = max(1.0, math.log2(max(2.0, n)) - grown.path / 2)
        return out | {("serial", "sorted"): visits * sorting, ("serial", "tried"): visits}
    bins = float(min(got["bins"], n))
    return out | {
        ("parallel", "binned"): n * columns * math.log2(max(2.0, bins)), ("parallel", "summed"): visits,
        ("parallel", "moved"): grown.count * n * grown.path, ("parallel", "split"): grown.nodes * columns * bins,
        ("serial", "node column"): grown.nodes * columns, ("serial", "column"): float(columns),
    }  # fmt: skip


def _solved(model: Tabular) -> Amounts:
    got = model.settings
    n, d, classes = float(got["rows"]), float(got["columns"]), got.get("classes", 0)
    out = {("serial", "fit"): 1.0, ("stream", "table"): 4 * n * d, ("serial", "row"): n}
    if model.kind == "logistic_regression":
        steps = float((model.facts or {}).get("iterations", min(got["iterations"], _CONVERGED)))
        outputs = classes if classes > 2 else 1
        return out | {
            ("stream", "steps"): 8 * n * d * steps, ("gemm", "steps"): 4 * n * d * outputs * steps,
            ("serial", "losses"): n * outputs * steps, ("serial", "step"): steps,
        }  # fmt: skip
    return out | {("gemm", "squares"): 2 * n * d * d, ("serial", "solved"): d**3, ("serial", "columns"): d * d}


def _stored(model: Tabular) -> Amounts:
    n, d = float(model.settings["rows"]), model.settings["columns"]
    out = {("serial", "fit"): 1.0, ("stream", "table"): 4 * n * d, ("serial", "row"): n}
    return out | ({("serial", "sorted"): n * math.log2(n) * d} if d <= TREE_COLUMNS else {})


def _neighbors(model: Tabular, rows: int) -> Amounts:
    got = model.settings
    n, d, wanted = float(got["rows"]), got["columns"], got["neighbors"]
    each = {("serial", "row"): float(rows), ("serial", "found"): float(rows) * wanted}
    if d > TREE_COLUMNS:
        product = 2.0 * rows * n * d
        return each | {
            ("gemm", "distances"): product,
            ("parallel", "compared"): rows * n,
            ("stream", "table"): 4 * n * d,
        }
    # A leaf has 30 rows; every further column doubles the leaves that may hold a nearer one.
    seen = min(n, (30 + wanted) * 2.0 ** (0.9 * d))
    return each | {("parallel", "seen"): rows * seen * d, ("parallel", "looked"): rows * seen,
                   ("parallel", "descended"): rows * math.log2(n) * d}  # fmt: skip


def _separated(model: Tabular) -> Amounts:
    """libsvm's pairs of rows: of classes one against one, of numbers with two variables a row."""
    got = model.settings
    n, d, classes = float(got["rows"]), got["columns"], got.get("classes", 0)
    pairs = 2 * n**2 * (classes - 1) / classes if classes else 2 * n**2
    return {
        ("serial", "fit"): 1.0, ("serial", "row"): n, ("serial", "product"): pairs * d, ("serial", "kernel"): pairs,
        ("serial", "uncached"): pairs * math.log2(max(2.0, n / 5000)) * (n > 5000),
    }  # fmt: skip


def _stepped(model: Tabular) -> Amounts:
    got = model.settings
    n, epochs = float(got["rows"]), float((model.facts or {}).get("iterations", got["epochs"]))
    steps = epochs * math.ceil(n / _BATCH)
    return {
        ("serial", "fit"): 1.0, ("gemm", "product"): 6 * n * weights(model) * epochs, ("serial", "step"): steps,
        ("serial", "step layer"): steps * (got["layers"] + 1), ("serial", "step weight"): steps * weights(model),
        ("stream", "units"): 4 * n * units(model) * epochs, ("serial", "row"): n * epochs,
    }  # fmt: skip
