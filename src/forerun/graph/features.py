"""What an op looks like beside its FLOPs and bytes: the sizes that decide how well a kernel fills the hardware.

Eight columns per op, in one language for all kinds: `rows` x `cols` outputs that each sum over `inner`, `count`
independent problems of that size, the `window` of a convolution or pool, its `stride`, a `flag` (masked attention,
gradients wanted, inputs in another layout), and the pixels of one `image` that a convolution makes. Kinds
without such a size use its column for one of their own, as their law below says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from forerun.graph import op_names
from forerun.graph.cost import Shapes, experts_hit
from forerun.graph.ir import DTYPE_BYTES, Graph, Op
from forerun.graph.kinds import COLLECTIVES
from forerun.graph.variants import variant

DIMS = ("rows", "cols", "inner", "count", "window", "stride", "flag", "image")

_TILE = 64
_CHANNELS_LAST = 16  # with fewer, resizing does not look at the layout
_SHARED_BYTES = 48 * 1024  # what a block may hold on every CUDA chip without asking for more


#: Kinds that generated code runs over results one by one, whatever kernels PyTorch has for them.
_POINTWISE = frozenset({"resize", "pool", "pool_backward"})


def dims(graph: Graph, shapes: Shapes, many: int) -> np.ndarray:
    """[ops, batch sizes, DIMS] of a graph, at as many batch sizes as `shapes` holds."""
    out = np.ones((len(graph.ops), many, len(DIMS)))
    for i, op in enumerate(graph.ops):
        law = _plain if op.attrs.get("generated") and op.kind in _POINTWISE else SIZES[op.kind]
        for column, value in enumerate(law(op, shapes)):
            out[i, :, column] = value
    return np.maximum(out, 0.0)


def _product(values: list[Any]) -> Any:
    n: Any = 1
    for value in values:
        n = n * value
    return n


def _plain(op: Op, s: Shapes) -> tuple[Any, ...]:
    """`inner`: bytes of a number, since kernels that compute where each number lies take as long for short ones."""
    tensors = (*op.outputs[:1], *op.inputs[:1])
    size = s.numel(tensors[0]) if tensors else 1
    each = DTYPE_BYTES[s.graph.tensors[tensors[0]].dtype] if tensors else 1
    return size, len(op.inputs) or 1, each, 1, 1, 1, _gaps(op)


def _elementwise(op: Op, s: Shapes) -> tuple[Any, ...]:
    """`window` 2 where an input is repeated along an axis, as a bias or a scale of channels is: numbers then go one by
    one, and not as many as a thread can move at once."""
    size, inputs, each, count, _, *rest = _plain(op, s)
    if not op.outputs:
        return size, inputs, each, count, 1, *rest
    numbers = [np.asarray(s.numel(t)) for t in op.inputs]
    repeated = functools.reduce(np.logical_or, ((n > 1) & (n < size) for n in numbers), np.False_)
    return size, inputs, each, count, 1 + repeated, *rest


def _copy(op: Op, s: Shapes) -> tuple[Any, ...]:
    """Of what is joined, how long rows are, how long pieces are that lie together (`inner`, on average), and whether
    all of them are multiples of what a thread moves at once (`window` 1) or not (2)."""
    y = s.dims(op.outputs[0]) if op.outputs else []
    if op_names.COPIES.get(op_names.plain_name(op.name)) != "cat" or not y:
        return _plain(op, s)
    shape = s.graph.tensors[op.outputs[0]].shape
    pieces = [_piece(t, shape, s) for t in op.inputs if s.dims(t)] or [y[-1]]
    size = DTYPE_BYTES[s.graph.tensors[op.outputs[0]].dtype]
    ragged = functools.reduce(np.logical_or, (np.asarray(piece) * size % _AT_ONCE > 0 for piece in pieces))
    rows = s.numel(op.outputs[0]) / np.maximum(y[-1], 1)
    return rows, y[-1], sum(pieces) / len(pieces), len(op.inputs), 1 + ragged, 1, _gaps(op)


def _piece(tensor: int, full: tuple[int, ...], s: Shapes) -> Any:
    """Numbers of an input that lie together in what it is joined to: from the joined axis on."""
    part = s.graph.tensors[tensor].shape
    axis = next((i for i, (a, b) in enumerate(zip(part, full, strict=False)) if a != b), 0)
    return _product(s.dims(tensor)[axis:])


def _picked(op: Op, s: Shapes) -> tuple[Any, ...]:
    """Rows that are looked up or written to, how long they are, and how many of them are added to one (`inner`);
    `image`: how many numbers the table holds that they are of, which a cache may hold or not."""
    among = [t for t in (*op.outputs, *op.inputs[-1:]) if s.dims(t)]
    moved = among[-1 if op.kind == "scatter" else 0] if among else None
    if moved is None:
        return _plain(op, s)
    held = op.outputs[:1] if op.kind in ("scatter", "embedding_backward") else op.inputs[:1]
    table = s.numel(held[0]) if held else 1
    cols = s.dims(moved)[-1]
    if "embedding" in op.kind and len(op.inputs) > 1:
        rows = s.numel(op.inputs[1])
        summed = s.numel(op.inputs[0] if op.kind == "embedding_backward" else moved) / np.maximum(cols, 1)
        return rows, cols, rows / np.maximum(summed, 1), 1, 1, 1, _gaps(op), table
    added = 2 * _half(moved, s) if op.kind == "scatter" else 0
    # What is added to one number on average: threads wait for each other, or add up what was sorted.
    together = s.numel(moved) / np.maximum(table, 1) if op.kind == "scatter" else 1
    if op_names.plain_name(op.name) in op_names.ROW_GATHERS | op_names.INDEXED and len(op.inputs) > 1:
        cols = _row_length(op.inputs[0], op.inputs[1], moved, s)
        ragged = (np.asarray(cols) * DTYPE_BYTES[s.graph.tensors[moved].dtype]) % _AT_ONCE > 0
        window = 1 if op.attrs.get("generated") else np.where(ragged, WHOLE_ROWS / 2, WHOLE_ROWS)
        summed = np.maximum(together, 1) if op.attrs.get("accumulate") else 1
        return s.numel(moved) / np.maximum(cols, 1), cols, summed, 1, window, 1, _gaps(op) + added, table
    return s.numel(moved) / np.maximum(cols, 1), cols, np.maximum(together, 1), 1, 1, 1, _gaps(op) + added, table


#: Bytes that a thread moves at once; rows of other lengths go number by number. `window` of rows that are multiples of
#: it, which have a block of threads each.
_AT_ONCE = 16
WHOLE_ROWS = 4


def _row_length(x: int, index: int, moved: int, s: Shapes) -> Any:
    """Numbers that lie together in one picked row: what comes behind the axis that the index runs along."""
    full, part, picks = (s.graph.tensors[t].shape for t in (x, moved, index))
    axes = [
        axis for axis in range(len(full))
        if len(picks) == 1 and part[: axis + 1] == (*full[:axis], picks[0]) and part[axis + 1 :] == full[axis + 1 :]
    ]  # fmt: skip
    if axes:
        return _product(s.dims(moved)[axes[0] + 1 :])
    return np.maximum(s.numel(moved) / np.maximum(s.numel(index), 1), 1)


def _gaps(op: Op) -> int:
    return 1 if op.attrs.get("strided") else 0


def _half(tensor: int, s: Shapes) -> int:
    """1 for numbers of 16 bits, which threads add to memory in another way."""
    return 1 if s.graph.tensors[tensor].dtype in ("fp16", "bf16") else 0


def _matmul(op: Op, s: Shapes) -> tuple[Any, ...]:
    a, y = s.dims(op.inputs[0]), s.dims(op.outputs[0])
    inner, cols = a[-1], y[-1] if y else 1
    grows = s.graph.tensors[op.inputs[0]].per_sample
    if grows and grows[-1]:  # kernels never read along the batch, so an odd one costs no more than a tile
        inner = np.ceil(np.asarray(inner) / _TILE) * _TILE
    if op.attrs.get("shared_b") or len(y) < 3:
        return s.numel(op.outputs[0]) / cols, cols, inner, 1, 1, 1, 0
    return y[-2], cols, inner, _product(y[:-2]), 1, 1, 0


def _moe(op: Op, s: Shapes) -> tuple[Any, ...]:
    x = s.dims(op.inputs[0])
    hit = experts_hit(op.attrs["experts"], x[0])
    return x[0] / hit, s.dims(op.outputs[0])[-1], x[-1], hit, 1, 1, 0


def _moe_backward(op: Op, s: Shapes) -> tuple[Any, ...]:
    """A matmul for every expert that is hit: x^T gy, summed over its rows."""
    x, weight = s.dims(op.inputs[0]), s.dims(op.outputs[0])
    hit = experts_hit(weight[0], x[0])
    return x[-1], weight[-1], x[0] / hit, hit, 1, 1, 0


def _conv(op: Op, s: Shapes) -> tuple[Any, ...]:
    return _conv_sizes(op, s, op.inputs[0], op.inputs[1], op.outputs[0])


def _conv_sizes(op: Op, s: Shapes, x: int, w: int, y: int) -> tuple[Any, ...]:
    transposed, groups = bool(op.attrs.get("transposed")), op.attrs.get("groups", 1)
    out, weight = s.dims(x if transposed else y), s.dims(w)
    image = _product(out[2:])
    cols = (s.dims(x)[1] if transposed else s.dims(y)[1]) / groups
    stride = _product(list(op.attrs.get("stride") or [1]))
    return out[0] * image, cols, _product(weight[1:]), groups, _product(weight[2:]), stride, _gaps(op), image


def _conv_backward(op: Op, s: Shapes) -> tuple[Any, ...]:
    gy, x, w = op.inputs[:3]
    *sizes, _, image = _conv_sizes(op, s, x, w, gy)
    return *sizes, sum(map(bool, op.attrs.get("wants", (True, True))[:2])) + 2 * _gaps(op), image


def _attention(op: Op, s: Shapes) -> tuple[Any, ...]:
    first = 1 if op.kind == "attention_backward" else 0
    b, h, length, d = s.dims(op.inputs[first])
    key = s.dims(op.inputs[first + 1])
    return length, key[-2], d, b * h, h / key[1], 1, 1 if op.attrs.get("causal") else 0


def _last_dim(op: Op, s: Shapes) -> tuple[Any, ...]:
    x = s.dims(op.inputs[0])
    cols = x[-1] if x else 1
    return s.numel(op.inputs[0]) / cols, cols, 1, 1, 1, 1, _gaps(op)


def _along_last(op: Op, s: Shapes) -> tuple[Any, ...]:
    return _last_dim(op, s) if op.inputs else _plain(op, s)


def _sort(op: Op, s: Shapes) -> tuple[Any, ...]:
    """`inner`: how many of each row are wanted, where that is not all."""
    rows, cols, inner, *rest = _along_last(op, s)
    wanted = s.dims(op.outputs[0]) if op.outputs and op_names.plain_name(op.name) == "topk" else []
    return rows, cols, wanted[-1] if wanted else inner, *rest


def _softmax(op: Op, s: Shapes) -> tuple[Any, ...]:
    """`window` is 2 where a row does not fit the shared memory of a block, and is read again and again."""
    rows, cols, inner, count, _, *rest = _last_dim(op, s)
    held = np.asarray(cols) * DTYPE_BYTES[s.graph.tensors[op.inputs[0]].dtype]
    return rows, cols, inner, count, np.where(held < _SHARED_BYTES, 1, 2), *rest


def _norm(op: Op, s: Shapes) -> tuple[Any, ...]:
    kind = op.attrs.get("type") or op_names.NORM_TYPES.get(op_names.plain_name(op.name), "layer")
    x = s.dims(op.inputs[0])
    if kind == "group" and "groups" in op.attrs:
        rows = x[0] * op.attrs["groups"]
        return rows, s.numel(op.inputs[0]) / rows, 1, 1, 1, 1, 0
    if kind in ("batch", "instance", "group") and len(x) > 1:
        return x[1], s.numel(op.inputs[0]) / x[1], 1 + _gaps(op), 1, 1, 1, x[0]
    return _last_dim(op, s)


def _reduce(op: Op, s: Shapes) -> tuple[Any, ...]:
    if op_names.plain_name(op.name) in op_names.SCANS and op.inputs and s.dims(op.inputs[0]):
        x = s.dims(op.inputs[0])
        axis = op.attrs.get("axis", len(x) - 1)
        return s.numel(op.inputs[0]) / np.maximum(x[axis], 1), x[axis], 1, 1, 1, 1, int(axis < len(x) - 1)
    out = s.numel(op.outputs[0]) if op.outputs else 1
    places = len(op.outputs) > 1 or op_names.plain_name(op.name).startswith("arg")  # carried along with a maximum
    return out, s.numel(op.inputs[0]) / np.maximum(out, 1) if op.inputs else 1, 1, 1, 1, 1, _gaps(op) + 2 * places


def _pool(op: Op, s: Shapes) -> tuple[Any, ...]:
    images = s.dims(op.inputs[0])[0] if op_names.base_name(op.name) == "im2col" else 1  # unfolded one by one
    return s.numel(op.outputs[0]), 1, 1, images, op.attrs.get("window", 1), 1, 0


#: Resizes whose kernels have a thread for every pixel of an image, and no more.
_BY_PIXEL = frozenset(
    "upsample_bilinear2d upsample_bicubic2d upsample_linear1d upsample_linear1d_backward upsample_trilinear3d".split()
)


def _resize(op: Op, s: Shapes) -> tuple[Any, ...]:
    """PyTorch's kernels have a thread for every pixel, which goes through the channels of all images in turn; bilinear
    ones have one for every number where many channels come last."""
    name = op_names.base_name(op.name)
    y = s.dims(op.inputs[0] if name.endswith("_backward") else op.outputs[0])
    if name.startswith("grid_sampler"):  # a thread for every point, which goes through the channels
        return _product([y[0], *y[2:]]), y[1], 1, 1, op.attrs.get("taps", 1), 1, 0
    if variant(op, s.graph) == "resize:backward" and name not in _BY_PIXEL:
        # A thread for every gradient that comes in; several add to one number.
        gy, gx = s.numel(op.inputs[0]), s.numel(op.outputs[0])
        return gy, 1, 1, 1, np.maximum(gy / np.maximum(gx, 1), 1), 1, _gaps(op) + 2 * _half(op.outputs[0], s)
    many_last = bool(_gaps(op)) and y[1] >= _CHANNELS_LAST if name == "upsample_bilinear2d" else False
    if name not in _BY_PIXEL or many_last:
        return _plain(op, s)
    return _product(y[2:]), 1, 1, y[0] * y[1], op.attrs.get("taps", 1), 1, 0


def _rnn(op: Op, s: Shapes) -> tuple[Any, ...]:
    *places, features = s.dims(op.inputs[2 if op.kind == "rnn_backward" else 0])
    hidden: Any = op.attrs["hidden"]
    steps: Any = op.attrs["steps"]
    many: Any = _product(places)
    rows = many / np.maximum(steps, 1)
    return rows, hidden, features, op.attrs["layers"] * op.attrs["directions"], steps, 1, 0


#: How the sizes of every kind are read: {kind: law}, each giving values for the first columns of DIMS.
SIZES: dict[str, Callable[[Op, Shapes], tuple[Any, ...]]] = {
    "matmul": _matmul, "moe_matmul": _moe, "moe_matmul_backward": _moe_backward, "conv": _conv,
    "conv_backward": _conv_backward,
    "attention": _attention, "attention_backward": _attention, "softmax": _softmax, "softmax_backward": _last_dim,
    "sort": _sort, "fft": _along_last,
    "norm": _norm, "norm_backward": _norm, "reduce": _reduce, "pool": _pool, "pool_backward": _pool, "rnn": _rnn,
    "rnn_backward": _rnn, "resize": _resize,
    **dict.fromkeys(("fill", "random", "optimizer", "unknown", *COLLECTIVES), _plain),
    "elementwise": _elementwise, "copy": _copy,
    **dict.fromkeys(("gather", "scatter", "embedding", "embedding_backward"), _picked),
}  # fmt: skip
