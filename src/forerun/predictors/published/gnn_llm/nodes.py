"""The features of a node, of length 44: which operator (32), its attributes (6), the shape of its output (6)."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from forerun.errors import ForerunError
from forerun.graph.profile import CLASSES
from forerun.predictors.published.gnn.arrays import ATTRIBUTES, DIMENSIONS, GraphArrays

#: Kernel classes, and elementwise ops by what they do.
ELEMENTWISE = ("activation", "add", "multiply", "cast")
OPERATORS = (*CLASSES, *ELEMENTWISE)
FEATURES = len(OPERATORS) + len(ATTRIBUTES) + DIMENSIONS  # 32 + 6 + 6
#: Logarithms of shapes are divided by this, so that they are of a size with the ones of operators.
SCALE = 4.0
_ACTIVATIONS = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "elu", "prelu", "softplus", "mish", "swish",
)  # fmt: skip
_NAMED = {"add": ("add", "sub"), "multiply": ("mul", "div"), "cast": ("_to_copy", "cast")}
MAX_UNPACKED = 2**30


@dataclass(frozen=True)
class Nodes:
    """A graph as a network reads it."""

    operators: np.ndarray  # [ops] index into OPERATORS
    numbers: np.ndarray  # [ops, attributes and shape] plain
    repeat: np.ndarray  # [ops] how often each runs
    edges: np.ndarray  # [2, edges]

    @property
    def features(self) -> np.ndarray:
        """[ops, FEATURES]"""
        kinds = np.eye(len(OPERATORS), dtype=np.float32)[self.operators]
        return np.hstack([kinds, np.log1p(self.numbers).astype(np.float32) / SCALE])


def of(graph: GraphArrays) -> Nodes:
    """The nodes of a graph."""
    known = {name: _operator(name) for name in np.unique(graph.names).tolist()}
    elementwise = CLASSES.index("elementwise")
    operators = np.array([
        known[name] or int(kind) if kind == elementwise else int(kind)
        for name, kind in zip(graph.names.tolist(), graph.classes.tolist(), strict=True)
    ], dtype=np.uint8)  # fmt: skip
    numbers = np.hstack([graph.attributes, graph.outputs]).astype(np.float32)
    return Nodes(operators, numbers, graph.repeat.astype(np.float32), graph.edges.astype(np.int64))


def _operator(name: str) -> int:
    """The operator of an elementwise op's name; 0 for any other, which is no elementwise one."""
    plain = name.rpartition("::")[2].partition(".")[0].strip("_").lower()
    if plain in _ACTIVATIONS or plain.removesuffix("_backward") in _ACTIVATIONS:
        return OPERATORS.index("activation")
    found = next((kind for kind, names in _NAMED.items() if plain in names or name.endswith(names)), None)
    return 0 if found is None else OPERATORS.index(found)


def write(path: Path, graphs: Sequence[Nodes]) -> None:
    """Many graphs as one compressed file; graphs of one network at several batch sizes cost next to nothing more."""
    columns = {
        "operators": np.concatenate([g.operators for g in graphs]).astype(np.uint8),
        "numbers": np.concatenate([g.numbers for g in graphs]).astype(np.float32),
        "repeat": np.concatenate([g.repeat for g in graphs]).astype(np.float32),
        "edges": np.concatenate([_apart(g.edges) for g in graphs], axis=1).astype(np.int32),
        "op_counts": np.array([len(g.operators) for g in graphs], dtype=np.int32),
        "edge_counts": np.array([g.edges.shape[1] for g in graphs], dtype=np.int32),
    }
    packed = BytesIO()
    np.savez(packed, allow_pickle=False, **columns)  # type: ignore[arg-type]
    path.write_bytes(lzma.compress(packed.getvalue(), preset=6))


def read(path: Path) -> list[Nodes]:
    """What `write` wrote."""
    try:
        unpacked = lzma.LZMADecompressor().decompress(path.read_bytes(), MAX_UNPACKED)
        with np.load(BytesIO(unpacked), allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
        ops, edges = (np.cumsum(found[name])[:-1] for name in ("op_counts", "edge_counts"))
        parts = (np.split(found[name], ops) for name in ("operators", "numbers", "repeat"))
        pairs = (_joined(each) for each in np.split(found["edges"], edges, axis=1))
        return [Nodes(*line) for line in zip(*parts, pairs, strict=True)]
    except (OSError, ValueError, KeyError, EOFError, lzma.LZMAError) as error:
        raise ForerunError(f"{path} holds no graphs: {error}") from error


def _apart(edges: np.ndarray) -> np.ndarray:
    """Producers by how far before their consumers they are, consumers by how far after the consumer before."""
    order = np.argsort(edges[1], kind="stable")
    producer, consumer = edges[:, order]
    return np.stack([consumer - producer, np.diff(consumer, prepend=0)])


def _joined(apart: np.ndarray) -> np.ndarray:
    consumer = np.cumsum(apart[1].astype(np.int64))
    return np.stack([consumer - apart[0], consumer])
