"""A graph as columns of numbers: what every op costs at one or many batch sizes, ready for vectorised prediction."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np

from forerun.graph.cost import Shapes, cost
from forerun.graph.features import dims
from forerun.graph.ir import Graph, Op, Tensor
from forerun.graph.kinds import COLLECTIVES, CONTRACTIONS, KINDS
from forerun.graph.variants import VARIANTS, rnn_persists, sorts_indices, variant_index

#: Kernel classes: ops that reach a similar share of what the hardware allows.
CLASSES = (
    "matmul", "batched_matmul", "expert_matmul", "conv", "conv_pointwise", "conv_depthwise", "conv_grouped",
    "conv_backward", "conv_depthwise_backward", "attention", "attention_backward", "rnn", "norm", "norm_backward",
    "softmax", "elementwise", "copy", "fill", "reduce", "pool", "resize", "gather", "scatter", "embedding", "sort",
    "optimizer", "fft", "unknown",
)  # fmt: skip
#: The class of every kind; convolutions and matmuls are split further by their shapes: see `kernel_class`.
CLASS_OF_KIND = {
    **{c: c for c in CLASSES if c in KINDS},
    "softmax_backward": "softmax", "pool_backward": "pool", "embedding_backward": "scatter", "random": "fill",
    "moe_matmul": "expert_matmul", "moe_matmul_backward": "expert_matmul", "rnn_backward": "rnn",
    **dict.fromkeys(COLLECTIVES, "copy"),
}  # fmt: skip

_LAUNCHING = [CLASSES.index(c) for c in ("rnn", "sort", "scatter")]

#: How many things are kept of what was worked out of one profile (`Profile.once`).
_KEPT = 32
T = TypeVar("T")

#: Units that do the arithmetic. "vector" stands for the plain fp32 lanes that elementwise work runs on.
UNITS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "vector", "int8")


def kernel_class(op: Op, graph: Graph) -> str:
    """The class of kernel an op will hit."""
    if op.kind in ("conv", "conv_backward"):
        backward = op.kind == "conv_backward"
        if graph.depthwise(op):
            return "conv_depthwise_backward" if backward else "conv_depthwise"
        if op.attrs.get("groups", 1) > 1:
            return "conv_grouped"
        if backward:
            return "conv_backward"
        return "conv_pointwise" if all(k == 1 for k in graph.conv_weight(op).shape[2:]) else "conv"
    if op.kind == "matmul" and not op.attrs.get("shared_b"):
        return "batched_matmul"
    return CLASS_OF_KIND[op.kind]


def unit(op: Op, graph: Graph, dtype: str) -> str:
    """Which units do the arithmetic of an op under a workload's dtype setting (see workload.DTYPES)."""
    if op.kind not in CONTRACTIONS or not op.inputs or graph.depthwise(op):  # no matrix unit does depthwise work
        return "vector"
    if "unit" in op.attrs:  # where it is not that of the first input: matmuls of 8-bit numbers
        return str(op.attrs["unit"])
    input_dtype = graph.tensors[op.inputs[0]].dtype
    if input_dtype in ("fp16", "bf16", "fp64", "fp8"):
        return input_dtype
    if input_dtype in ("int8", "uint8"):
        return "fp16"
    convolution = op.kind in ("conv", "conv_backward", "rnn", "rnn_backward")
    return "tf32" if dtype == "tf32" or (dtype == "fp32" and convolution) else "fp32"


