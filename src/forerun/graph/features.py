"""What an op looks like beside its FLOPs and bytes: the sizes that decide how well a kernel fills the hardware.

Eight columns per op, in one language for all kinds: `rows` x `cols` outputs that each sum over `inner`, `count`
independent problems of that size, the `window` of a convolution or pool, its `stride`, a `flag` (masked attention,
gradients wanted, inputs in another layout), and the pixels of one `image` that a convolution makes (1 elsewhere). Kinds
without such a size use its column for one of their own, as their law below says. And a `variant`: the finest
distinction between ops that run the same class of kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from forerun.graph import op_names
from forerun.graph.cost import Shapes, experts_hit
from forerun.graph.ir import DTYPE_BYTES, Graph, Op

DIMS = ("rows", "cols", "inner", "count", "window", "stride", "flag", "image")

#: Ops of one class that run differently. Anything else is the variant "".
VARIANTS = (
    "", "norm:batch", "norm:batch:train", "norm:layer", "norm:group", "norm:rms", "norm_backward:batch",
    "norm_backward:layer", "norm_backward:group", "norm_backward:rms", "copy:cat", "copy:cast", "copy:clone",
    "copy:pad", "pool:max", "pool:avg", "pool:adaptive", "pool_backward", "conv:transposed", "softmax_backward",
    "embedding_backward", "elementwise:binary", "elementwise:heavy", "elementwise:inplace", "moe_backward",
    "rnn_backward", "attention:masked", "reduce:whole", "conv:stem", "matmul:vector", "random", "elementwise:bias",
    "matmul:int4", "resize:nearest", "resize:bicubic", "copy:int8", "depthwise:cudnn", "depthwise:last",
    "depthwise:last:wide", "depthwise:last:more", "generated", "attention:stored",
    "rnn:persistent", "rnn_backward:persistent", "conv:1d", "conv:3d", "conv:dilated", "reduce:columns",
    "scatter:index", "embedding_backward:sorted", "embedding_backward:bag", "embedding:bag", "gather:rows", "sort:topk",
    "resize:grid", "reduce:scan", "norm:batch:train:native", "norm_backward:batch:native",
    "norm:batch:native", "resize:backward",
)  # fmt: skip
_VARIANT_INDEX = {name: i for i, name in enumerate(VARIANTS)}
_TILE = 64
_CHANNELS_LAST = 16  # with fewer, resizing does not look at the layout
_SHARED_BYTES = 48 * 1024  # what a block may hold on every CUDA chip without asking for more


def variant(op: Op, graph: Graph) -> str:
    """The finest name of an op: one of VARIANTS."""
    name = _variant(op, graph)
    return name if name in _VARIANT_INDEX else ""


def variant_index(op: Op, graph: Graph) -> int:
    return _VARIANT_INDEX[variant(op, graph)]


def _variant(op: Op, graph: Graph) -> str:
    kind, name = op.kind, op_names.plain_name(op.name)
    if op.attrs.get("generated"):
        return "generated"
    if kind == "norm":
        statistics = op.attrs.get("training") and op.attrs.get("type") == "batch"
        training = ":train" if statistics else ""
        return f"norm:{op.attrs.get('type', '')}{training}{_native(op, graph)}"
    if kind == "norm_backward":
        return f"norm_backward:{op_names.NORM_TYPES.get(name, '')}{_native(op, graph)}"
    if kind == "copy":
        from_int8 = bool(op.inputs) and graph.tensors[op.inputs[0]].dtype == "int8"
        return "copy:" + ("int8" if from_int8 else op_names.COPIES.get(name, "clone"))
    if kind == "pool":
        return f"pool:{op_names.POOLS.get(name, 'max')}"
    if kind in ("conv", "conv_backward") and graph.depthwise(op):
        return _depthwise(op, graph)
    if kind in ("conv", "conv_backward"):
        return _convolution(op, graph)
    if kind == "elementwise":
        return _elementwise(op, name)
    if kind == "resize" and name.startswith("grid_sampler"):
        return "resize:grid"
    if kind == "resize" and name.endswith("_backward") and name not in op_names.RESIZES:
        return "resize:backward"
    if kind == "resize":
        return f"resize:{op_names.RESIZES.get(name, '')}"
    if kind == "attention":
        if op.attrs.get("stored_scores"):
            return "attention:stored"
        return "attention:masked" if len(op.inputs) > 3 else ""
    if kind == "reduce" and name in op_names.SCANS:
        return "reduce:scan"
    if kind == "reduce":
        return _reduction(graph.tensors[op.inputs[0]].shape if op.inputs else (), graph.tensors[op.outputs[0]].shape)
    if kind == "scatter":
        return "scatter:index" if name in op_names.INDEXED else ""
    if kind == "gather":
        return "gather:rows" if name in op_names.ROW_GATHERS else ""
    if kind in ("embedding", "embedding_backward") and "embedding_bag" in name:
        return f"{kind}:bag"
    if kind == "embedding_backward":
        return "embedding_backward:sorted" if sorts_indices(op, graph) else kind
    if kind == "sort":
        return "sort:topk" if name == "topk" else ""
    if kind == "matmul" and graph.tensors[op.inputs[1]].dtype == "int4":
        return "matmul:int4"
    if kind == "matmul" and op.outputs:
        shape = graph.tensors[op.outputs[0]].shape
        return "matmul:vector" if len(shape) < 2 or 1 in shape[-2:] else ""
    if kind == "moe_matmul_backward":
        return "moe_backward"
    if kind in ("rnn", "rnn_backward") and rnn_persists(op, graph):
        return f"{kind}:persistent"
    return kind


def _native(op: Op, graph: Graph) -> str:
    """Where PyTorch's own kernels normalise over the batch, a block for every channel, and not cuDNN's: bf16, fp16 with
    weights in fp16 (autocast leaves them in fp32), rows without pixels, and norms without weights."""
    type_ = op.attrs.get("type") or op_names.NORM_TYPES.get(op_names.plain_name(op.name), "")
    if type_ != "batch":
        return ""
    at = 1 if op.kind == "norm_backward" and len(op.inputs) > 1 else 0
    x, others = graph.tensors[op.inputs[at]], op.inputs[at + 1 :]
    weighted = len(op.outputs) > 1 if at else bool(others)
    halves = x.dtype == "fp16" and bool(others) and graph.tensors[others[0]].dtype == "fp16"
    return "" if weighted and len(x.shape) > 2 and x.dtype != "bf16" and not halves else ":native"


def _convolution(op: Op, graph: Graph) -> str:
    if op.attrs.get("transposed"):
        return "conv:transposed"
    if max(op.attrs.get("dilation") or [1]) > 1:
        return "conv:dilated"
    dimensions = len(graph.conv_weight(op).shape) - 2
    if dimensions != 2:
        return f"conv:{dimensions}d"
    return "conv:stem" if op.kind == "conv" and graph.tensors[op.inputs[0]].shape[1] <= 4 else ""


def _reduction(x: tuple[int, ...], y: tuple[int, ...]) -> str:
    """Over everything, over columns (rows are added up, as for the gradient of a bias), or along rows."""
    if not y:
        return "reduce:whole"
    return "reduce:columns" if x and x[-1] == y[-1] > 1 and len(x) > 1 else ""


#: More indices than these are sorted before the gradients of equal ones are added up; those of bags always are.
_UNSORTED_INDICES = 3072


def sorts_indices(op: Op, graph: Graph) -> bool:
    """Whether the gradient of a table of embeddings sorts the indices (PyTorch's rule)."""
    if op_names.plain_name(op.name) != "embedding_dense_backward":
        return True
    return len(op.inputs) > 1 and math.prod(graph.tensors[op.inputs[1]].shape) > _UNSORTED_INDICES


_PERSISTENT_HIDDEN = 128


def rnn_persists(op: Op, graph: Graph) -> bool:
    """Whether cuDNN keeps the weights of a recurrent layer on the chip and runs all steps in one kernel; else every
    step is a product and a kernel for its cells (seen with cuDNN 9)."""
    # Autocast, which casts the weights, runs these layers in fp16, never in bf16.
    cast = any(graph.tensors[t].producer >= 0 for t in op.inputs if len(graph.tensors[t].shape) == 2)
    half = graph.tensors[op.inputs[0]].dtype in ("fp16", "fp32") or cast
    return op.attrs["hidden"] <= _PERSISTENT_HIDDEN and half


def _elementwise(op: Op, name: str) -> str:
    if "bias" in op.attrs:
        return "elementwise:bias"
    if name in op_names.HEAVY:
        return "elementwise:heavy"
    if op_names.in_place(op.name):
        return "elementwise:inplace"
    return "elementwise:binary" if len(op.inputs) > 1 else ""


def _depthwise(op: Op, graph: Graph) -> str:
    """Which kernels PyTorch takes: its own ("") or cuDNN's; where channels come last always cuDNN's, which are slow for
    wide windows and for several results a channel. PyTorch also looks whether the batch is 1; variants do not."""
    backward = op.kind == "conv_backward"
    image, weight = graph.tensors[op.inputs[1 if backward else 0]], graph.conv_weight(op)
    half = image.dtype in ("fp16", "bf16")
    channels, side = image.shape[1], max(weight.shape[2:])
    if op.attrs.get("strided"):
        if weight.shape[0] > channels:
            return "depthwise:last:more"
        return "depthwise:last" if side <= (7 if half or not backward else 3) else "depthwise:last:wide"
    stride = max(op.attrs.get("stride") or [1])
    worth = stride == 1 or (stride == 2 and (channels >= 512 or (channels >= 256 and image.shape[-1] >= 28)))
    taken = image.dtype == "fp16" and len(image.shape) == 4 and channels >= 32 and image.shape[-1] >= 7
    return "depthwise:cudnn" if taken and worth and side in (1, 3, 5) else ""


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
    size = s.numel(op.outputs[0]) if op.outputs else (s.numel(op.inputs[0]) if op.inputs else 1)
    return size, len(op.inputs) or 1, 1, 1, 1, 1, _gaps(op)


def _copy(op: Op, s: Shapes) -> tuple[Any, ...]:
    """Of what is joined, how long the rows are: whether they are multiples of what a thread moves at once."""
    y = s.dims(op.outputs[0]) if op.outputs else []
    if op_names.COPIES.get(op_names.plain_name(op.name)) != "cat" or not y:
        return _plain(op, s)
    return s.numel(op.outputs[0]) / np.maximum(y[-1], 1), y[-1], 1, len(op.inputs), 1, 1, _gaps(op)


def _picked(op: Op, s: Shapes) -> tuple[Any, ...]:
    """Rows that are looked up or written to, how long they are, and how many of them are added to one."""
    among = [t for t in (*op.outputs, *op.inputs[-1:]) if s.dims(t)]
    moved = among[-1 if op.kind == "scatter" else 0] if among else None
    if moved is None:
        return _plain(op, s)
    cols = s.dims(moved)[-1]
    if "embedding" in op.kind and len(op.inputs) > 1:
        rows = s.numel(op.inputs[1])
        summed = s.numel(op.inputs[0] if op.kind == "embedding_backward" else moved) / np.maximum(cols, 1)
        return rows, cols, rows / np.maximum(summed, 1), 1, 1, 1, _gaps(op)
    added = 2 * _half(moved, s) if op.kind == "scatter" else 0
    if op_names.plain_name(op.name) in op_names.ROW_GATHERS | op_names.INDEXED and len(op.inputs) > 1:
        cols = _row_length(op.inputs[0], op.inputs[1], moved, s)
        ragged = (np.asarray(cols) * DTYPE_BYTES[s.graph.tensors[moved].dtype]) % _AT_ONCE > 0
        return s.numel(moved) / np.maximum(cols, 1), cols, 1, 1, 1 + ragged, 1, _gaps(op) + added
    return s.numel(moved) / np.maximum(cols, 1), cols, 1, 1, 1, 1, _gaps(op) + added


#: Bytes that a thread moves at once; rows of other lengths go number by number.
_AT_ONCE = 16


def _row_length(x: int, index: int, moved: int, s: Shapes) -> Any:
    """Numbers that lie together in one picked row: what comes behind the axis that the index runs along."""
    whole, part, picks = (s.graph.tensors[t].shape for t in (x, moved, index))
    axes = [
        axis for axis in range(len(whole))
        if len(picks) == 1 and part[: axis + 1] == (*whole[:axis], picks[0]) and part[axis + 1 :] == whole[axis + 1 :]
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
    """A product for every expert that is hit: x^T gy, summed over its rows."""
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
    return out, s.numel(op.inputs[0]) / np.maximum(out, 1) if op.inputs else 1, 1, 1, 1, 1, _gaps(op)


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
    x = s.dims(op.inputs[2 if op.kind == "rnn_backward" else 0])
    hidden, steps = op.attrs["hidden"], op.attrs.get("steps", x[0])
    return x[0] * x[1] / steps, hidden, x[-1], op.attrs["layers"] * op.attrs["directions"], steps, 1, 0


#: How the sizes of every kind are read: {kind: law}, each giving values for the first columns of DIMS.
SIZES: dict[str, Callable[[Op, Shapes], tuple[Any, ...]]] = {
    "matmul": _matmul, "moe_matmul": _moe, "moe_matmul_backward": _moe_backward, "conv": _conv,
    "conv_backward": _conv_backward,
    "attention": _attention, "attention_backward": _attention, "softmax": _softmax, "softmax_backward": _last_dim,
    "sort": _along_last, "fft": _along_last,
    "norm": _norm, "norm_backward": _norm, "reduce": _reduce, "pool": _pool, "pool_backward": _pool, "rnn": _rnn,
    "rnn_backward": _rnn, "resize": _resize,
    **dict.fromkeys((
        "elementwise", "fill", "random", "optimizer", "unknown",
    ), _plain),
    "copy": _copy,
    **dict.fromkeys(("gather", "scatter", "embedding", "embedding_backward"), _picked),
}  # fmt: skip
