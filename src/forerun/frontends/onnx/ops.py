"""The op kind of an ONNX node: the table, and a few lines for nodes whose inputs need reordering."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnx import TensorProto

from forerun.frontends.onnx import (
    blocked as onnx_blocked,
)
from forerun.frontends.onnx import (
    fused as onnx_fused,
)
from forerun.frontends.onnx import (
    quantised as onnx_quantised,
)
from forerun.frontends.onnx.calls import LINEAR
from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import Node, Value, groups_of, printable


def _kinds(**groups: str) -> dict[str, str]:
    return {op: kind for kind, ops in groups.items() for op in ops.split()}


#: ONNX op -> kind, for nodes whose inputs and outputs already have the order of the kind.
KINDS_OF: dict[str, str] = _kinds(
    elementwise="Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
    "Ceil Celu Clip Cos Cosh Div Elu Equal Erf Erfc Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish "
    "Hardmax IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow QuickGelu "
    "Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh "
    "ThresholdedRelu Where Xor RotaryEmbedding FastGelu BiasGelu BiasAdd BiasSplitGelu AffineGrid "
    "QLinearSigmoid QLinearLeakyRelu NegativeLogLikelihoodLoss "
    "SoftmaxCrossEntropyLoss Swiglu",
    reduce="ArgMax ArgMin CumSum CumProd NonZero ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
    "ReduceMin ReduceProd ReduceSum ReduceSumSquare Det",
    sort="TopK NonMaxSuppression Unique",
    copy="CastLike CenterCropPad Col2Im DepthToSpace Expand ReverseSequence Slice SpaceToDepth Split Tile Trilu",
    gather="GatherElements GatherND Compress",
    scatter="Scatter ScatterElements ScatterND TensorScatter",
    fill="BlackmanWindow ConstantOfShape EyeLike HammingWindow HannWindow MelWeightMatrix OneHot Range",
    random="Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    softmax="Softmax LogSoftmax QLinearSoftmax",
)
#: Only these many leading inputs are data; the others (axes, shapes, bounds) are read by the host.
DATA_INPUTS: dict[str, int] = {
    **dict.fromkeys(("Pad", "Expand", "Tile", "Split", "Slice", "CenterCropPad", "TopK", "Clip", "CumSum", "CumProd",
                     "Trilu", "Col2Im", "CastLike",
                     "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "AffineGrid"), 1),
    **dict.fromkeys(("NonMaxSuppression", "ReverseSequence"), 2),
    **dict.fromkeys(("ConstantOfShape", "Range", "EyeLike", "OneHot", "RandomNormalLike", "RandomUniformLike"), 0),
    **{op: 1 for op in KINDS_OF if KINDS_OF[op] == "reduce"},
}  # fmt: skip
#: Operations per element where one node does more than one.
FLOPS_PER_ELEMENT: dict[str, int] = {"BiasGelu": 2, "BiasSplitGelu": 3, "RotaryEmbedding": 3, "AffineGrid": 6}
#: Nodes that only rename memory and launch nothing.
VIEWS = frozenset(
    "Identity Reshape Squeeze Unsqueeze Flatten Dropout StringNormalizer BitCast ReorderInput ReorderOutput".split()
)
NORMS: dict[str, str] = {
    "BatchNormalization": "batch", "LayerNormalization": "layer", "GroupNormalization": "group",
    "InstanceNormalization": "instance", "RMSNormalization": "rms", "SimplifiedLayerNormalization": "rms",
    "LRN": "lrn", "MeanVarianceNormalization": "instance", "LpNormalization": "layer", "GroupNorm": "group",
}  # fmt: skip
#: Nodes of com.microsoft that have the signature of a standard op.
SCHEMA_AS: dict[str, str] = {"FusedGemm": "Gemm"}
#: Ops whose output has the shape of the first input, for those that ONNX gives no shape rule of their own.
SAME_SHAPE = frozenset((*NORMS, "Gelu", "Swish", "QuickGelu", "RotaryEmbedding", "Softmax", "LogSoftmax", "Erfc"))


def data_dependent(node: Node, dims: list[int | str]) -> list[int] | None:
    """Upper bounds of data-dependent dimensions; None when there is no bound."""
    if node.op == "NonMaxSuppression":
        boxes, scores, most = node.need(0).shape, node.need(1).shape, node.input(2)
        per_class = boxes[1] if most is None or most.data is None else min(int(most.data.ravel()[0]), boxes[1])
        return [scores[0] * scores[1] * per_class, 3]
    if node.op in ("NonZero", "Compress", "Unique"):
        size = node.need(0).size
        return [d if isinstance(d, int) else size for d in dims]
    return None


def _conv(t: Trace, n: Node) -> None:
    quantized = n.op == "QLinearConv"
    x, w, bias = (n.need(0), n.need(3), n.input(8)) if quantized else (n.need(0), n.need(1), n.input(2))
    if n.op == "ConvInteger":
        bias = None
    if n.op in ("QLinearConv", "ConvInteger"):
        t.mark_weight(w, bias)
    if n.attrs.get("channels_last"):
        x = t.alias(x, (x.shape[0], x.shape[-1], *x.shape[1:-1]))
    unit = onnx_quantised.integer_product(t, n) if n.op == "ConvInteger" else onnx_quantised.unit_of(t, x, w)
    rank = len(w.shape) - 2
    t.emit(
        "conv", n, [x, w, bias],
        groups=int(n.attrs.get("group", 1)), transposed=n.op == "ConvTranspose",
        stride=list(n.attrs.get("strides", [1] * rank)), dilation=list(n.attrs.get("dilations", [1] * rank)), **unit,
    )  # fmt: skip
    if n.domain:
        onnx_blocked.epilogue(t, n, None if quantized else n.input(3))


def _deform_conv(t: Trace, n: Node) -> None:
    x, w, offset = n.need(0), n.need(1), n.need(2)
    rank = len(w.shape) - 2
    t.emit(
        "conv", n, [x, w, n.input(3), offset, n.input(4)], groups=int(n.attrs.get("group", 1)), transposed=False,
        stride=list(n.attrs.get("strides", [1] * rank)), dilation=list(n.attrs.get("dilations", [1] * rank)),
    )  # fmt: skip


def _gemm(t: Trace, n: Node) -> None:
    a, b, c = n.need(0), n.need(1), n.input(2)
    if n.op == "QGemm":
        a, b, c = n.need(0), n.need(3), n.input(6)
        t.mark_weight(b, c)
    a = t.swapped(a) if n.attrs.get("transA") else a
    b = t.swapped(b) if n.attrs.get("transB") else b
    t.product(n, a, b, c, **onnx_quantised.unit_of(t, a, b))
    if n.domain:
        onnx_blocked.epilogue(t, n, None)


def _matmul(t: Trace, n: Node) -> None:
    a, b = n.need(0), n.need(3 if n.op == "QLinearMatMul" else 1)
    place = {LINEAR: 2, "MatMulIntegerToFloat": 6, "DynamicQuantizeMatMul": 4}.get(n.op)
    bias = None if place is None else n.input(place)
    if n.op not in ("MatMul", LINEAR, "FusedMatMul", "TransposeMatMul"):
        t.mark_weight(b)
    a = t.swapped(a) if n.attrs.get("transA") else a
    b = t.swapped(b) if n.attrs.get("transB") else b
    integer = n.op in ("MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
    unit = onnx_quantised.integer_product(t, n) if integer else onnx_quantised.unit_of(t, a, b)
    if n.attrs.get("bias_apart"):
        whole = Value(n.out[0].shape, n.out[0].dtype)
        t.product(n, a, b, out=whole, name="MatMul", **unit)
        t.emit("elementwise", n, [whole, bias], name="Add")
    else:
        t.product(n, a, b, bias, name="Linear" if n.op == LINEAR else "", **unit)


def _einsum(t: Trace, n: Node) -> None:
    terms, _, result = n.attrs["equation"].replace(" ", "").partition("->")
    labels = terms.split(",")
    y = n.out[0]
    if len(labels) != 2 or "." in terms or any(len(set(s)) != len(s) for s in labels):
        kind = "unknown" if len(labels) > 1 else "copy" if y.size == n.need(0).size else "reduce"
        t.emit(kind, n, n.inputs, name=printable(f"Einsum {n.attrs['equation']}") if kind == "unknown" else "")
        return
    left, right = labels
    size = dict(zip(left, n.need(0).shape, strict=True)) | dict(zip(right, n.need(1).shape, strict=True))
    if not result:
        result = "".join(sorted(s for s in set(left + right) if (left + right).count(s) == 1))
    batch = [s for s in left if s in right and s in result]
    rows, columns = [s for s in left if s not in right], [s for s in right if s not in left]
    inner = [s for s in left if s in right and s not in result]
    if not inner:
        t.emit("elementwise", n, n.inputs)
        return
    lead = tuple(size[s] for s in batch)
    m, k, c = (math.prod(size[s] for s in group) for group in (rows, inner, columns))
    full = Value((*lead, m, c), y.dtype)
    t.emit("matmul", n, [t.alias(n.need(0), (*lead, m, k)), t.alias(n.need(1), (*lead, k, c))], [full],
           shared_b=not batch)  # fmt: skip
    y.tensor = t.alias(full, y.shape).tensor


def _norm(t: Trace, n: Node) -> None:
    inputs = list(n.inputs)
    if n.op == "BatchNormalization":
        for statistic in inputs[3:5]:
            if statistic is not None and statistic.tensor is None:
                statistic.role = "buffer"
    t.emit("norm", n, inputs, type=NORMS[n.op], training=False, **groups_of(n))


def _pool(t: Trace, n: Node) -> None:
    x = n.need(0)
    if n.attrs.get("channels_last"):
        x = t.alias(x, (x.shape[0], x.shape[-1], *x.shape[1:-1]))
    window = math.prod(x.shape[2:]) if "Global" in n.op else math.prod(n.attrs.get("kernel_shape", [1]))
    if n.op == "MaxRoiPool":
        window = math.prod(x.shape[2:]) // max(math.prod(n.out[0].shape[2:]), 1)
    t.emit("pool", n, [x], window=max(int(window), 1))


def _resize(t: Trace, n: Node) -> None:
    x, y = n.need(0), n.out[0]
    mode = str(n.attrs.get("mode", "nearest" if n.op != "GridSample" else "linear"))
    changed = sum(a != b for a, b in zip(x.shape, y.shape, strict=False)) if n.op != "GridSample" else len(x.shape) - 2
    if n.op == "RoiAlign":
        taps = 4 * max(int(n.attrs.get("sampling_ratio", 0)), 1) ** 2
    else:
        taps = {"n": 1, "l": 2, "b": 2, "c": 4}.get(mode[:1], 2) ** max(changed, 1)
        taps = 4 ** max(changed, 1) if mode == "bicubic" else taps
    t.emit("resize", n, [x] if n.op in ("Resize", "Upsample") else [x, n.input(1)], taps=taps)


def _rnn(t: Trace, n: Node) -> None:
    x, w, r = n.need(0), n.need(1), n.need(2)
    if n.attrs.get("layout"):
        x = t.alias(x, (x.shape[1], x.shape[0], *x.shape[2:]))
    directions, hidden = w.shape[0], int(n.attrs.get("hidden_size", r.shape[-1]))
    unit = {}
    if n.op == "DynamicQuantizeLSTM":
        t.mark_weight(w, r)
        unit = onnx_quantised.marked(t)
    t.emit(
        "rnn", n, [x, w, r, n.input(3), n.input(5), n.input(6), n.input(7)],
        cell=n.op.lower().removeprefix("dynamicquantize"), hidden=hidden, layers=1, directions=directions,
        steps=x.shape[0], **unit,
    )  # fmt: skip


def _fft(t: Trace, n: Node) -> None:
    """Complex numbers are pairs along the last axis. Which axis DFT transforms is an attribute, from opset 20 on an
    input; STFT transforms frames of a signal, as long as its window or its frame_length."""
    x = n.need(0)
    if n.op == "STFT":
        bins, known = n.out[0].shape[-2], (n.input(3), n.input(2))
        told = [int(v.data.ravel()[0]) for v in known[:1] if v is not None and v.data is not None]
        frame = [*told, *(v.shape[0] for v in known[1:] if v is not None and v.shape), bins][0]
        t.emit("fft", n, n.inputs[:2], pairs=True, frame=max(int(frame), bins))
        return
    axis = n.input(2)
    given = int(axis.data.ravel()[0]) if axis is not None and axis.data is not None else n.attrs.get("axis")
    place = given if given is not None else -2 if t.opsets.get("", 20) >= 20 else 1
    t.emit("fft", n, [x], axes=[int(place) % len(x.shape)], pairs=True)


def _gather(t: Trace, n: Node) -> None:
    x, index = n.need(0), n.need(1)
    if x.dtype in (TensorProto.INT8, TensorProto.UINT8) and len(x.shape) == 2:
        t.mark_weight(x)  # a quantized embedding
    table = t.is_weight(x) and len(x.shape) == 2 and int(n.attrs.get("axis", 0)) == 0
    t.emit("embedding" if table else "gather", n, [x, index])


def _view(t: Trace, n: Node) -> None:
    x = n.need(0)
    shape = n.out[0].shape
    n.out[0] = t.alias(x, shape, same=t.decide(n, shape == x.shape)) if x.items is None else x


def _transpose(t: Trace, n: Node) -> None:
    x = n.need(0)
    order = list(n.attrs.get("perm") or reversed(range(len(x.shape))))
    moved = [axis for axis in order if x.shape[axis] != 1]
    if x.constant or t.decide(n, moved == sorted(moved)):
        n.out[0] = t.alias(x, n.out[0].shape)
    else:
        t.emit("copy", n, [x])


def _cast(t: Trace, n: Node) -> None:
    x, y = n.need(0), n.out[0]
    if x.constant or t.ir_dtype(x) == t.ir_dtype(y):
        n.out[0] = t.alias(x, x.shape, y.dtype)
    else:
        t.emit("copy", n, [x])


def _concat(t: Trace, n: Node) -> None:
    parts = [v for v in n.inputs if v is not None and v.size]
    if t.decide(n, len(parts) == 1):
        n.out[0] = t.alias(parts[0], n.out[0].shape)
    else:
        t.emit("copy", n, parts)


def _pad(t: Trace, n: Node) -> None:
    """Old exporters put an empty Pad before every pool; it pads nothing."""
    x = n.need(0)
    if n.out[0].shape == x.shape:
        n.out[0] = t.alias(x, x.shape)
    else:
        t.emit("copy", n, [x])


def _dropout(t: Trace, n: Node) -> None:
    n.out[0] = t.alias(n.need(0), n.need(0).shape)
    if len(n.outputs) > 1 and n.outputs[1]:
        t.emit("fill", n, [], [n.out[1]])


HANDLERS: dict[str, Callable[[Trace, Node], None]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "QLinearConv", "ConvInteger", "FusedConv"), _conv),
    "DeformConv": _deform_conv,
    **dict.fromkeys(("Gemm", "FusedGemm", "QGemm"), _gemm),
    **dict.fromkeys(("MatMul", LINEAR, "FusedMatMul", "TransposeMatMul", "QLinearMatMul", "MatMulInteger",
                     "MatMulIntegerToFloat", "DynamicQuantizeMatMul"), _matmul),
    "Einsum": _einsum,
    **dict.fromkeys(NORMS, _norm),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool",
                     "MaxRoiPool", "MaxUnpool", "NhwcMaxPool", "QLinearAveragePool",
                     "QLinearGlobalAveragePool"), _pool),
    **dict.fromkeys(("Resize", "Upsample", "GridSample", "RoiAlign"), _resize),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _rnn),
    **dict.fromkeys(("DFT", "STFT"), _fft),
    **dict.fromkeys(VIEWS - {"Dropout"}, _view),
    "Pad": _pad, "Gather": _gather, "Transpose": _transpose, "Cast": _cast, "Concat": _concat,
    "Dropout": _dropout,
}  # fmt: skip
HANDLERS.update(onnx_fused.HANDLERS)
HANDLERS.update(onnx_quantised.HANDLERS)
SHAPE_RULES = onnx_blocked.SHAPE_RULES | onnx_fused.SHAPE_RULES


def emit(t: Trace, n: Node) -> None:
    """Converts a shaped node to ops, or to a view of its input."""
    if onnx_quantised.folded(t, n):
        return
    if (handler := HANDLERS.get(n.op)) is not None:
        handler(t, n)
        return
    kind = KINDS_OF.get(n.op)
    if kind is None:
        t.emit("unknown", n, n.inputs, name=printable(f"{n.domain}.{n.op}".lstrip(".")))
        return
    attrs: dict[str, Any] = {"flops": FLOPS_PER_ELEMENT[n.op]} if n.op in FLOPS_PER_ELEMENT else {}
    t.emit(kind, n, n.inputs[: DATA_INPUTS.get(n.op, len(n.inputs))], **attrs)