@dataclass(frozen=True)
class Profile:
    """Columns over ops; `flops` and `bytes` have one further axis, the batch sizes."""

    graph: Graph
    batches: np.ndarray  # [B]
    flops: np.ndarray  # [ops, B], of one launch
    bytes: np.ndarray  # [ops, B]
    macs: np.ndarray  # [ops, B]
    classes: np.ndarray  # [ops], index into CLASSES
    units: np.ndarray  # [ops], index into UNITS
    repeat: np.ndarray  # [ops]
    kernels: np.ndarray  # [ops], device launches of one call of the op
    variants: np.ndarray  # [ops], index into features.VARIANTS
    sizes: np.ndarray  # [ops, B, features.DIMS]
    of_members: bool = False  # the further axis is members of a family, not batch sizes of the graph

    @functools.cached_property
    def distinct_ops(self) -> tuple[np.ndarray, np.ndarray]:
        """Representatives of ops that are equal in all columns (their indices), and how often each runs in a call."""
        columns = np.column_stack([
            self.classes, self.units, self.variants, self.kernels, self.flops, self.bytes,
            self.sizes.reshape(len(self.classes), int(np.prod(self.sizes.shape[1:]))),
        ])  # fmt: skip
        # Rows are few, and may have thousands of columns: numpy's unique along an axis takes most of a prediction.
        places: dict[bytes, int] = {}
        same = [places.setdefault(row.tobytes(), len(places)) for row in columns + 0.0]  # -0.0 is 0.0
        first = [same.index(place) for place in range(len(places))]
        order = sorted(range(len(first)), key=lambda place: columns[first[place]].tolist())
        ranks = np.argsort(np.array(order, dtype=int))
        return np.array(first, dtype=int)[order], np.bincount(ranks[same], self.repeat, minlength=len(first))

    @functools.cached_property
    def distinct(self) -> Profile:
        """The columns of the representatives alone."""
        return self.only(self.distinct_ops[0])

    def once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What `make` returns of these columns, worked out once; of many keys the latest are kept."""
        if key not in self._made:
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[key] = make()
        value: T = self._made[key]
        return value

    @functools.cached_property
    def _made(self) -> dict[tuple[Any, ...], Any]:
        return {}

    @functools.cached_property
    def kinds(self) -> frozenset[tuple[int, int]]:
        """Which (class, variant) there are."""
        return frozenset(zip(self.classes.tolist(), self.variants.tolist(), strict=True))

    @functools.cached_property
    def units_used(self) -> tuple[int, ...]:
        return tuple(np.unique(self.units).tolist())

    @functools.cached_property
    def work(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a whole call: floating-point operations [UNITS, batch sizes] by what does them, and bytes moved."""
        flops = np.zeros((len(UNITS), len(self.batches)))
        np.add.at(flops, self.units, self.flops * self.repeat[:, None])
        return flops, self.repeat @ self.bytes

    @functools.cached_property
    def biases(self) -> np.ndarray:
        """Which ops add a convolution's bias, which a CPU does within the convolution."""
        return self.variants == VARIANTS.index("elementwise:bias")

    @functools.cached_property
    def inner_launches(self) -> float:
        """Kernels of a call that libraries launch one by one within an op, beside the first: steps of recurrent layers,
        sorts."""
        within = np.isin(self.classes, _LAUNCHING)
        return float((self.repeat * (self.kernels - 1))[within].sum())

    def only(self, chosen: np.ndarray) -> Profile:
        """The columns of some of the ops; the graph stays whole."""
        per_op = ("flops", "bytes", "macs", "classes", "units", "repeat", "kernels", "variants", "sizes")
        return replace(self, **{name: getattr(self, name)[chosen] for name in per_op})


def profile(
    graph: Graph, dtype: str, batches: np.ndarray | None = None, shapes: Shapes | None = None
) -> Profile:  # fmt: skip
    """The columns of a graph at its own batch size, or at each of `batches` (the graph must scale), or for as many
    members of a family as `batches` counts, with the sizes that `shapes` gives."""
    columns = np.array([graph.batch]) if batches is None else np.asarray(batches)
    of_members = shapes is not None
    shapes = shapes or Shapes(graph, None if batches is None else columns)
    n = len(graph.ops)
    flops, moved, macs = (np.empty((n, len(columns))) for _ in range(3))
    for i, op in enumerate(graph.ops):
        c = cost(op, shapes)
        flops[i], moved[i], macs[i] = c.flops, c.read + c.written, c.macs
    class_index = {c: i for i, c in enumerate(CLASSES)}
    return Profile(
        graph, columns, flops, moved, macs,
        classes=np.array([class_index[kernel_class(op, graph)] for op in graph.ops], dtype=int),
        units=_units(graph, dtype),
        repeat=np.array([op.repeat for op in graph.ops], dtype=float),
        kernels=np.array([kernels(op, graph) for op in graph.ops], dtype=float),
        variants=np.array([variant_index(op, graph) for op in graph.ops], dtype=int),
        sizes=dims(graph, shapes, len(columns)), of_members=of_members,
    )  # fmt: skip


def in_dtype(columns: Profile, dtype: str) -> Profile:
    """The columns under another dtype of the same graph: other units do its matmuls, all else is the same."""
    return replace(columns, units=_units(columns.graph, dtype))


