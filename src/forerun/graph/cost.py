"""FLOPs and bytes of every kind of op: one formula each, and none of them anywhere else.

A multiply-accumulate is one MAC and two FLOPs. Bytes are what must cross the memory bus once: inputs that are read and
outputs that are written; what a fused kernel keeps on chip does not count. Every formula works on plain numbers and on
arrays (one entry per batch size), so a whole column of batch sizes costs one evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.graph import op_names
from forerun.graph.ir import DTYPE_BYTES, Graph, Op

Number = Any  # int, float, or an array with one entry per batch size


@dataclass(slots=True)
class Cost:
    """What one launch of an op needs."""

    macs: Number = 0  # multiply-accumulates of contractions: matmul, convolution, attention
    flops: Number = 0  # 2 * macs, plus what elementwise work adds
    read: Number = 0  # bytes
    written: Number = 0  # bytes


class Shapes:
    """Tensor sizes of a graph at one batch size or at a column of them."""

    def __init__(self, graph: Graph, batches: np.ndarray | int | None = None) -> None:
        self.graph = graph
        self.step: Any = 0 if batches is None else batches - graph.batch

    def dims(self, tensor: int) -> list[Number]:
        t = self.graph.tensors[tensor]
        if t.per_sample is None or (np.isscalar(self.step) and self.step == 0):
            return list(t.shape)
        return [d + s * self.step if s else d for d, s in zip(t.shape, t.per_sample, strict=True)]

    def numel(self, tensor: int) -> Number:
        n: Number = 1
        for d in self.dims(tensor):
            n = n * d
        return n

    def bytes(self, tensor: int) -> Number:
        """Bytes behind a tensor: an expanded view (one row seen as many) holds no more than its storage does."""
        t = self.graph.tensors[tensor]
        s = self.graph.storages[t.storage]
        return np.minimum(self.numel(tensor) * DTYPE_BYTES[t.dtype], s.grown(self.step))


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
            c.flops = s.numel(op.inputs[0]) * flops
        return c

    return law


def _conv_macs(op: Op, s: Shapes, x: int, w: int, y: int) -> Number:
    # Each output element sums over Cin/groups * prod(kernel) products: the weight's dims after the first.
    # Transposed: each *input* element is spread over Cout/groups * prod(kernel) outputs; the same dims again.
    per_element: Number = 1
    for d in s.dims(w)[1:]:
        per_element = per_element * d
    return s.numel(x if op.attrs.get("transposed") else y) * per_element


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
    if s.graph.tensors[op.inputs[1]].dtype != "int4":
        return _contraction(op, s, macs)
    # PyTorch's kernel for 4-bit weights takes 16 rows at a time and reads all weights for each of them.
    passes = np.ceil(s.numel(op.inputs[0]) / k / 16)
    rest = sum(s.bytes(t) for t in op.inputs if t != op.inputs[1])
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


def attended_share(op: Op, s: Shapes) -> Number:
    """The share of the S x T score matrix that is needed: causal masks and sliding windows leave part of it out."""
    queries, keys = s.dims(op.inputs[0])[-2], s.dims(op.inputs[1])[-2]
    window = op.attrs.get("window") or np.inf
    if not op.attrs.get("causal"):
        return np.minimum(keys, window) / keys
    # Causal: the first query sees T - S + 1 keys, each later one a key more, none more than the window.
    first = keys - queries + 1
    short = np.clip(window - first + 1, 0, queries)  # queries that see less than a window
    capped = np.where(short < queries, (queries - short) * np.minimum(window, keys), 0)
    return (short * (2 * first + short - 1) / 2 + capped) / (queries * keys)


def _attention(op: Op, s: Shapes) -> Cost:
    # q k^T: S * T * D per head; p v: S * T * Dv per head. Softmax: about 5 operations a score.
    q, k, v = op.inputs[:3]
    b, h, length, d = s.dims(q)
    keys, dv = s.dims(k)[-2], s.dims(v)[-1]
    scores = b * h * length * keys * attended_share(op, s)
    c = _contraction(op, s, scores * (d + dv))
    c.flops = c.flops + 5 * scores
    if op.attrs.get("stored_scores"):  # in fp32: written, turned into shares, read again
        c.read, c.written = c.read + 8 * scores, c.written + 8 * scores
    return c


def _attention_backward(op: Op, s: Shapes) -> Cost:
    # The scores again (D), then gradients of p (Dv), v (Dv), q (D) and k (D): five products against two forward.
    _, q, k, v = op.inputs[:4]
    b, h, length, d = s.dims(q)
    keys, dv = s.dims(k)[-2], s.dims(v)[-1]
    share = attended_share(Op("", "", op.inputs[1:3], (), op.attrs), s)
    scores = b * h * length * keys * share
    c = _contraction(op, s, scores * (3 * d + 2 * dv))
    c.flops = c.flops + 10 * scores
    return c


def _rnn(op: Op, s: Shapes) -> Cost:
    # Per step, layer and direction: gates * hidden * (inputs + hidden); later layers take directions * hidden inputs.
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[op.attrs["cell"]]
    hidden, layers, ways = op.attrs["hidden"], op.attrs["layers"], op.attrs["directions"]
    backward = op.kind == "rnn_backward"
    x = s.dims(op.inputs[2 if backward else 0])
    steps = x[0] * x[1]  # T * N, in either order
    first = gates * hidden * (x[-1] + hidden)
    later = gates * hidden * (ways * hidden + hidden)
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
    # 5 n log2 n for a complex transform of n points; n is taken as the last dimension.
    c = _all_bytes(op, s)
    n = s.numel(op.outputs[0])
    c.flops = 5 * n * np.log2(np.maximum(2, s.dims(op.inputs[0])[-1]))
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
