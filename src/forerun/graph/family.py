"""Graphs of one structure, their sizes a function of settings: thousands of architectures from a handful of captures.

Where members of a family differ only in sizes (widths, heads, batch), every dimension of every tensor is a sum of
products of at most two settings. A capture at the least values, one for each setting and one for each pair at its
largest determine the coefficients; further captured members must agree, or there is no such law.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.graph.cost import Number, Shapes
from forerun.graph.ir import DTYPE_BYTES, Graph, Op, stable_attrs
from forerun.graph.profile import kernel_class, kernels
from forerun.graph.variants import variant_index

Capture = Callable[[Mapping[str, int]], Graph]


class MemberShapes(Shapes):
    """Tensor sizes of many members of a family at once."""

    def __init__(self, graph: Graph, varying: Mapping[int, list[Number]], owners: Mapping[int, int]) -> None:
        super().__init__(graph)
        self._numbers = None  # a number of each member: too much to keep of every tensor
        self.varying, self.owners = varying, owners

    def dims(self, tensor: int) -> list[Number]:
        return self.varying.get(tensor) or list(self.graph.tensors[tensor].shape)

    def bytes(self, tensor: int) -> Number:
        t = self.graph.tensors[tensor]
        if not self.graph.storages[t.storage].bytes:  # never leaves the chip
            return 0
        size = self.numel(tensor) * DTYPE_BYTES[t.dtype]
        owner = self.owners.get(t.storage, tensor)  # an expanded view holds no more than its storage does
        if owner == tensor:
            return size
        return np.minimum(size, self.numel(owner) * DTYPE_BYTES[self.graph.tensors[owner].dtype])


@dataclass(frozen=True)
class Family:
    """One structure, and the law of its sizes."""

    graph: Graph  # the member at the least values
    names: tuple[str, ...]  # of the settings
    places: tuple[tuple[int, int], ...]  # (tensor, axis) of the sizes that vary
    coefficients: np.ndarray  # [places, products of settings]
    owners: Mapping[int, int]  # storage -> the tensor that fills it

    def sizes(self, settings: np.ndarray) -> np.ndarray:
        """[places, members] at settings [members, names]."""
        return self.coefficients @ _products(settings).T

    def shapes(self, settings: np.ndarray) -> MemberShapes:
        """Sizes of all members at settings [members, names]."""
        varying: dict[int, list[Number]] = {}
        for (tensor, axis), size in zip(self.places, self.sizes(settings), strict=True):
            varying.setdefault(tensor, list(self.graph.tensors[tensor].shape))[axis] = np.rint(size)
        return MemberShapes(self.graph, varying, self.owners)

    def agrees(self, graph: Graph, settings: Sequence[int]) -> bool:
        """Whether a captured member has the sizes that the law predicts."""
        if not same_structure(self.graph, graph):
            return False
        predicted = self.sizes(np.array([settings], dtype=float))[:, 0]
        at = dict(zip(self.places, predicted, strict=True))
        return all(
            abs(at.get((i, axis), n) - size) < 0.01
            for i, (tensor, other) in enumerate(zip(self.graph.tensors, graph.tensors, strict=True))
            for axis, (n, size) in enumerate(zip(tensor.shape, other.shape, strict=True))
        )


def learn(capture: Capture, ranges: Mapping[str, tuple[int, int]]) -> Family | None:
    """The law over settings between their least and largest values; None where members differ in structure."""
    names = tuple(ranges)
    least = {name: low for name, (low, _) in ranges.items()}
    moved = [*((name,) for name in names), *itertools.combinations(names, 2)]
    points = [least, *({**least, **{name: ranges[name][1] for name in raised}} for raised in moved)]
    graphs = [capture(point) for point in points]
    if not all(same_structure(graphs[0], g) for g in graphs[1:]):
        return None
    shapes = np.array([[n for t in g.tensors for n in t.shape] for g in graphs], dtype=float)  # [points, sizes]
    places = [(i, axis) for i, t in enumerate(graphs[0].tensors) for axis in range(len(t.shape))]
    varying = np.flatnonzero((shapes != shapes[0]).any(axis=0))
    settings = np.array([[point[name] for name in names] for point in points], dtype=float)
    coefficients = np.linalg.solve(_products(settings), shapes[:, varying]).T
    return Family(graphs[0], names, tuple(places[i] for i in varying), coefficients, _owners(graphs[0]))


def same_structure(a: Graph, b: Graph) -> bool:
    """Whether two graphs are the same but for sizes, and run the same kernels."""
    if len(a.ops) != len(b.ops) or len(a.tensors) != len(b.tensors):
        return False
    for x, y in zip(a.ops, b.ops, strict=True):
        if _kernel(x, a) != _kernel(y, b):
            return False
        if (x.kind, x.inputs, x.outputs, x.phase, x.repeat) != (y.kind, y.inputs, y.outputs, y.phase, y.repeat):
            return False
        if x.attrs != y.attrs and stable_attrs(x.attrs) != stable_attrs(y.attrs):
            return False
    return all(
        len(t.shape) == len(u.shape) and (t.dtype, t.storage) == (u.dtype, u.storage)
        for t, u in zip(a.tensors, b.tensors, strict=True)
    )


def _kernel(op: Op, graph: Graph) -> tuple[str, int, int]:
    """What decides how an op runs beside its sizes, and may change with them: one pixel, one channel, one row."""
    return kernel_class(op, graph), variant_index(op, graph), kernels(op, graph)


def _products(settings: np.ndarray) -> np.ndarray:
    """[members, 1 + settings + pairs]: one, every setting, every product of two."""
    pairs = itertools.combinations(range(settings.shape[1]), 2)
    return np.column_stack([np.ones(len(settings)), settings, *(settings[:, i] * settings[:, j] for i, j in pairs)])


def _owners(graph: Graph) -> dict[int, int]:
    """For every storage, a tensor as large as it."""
    shapes = Shapes(graph)
    out: dict[int, int] = {}
    for i, t in enumerate(graph.tensors):
        if t.storage not in out and shapes.numel(i) * DTYPE_BYTES[t.dtype] >= graph.storages[t.storage].bytes:
            out[t.storage] = i
    return out
