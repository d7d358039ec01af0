"""Variants: the finest distinction between ops that run the same class of kernel, and the rules that decide it."""

from __future__ import annotations

import math

from forerun.graph import op_names
from forerun.graph.ir import Graph, Op

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
    "norm:batch:native", "resize:backward", "matmul:bias", "conv:odd_group_width", "scatter:sorted",
    "attention_backward:masked", "attention_backward:bias",
)  # fmt: skip
_VARIANT_INDEX = {name: i for i, name in enumerate(VARIANTS)}


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
    if kind == "attention_backward" and len(op.outputs) > 3:  # of a mask, too, where that is a learned bias
        return "attention_backward:bias"
    if kind == "attention_backward":
        return "attention_backward:masked" if len(op.inputs) > 6 else ""  # go, q, k, v, o, lse, mask
    if kind == "reduce" and name in op_names.SCANS:
        return "reduce:scan"
    if kind == "reduce":
        return _reduction(graph.tensors[op.inputs[0]].shape if op.inputs else (), graph.tensors[op.outputs[0]].shape)
    if kind == "scatter" and op.attrs.get("accumulate"):
        return "scatter:sorted"
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
    if kind == "matmul" and graph.tensors[op.inputs[1]].dtype == "int4" and not op.attrs.get("unpacks"):
        return "matmul:int4"
    if kind == "matmul" and op.outputs:
        shape = graph.tensors[op.outputs[0]].shape
        if len(shape) < 2 or 1 in shape[-2:]:
            return "matmul:vector"
        return "matmul:bias" if len(op.inputs) > 2 else ""  # cuBLASLt's kernels, which add it, and not cuBLAS's
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
    fp16 = x.dtype == "fp16" and bool(others) and graph.tensors[others[0]].dtype == "fp16"
    return "" if weighted and len(x.shape) > 2 and x.dtype != "bf16" and not fp16 else ":native"


def _convolution(op: Op, graph: Graph) -> str:
    if op.attrs.get("transposed"):
        return "conv:transposed"
    if max(op.attrs.get("dilation") or [1]) > 1:
        return "conv:dilated"
    weight = graph.conv_weight(op).shape
    if len(weight) != 4:
        return f"conv:{len(weight) - 2}d"
    if op.attrs.get("groups", 1) > 1 and weight[1] & (weight[1] - 1):  # cuDNN is fast for powers of two alone
        return "conv:odd_group_width"
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
    step is a matmul and a kernel for its cells (seen with cuDNN 9). It does so neither for packed sequences, even
    where they are equally long, nor for projected states."""
    if op.attrs.get("packed") or op.attrs.get("proj"):
        return False
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
