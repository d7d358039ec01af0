"""FLOPs and bytes of every kind of op: one formula each, and none of them anywhere else.

A multiply-accumulate is one MAC and two FLOPs. Bytes are what must cross the memory bus once: inputs that are read and
outputs that are written; what a fused kernel keeps on chip does not count. Every formula works on plain numbers and on
arrays (one entry per batch size), so a whole column of batch sizes costs one evaluation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.graph import op_names
from forerun.graph.ir import DTYPE_BYTES, Graph, Op
from forerun.graph.kinds import COLLECTIVES

Number = Any  # int, float, or an array with one entry per batch size


@dataclass(slots=True)
class Cost:
    """The FLOPs and bytes of one launch of an op."""

    macs: Number = 0  # multiply-accumulates of contractions: matmul, convolution, attention
    flops: Number = 0  # 2 * macs, plus what elementwise work adds
    read: Number = 0  # bytes
    written: Number = 0  # bytes


def _product(sizes: list[Number]) -> Number:
    n: Number = 1
    for size in sizes:
        n = n * size
    return n


class Shapes:
    """Tensor sizes of a graph at one batch size or at a column of them."""

    def __init__(self, graph: Graph, batches: np.ndarray | int | None = None) -> None:
        self.graph = graph
        self.step: Any = 0 if batches is None else batches - graph.batch
        #: At one batch size, the numbers and bytes of tensors that were asked for: several ops share most of them.
        self._numbers: dict[int, Number] | None = {} if np.isscalar(self.step) else None
        self._bytes: dict[int, Number] = {}

    def dims(self, tensor: int) -> list[Number]:
        t = self.graph.tensors[tensor]
        if t.per_sample is None or (np.isscalar(self.step) and self.step == 0):
            return list(t.shape)
        return [d + s * self.step if s else d for d, s in zip(t.shape, t.per_sample, strict=True)]

    def numel(self, tensor: int) -> Number:
        if self._numbers is None:
            return _product(self.dims(tensor))
        if tensor not in self._numbers:
            self._numbers[tensor] = _product(self.dims(tensor))
        return self._numbers[tensor]

    def bytes(self, tensor: int) -> Number:
        """Bytes behind a tensor: an expanded view (one row seen as many) holds no more than its storage does."""
        if tensor in self._bytes:
            return self._bytes[tensor]
        t = self.graph.tensors[tensor]
        held = self.graph.storages[t.storage].grown(self.step)
        if self._numbers is None:
            return np.minimum(self.numel(tensor) * DTYPE_BYTES[t.dtype], held)
        self._bytes[tensor] = min(self.numel(tensor) * DTYPE_BYTES[t.dtype], held)
        return self._bytes[tensor]


def cost(op: Op, shapes: Shapes) -> Cost:
    """The cost of one launch of `op` (multiply by `op.repeat` for all the blocks it stands for)."""
    return LAWS[op.kind](op, shapes)


def _all_bytes(op: Op, s: Shapes) -> Cost:
    return Cost(read=sum(s.bytes(t) for t in op.inputs), written=sum(s.bytes(t) for t in op.outputs))


def _contraction(op: Op, s: Shapes, macs: Number, read: Number | None = None) -> Cost:
    c = _all_bytes(op, s)
    return Cost(macs, 2 * macs, c.read if read is None else read, c.written)


def _per_output(flops: int) -> Callable[[Op, Shapes], Cost]:
    def law(op: Op, s: Shapes) -> Cost:
        c = _all_bytes(op, s)
        if op.outputs:
            c.flops = s.numel(op.outputs[0]) * op.attrs.get("flops", flops)
        return c

    return law


def _per_input(flops: int) -> Callable[[Op, Shapes], Cost]:
    def law(op: Op, s: Shapes) -> Cost:
        c = _all_bytes(op, s)
        if op.inputs:
            c.flops = s.numel(op.inputs[0]) * op.attrs.get("flops", flops)
        return c

    return law


def _conv_macs(op: Op, s: Shapes, x: int, w: int, y: int) -> Number:
    # Each output element sums over Cin/groups * prod(kernel) products: the weight's dims after the first.
    # Transposed: each *input* element is spread over Cout/groups * prod(kernel) outputs; the same dims again.
    return s.numel(x if op.attrs.get("transposed") else y) * _product(s.dims(w)[1:])


def _conv(op: Op, s: Shapes) -> Cost:
    return _contraction(op, s, _conv_macs(op, s, op.inputs[0], op.inputs[1], op.outputs[0]))


def _conv_backward(op: Op, s: Shapes) -> Cost:
    # Gradients by input and by weight each cost as much as the forward pass; by bias, a sum over gy.
    gy, x, w = op.inputs[:3]
    wants = op.attrs.get("wants", [True, True, True])
    one = _conv_macs(op, s, x, w, gy)
    c = _contraction(op, s, one * (bool(wants[0]) + bool(wants[1])))
    # Two kernels: each reads gy again.
    c.read = c.read + (s.bytes(gy) if wants[0] and wants[1] else 0)
    return c


def _matmul(op: Op, s: Shapes) -> Cost:
    # y[..., M, N] sums over K: the last dim of a.
    k = s.dims(op.inputs[0])[-1]
    macs = s.numel(op.outputs[0]) * k
    unpacks, rest = op.attrs.get("unpacks"), sum(s.bytes(t) for t in op.inputs if t != op.inputs[1])
    if s.graph.tensors[op.inputs[1]].dtype != "int4" or unpacks == "as_read":
        return _contraction(op, s, macs)
    if unpacks:
        # bitsandbytes' kernel for few rows unpacks 2.1 T weights a second on an H200: as fast as half-precision ones
        # are read (2 bytes * 2.1 T/s = 4.2 TB/s).
        return _contraction(op, s, macs, rest + 2 * s.numel(op.inputs[1]))
    # PyTorch's kernel for 4-bit weights takes 16 rows at a time and reads all weights for each of them.
    passes = np.ceil(s.numel(op.inputs[0]) / np.maximum(k, 1) / 16)
    return _contraction(op, s, macs, rest + passes * s.bytes(op.inputs[1]))


def experts_hit(experts: int, rows: Number) -> Number:
    """How many of `experts` get at least one of `rows` (tokens * top_k) under uniform routing."""
    # An expert is missed by one row with probability 1 - 1/E, by all of them with (1 - 1/E)^rows.
    return experts * (1 - (1 - 1 / experts) ** np.asarray(rows, dtype=float))


def _moe_matmul(op: Op, s: Shapes) -> Cost:
    # Rows meet one expert each; only the weights of experts that are hit are read.
    x, w = op.inputs[:2]
    rows, k = s.dims(x)[0], s.dims(x)[-1]
    experts = op.attrs["experts"]
    hit = experts_hit(experts, rows)
    macs = s.numel(op.outputs[0]) * k
    rest = sum(s.bytes(t) for t in op.inputs if t != w)
    return _contraction(op, s, macs, rest + s.bytes(w) * hit / experts)


def _moe_matmul_backward(op: Op, s: Shapes) -> Cost:
    # Every row adds an outer product of K * N to its expert's gradient.
    x, gy = op.inputs[:2]
    macs = s.numel(x) * s.dims(gy)[-1]
    return _contraction(op, s, macs, s.bytes(x) + s.bytes(gy))


def visible_scores(queries: Number, keys: Number, attrs: dict[str, Any]) -> Number:
    """The number of scores of a queries x keys matrix that are computed under causal masks and sliding windows."""
    window = attrs.get("window") or np.inf
    if not attrs.get("causal"):
        return queries * np.minimum(keys, window)
    # Query i sees the keys before `end`, and of these the last `window`: end is i + 1 as SDPA aligns the mask, and
    # where a cache holds the keys before the first query, later by their number. Neither lies outside 0 ... keys.
    before = keys - queries if attrs.get("cached") else 0

    def summed(last: Number) -> Number:  # min(max(end, 0), keys) over every end up to `last`
        inside = np.clip(last, 0, keys)
        return inside * (inside + 1) / 2 + np.maximum(last - keys, 0) * keys

    seen = summed(before + queries) - summed(before)
    if window == np.inf:
        return seen
    return seen - summed(before + queries - window) + summed(before - window)


def _attention(op: Op, s: Shapes) -> Cost:
    # q k^T: S * T * D per head; p v: S * T * Dv per head. Softmax: about 5 operations a score.
    q, k, v = op.inputs[:3]
    b, h, length, d = s.dims(q)
    keys, dv = s.dims(k)[-2], s.dims(v)[-1]
    scores = b * h * visible_scores(length, keys, op.attrs)
    c = _contraction(op, s, scores * (d + dv))
    c.flops = c.flops + 5 * scores
    if op.attrs.get("stored_scores"):  # in fp32: written, turned into shares, read again
        c.read, c.written = c.read + 8 * scores, c.written + 8 * scores
    return c


def _attention_backward(op: Op, s: Shapes) -> Cost:
    # The scores again (D), then gradients of p (Dv), v (Dv), q (D) and k (D): five matmuls against two forward.
    _, q, k, v = op.inputs[:4]
    b, h, length, d = s.dims(q)
    keys, dv = s.dims(k)[-2], s.dims(v)[-1]
    scores = b * h * visible_scores(length, keys, op.attrs)
    c = _contraction(op, s, scores * (3 * d + 2 * dv))
    c.flops = c.flops + 10 * scores
    return c


def _rnn(op: Op, s: Shapes) -> Cost:
    # Per step, layer and direction: gates * hidden * (inputs + outputs); later layers take directions * outputs. The
    # outputs are the hidden state, or with a projection `proj` numbers of it: hidden * proj more.
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[op.attrs["cell"]]
    hidden, layers, ways = op.attrs["hidden"], op.attrs["layers"], op.attrs["directions"]
    proj = op.attrs.get("proj", 0)
    out = proj or hidden
    backward = op.kind == "rnn_backward"
    *places, features = s.dims(op.inputs[2 if backward else 0])
    steps = _product(places)  # T * N in either order, or where sequences are packed the sum of their lengths
    first = gates * hidden * (features + out) + hidden * proj
    later = gates * hidden * (ways * out + out) + hidden * proj
    forward = steps * ways * (first + (layers - 1) * later)
    return _contraction(op, s, 2 * forward if backward else forward)


def _embedding(op: Op, s: Shapes) -> Cost:
    written = s.bytes(op.outputs[0])
    each: Number = 1  # rows of the table that are added up to one of the output: those of a bag
    if len(op.inputs) > 1 and s.dims(op.outputs[0]):
        each = np.maximum(s.numel(op.inputs[1]) * s.dims(op.outputs[0])[-1] / np.maximum(s.numel(op.outputs[0]), 1), 1)
    return Cost(read=written * each + sum(s.bytes(t) for t in op.inputs[1:2]), written=written)


def _gather(op: Op, s: Shapes) -> Cost:
    out = sum(s.bytes(t) for t in op.outputs)
    read: Number = out
    if op_names.plain_name(op.name) in op_names.ROW_GATHERS and len(op.inputs) > 1:
        read = np.minimum(out, s.bytes(op.inputs[0]))  # at least: rows picked again may come from the cache
    return Cost(read=read + sum(s.bytes(t) for t in op.inputs[1:]), written=out)


def _scatter(op: Op, s: Shapes) -> Cost:
    # In place, only what src holds moves; the last input is src.
    if len(op.inputs) < 2:
        return _all_bytes(op, s)
    src = s.bytes(op.inputs[-1])
    return Cost(read=2 * src + sum(s.bytes(t) for t in op.inputs[1:-1]), written=src)


def _norm(op: Op, s: Shapes) -> Cost:
    # Mean, variance, normalise, scale and shift: about 5 operations an element; inference batch norm needs 2.
    c = _all_bytes(op, s)
    inference = op.attrs.get("type") == "batch" and not op.attrs.get("training")
    c.flops = s.numel(op.inputs[0]) * (2 if inference else 5)
    return c


def _pool(op: Op, s: Shapes) -> Cost:
    c = _all_bytes(op, s)
    c.flops = s.numel(op.outputs[0]) * op.attrs.get("window", 1)
    return c


def _resize(op: Op, s: Shapes) -> Cost:
    c, taps = _all_bytes(op, s), op.attrs.get("taps", 1)
    c.flops = s.numel(op.outputs[0]) * 2 * taps
    if op_names.base_name(op.name).startswith("grid_sampler"):  # at points that need not be all of the image
        backward = op_names.base_name(op.name).endswith("_backward")
        image, points = s.bytes(op.inputs[1 if backward else 0]), s.bytes(op.inputs[0] if backward else op.outputs[0])
        c.read = c.read - image + np.minimum(image, points * taps)
    return c


def _written_only(op: Op, s: Shapes) -> Cost:
    return Cost(written=sum(s.bytes(t) for t in op.outputs))


def _fft(op: Op, s: Shapes) -> Cost:
    # 5 n log2 n for a transform of n complex numbers along each axis. Real numbers are half as many complex ones, so n
    # is that of the smaller side, and the longer side says how long a transform of real numbers is.
    c = _all_bytes(op, s)
    sides = [s.dims(op.inputs[0]), s.dims(op.outputs[0])]
    axes, frame = op.attrs.get("axes", [-1]), op.attrs.get("frame")
    lengths = [frame] if frame else [np.maximum(sides[0][a], sides[1][a]) for a in axes]
    if op.attrs.get("pairs"):  # ONNX keeps the two parts of a complex number along a last axis
        sides = [side[:-1] for side in sides[frame is not None :]]
    n = functools.reduce(np.minimum, (_product(side) for side in sides))
    c.flops = 5 * n * sum(np.log2(np.maximum(2, length)) for length in lengths)
    return c


def _optimizer(op: Op, s: Shapes) -> Cost:
    # A foreach launch over all parameters; the recorder weighed its lists, folded blocks included.
    read, written = op.attrs["bytes_read"], op.attrs["bytes_written"]
    return Cost(flops=op.attrs.get("flops", 1) * written // 4, read=read, written=written)


#: The law of every kind.
LAWS: dict[str, Callable[[Op, Shapes], Cost]] = {
    "conv": _conv, "conv_backward": _conv_backward, "matmul": _matmul, "moe_matmul": _moe_matmul,
    "moe_matmul_backward": _moe_matmul_backward,
    "attention": _attention, "attention_backward": _attention_backward, "rnn": _rnn,
    "rnn_backward": _rnn,
    "embedding": _embedding, "embedding_backward": _all_bytes, "gather": _gather, "scatter": _scatter,
    "softmax": _per_output(5), "softmax_backward": _per_output(4), "norm": _norm, "norm_backward": _per_output(10),
    "elementwise": _per_output(1), "reduce": _per_input(1), "sort": _per_input(10), "pool": _pool,
    "pool_backward": _per_output(1), "resize": _resize, "copy": _all_bytes, "fill": _written_only,
    "random": _written_only, "fft": _fft, "optimizer": _optimizer, "unknown": _all_bytes,
    **dict.fromkeys(COLLECTIVES, _all_bytes),
}  # fmt: skip


@dataclass(frozen=True)
class Totals:
    """A whole graph's cost."""

    macs: float
    flops: float
    bytes: float


def totals(graph: Graph) -> Totals:
    """FLOPs, MACs and bytes of one call of the graph."""
    shapes = Shapes(graph)
    macs = flops = moved = 0.0
    for op in graph.ops:
        c = cost(op, shapes)
        macs += float(c.macs) * op.repeat
        flops += float(c.flops) * op.repeat
        moved += float(c.read + c.written) * op.repeat
    return Totals(macs, flops, moved)
