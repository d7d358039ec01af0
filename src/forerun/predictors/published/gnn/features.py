"""Node features of graph networks, as two papers chose them, from the arrays of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from forerun.graph.profile import CLASSES
from forerun.predictors.published.gnn.arrays import ATTRIBUTES, DIMENSIONS, STATIC, GraphArrays

#: The operators that the 32 features distinguish; the last stands for all others.
OPERATORS = (
    "matmul", "batched_matmul", "expert_matmul", "conv", "conv_pointwise", "conv_depthwise", "conv_grouped",
    "attention", "rnn", "norm", "softmax", "elementwise", "copy", "fill", "reduce", "pool", "resize", "gather",
    "embedding", "other",
)  # fmt: skip
_OPERATOR_OF_CLASS = np.array([OPERATORS.index(c) if c in OPERATORS else len(OPERATORS) - 1 for c in CLASSES])
SHORT = len(OPERATORS) + len(ATTRIBUTES) + DIMENSIONS  # 32
#: How many names of operators the long features distinguish, the last for all others.
VOCABULARY = 98
LONG = VOCABULARY + 2 * DIMENSIONS + 3  # 113

SHORT_STATIC = ("macs", "batch", "convolutions", "linears", "relus")
LONG_STATIC = ("batch", "nodes", "edges", "macs", "parameters", "bytes")


def short_features(graph: GraphArrays) -> np.ndarray:
    """[ops, 32]: which operator, its attributes, the shape of its output."""
    kinds = np.eye(len(OPERATORS), dtype=np.float32)[_OPERATOR_OF_CLASS[graph.classes]]
    return np.hstack([kinds, np.log1p(graph.attributes), np.log1p(graph.outputs)])


def vocabulary(graphs: Sequence[GraphArrays]) -> list[str]:
    """The names of operators that most graphs have, one place left for all others."""
    count = Counter(name for graph in graphs for name in np.unique(graph.names).tolist())
    return sorted(name for name, _ in sorted(count.items(), key=lambda item: (-item[1], item[0]))[: VOCABULARY - 1])


def long_features(graph: GraphArrays, names: Sequence[str]) -> np.ndarray:
    """[ops, 113]: which operator by its name, the shapes of input and output, MACs, parameters, bytes."""
    place = {name: i for i, name in enumerate(names)}
    chosen = [place.get(name, VOCABULARY - 1) for name in graph.names.tolist()]
    kinds = np.eye(VOCABULARY, dtype=np.float32)[chosen].reshape(len(chosen), VOCABULARY)
    work = np.column_stack([graph.macs, graph.parameters, graph.bytes])
    return np.hstack([kinds, np.log1p(graph.inputs), np.log1p(graph.outputs), np.log1p(work)]).astype(np.float32)


def static_vector(graph: GraphArrays, names: Sequence[str]) -> np.ndarray:
    """Numbers of the whole call, and of the device where the graph has these, as logarithms."""
    call = graph.static[[STATIC.index(name) for name in names]]
    return np.log1p(call if graph.hardware is None else np.append(call, graph.hardware)).astype(np.float32)