def _units(graph: Graph, dtype: str) -> np.ndarray:
    index = {u: i for i, u in enumerate(UNITS)}
    return np.array([index[unit(op, graph, dtype)] for op in graph.ops], dtype=int)


#: Elements that one block of a foreach launch takes, and blocks and tensors that one launch can hold.
_CHUNK, _BLOCKS, _TENSORS = 65536, 320, (110, 64, 48, 36, 30)


#: Kernels of each layer and direction of a recurrent network whose steps run in one kernel, with its matmuls.
_PERSISTENT_RNN = 3
#: Kernels of a gradient of embeddings that sorts its indices: of bags with few that one block sorts, and else.
_FEW_INDICES, _FEW_SORTED, _SORTED_INDICES = 4096, 13, 20
#: Kernels of indexed writes that add up, as the gradient of x[index] does: with few enough indices that one block
#: sorts them, and with more.
_ONE_BLOCK_SORTS, _ADDED_BY_ONE, _ADDED_BY_MANY = 2048, 6, 9
#: Kernels of attention that stores its scores (casts, two matmuls, a softmax), and of statistics over the batch in
#: generated code (two steps of sums, then what is done with them).
_STORED_SCORES, _GENERATED_STATISTICS = 6, 3


def kernels(op: Op, graph: Graph) -> int:
    """How many kernels one call of the op puts on the device."""
    if op.kind == "conv" and op.attrs.get("groups", 1) > 1:
        return _one_by_one(op, graph.conv_weight(op))
    if op.kind == "conv_backward":
        return sum(map(bool, op.attrs.get("wants", (True, True, False))))
    if op.kind == "attention_backward":
        return 3
    if op.attrs.get("stored_scores"):
        return _STORED_SCORES
    if op.attrs.get("generated"):
        return _GENERATED_STATISTICS if _over_batch(op) else 1
    if op.kind == "norm_backward":
        return 2
    if op.kind == "optimizer":
        tensors = op.attrs.get("tensors", 1)
        chunks = op.attrs["bytes_written"] / 4 / _CHUNK
        per_launch = _TENSORS[min(op.attrs.get("lists", 1), len(_TENSORS)) - 1]
        return int(max(-(-tensors // per_launch), -(-chunks // _BLOCKS), 1))
    if op.kind == "sort":
        return 4
    if op.kind == "embedding_backward" and sorts_indices(op, graph):
        fits = len(op.inputs) > 1 and math.prod(graph.tensors[op.inputs[1]].shape) <= _FEW_INDICES
        return _FEW_SORTED if fits else _SORTED_INDICES
    if op.kind == "scatter" and op.attrs.get("accumulate"):
        broadcast = zip_longest(*(reversed(graph.tensors[t].shape) for t in op.inputs[1:-1]), fillvalue=1)
        return _ADDED_BY_ONE if math.prod(map(max, broadcast)) <= _ONE_BLOCK_SORTS else _ADDED_BY_MANY
    if op.kind in ("rnn", "rnn_backward"):
        stacked = int(op.attrs["layers"]) * int(op.attrs["directions"])
        if rnn_persists(op, graph):
            return _PERSISTENT_RNN * stacked
        # A matmul and a kernel for the cells; with a projection its matmul, or two for its gradients.
        each = 2 + ((2 if op.kind == "rnn_backward" else 1) if op.attrs.get("proj") else 0)
        return each * stacked * int(op.attrs["steps"])
    return 1


def _over_batch(op: Op) -> bool:
    """Whether an op needs statistics over the whole batch."""
    training = op.kind == "norm_backward" or (op.kind == "norm" and bool(op.attrs.get("training")))
    return training and op.attrs.get("type") == "batch"


def _one_by_one(op: Op, weight: Tensor) -> int:
    """In half precision cuDNN runs pointwise convolutions in groups one group after another; with channels last also
    depthwise ones with a stride and more output than input channels."""
    groups = int(op.attrs["groups"])
    pointwise = weight.shape[1] > 1 and all(k == 1 for k in weight.shape[2:])
    several = weight.shape[1] == 1 and weight.shape[0] > groups and max(op.attrs.get("stride") or [1]) > 1
    alone = pointwise or (several and bool(op.attrs.get("strided")))
    return groups if alone and weight.dtype in ("fp16", "bf16") else 1
