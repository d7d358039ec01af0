"""8-bit arithmetic in ONNX files: quantize and dequantize steps become part of the convolutions and matmuls around
them.

Runtimes run `dequantize, convolve, quantize` as one kernel that reads and writes 8-bit numbers. So a dequantized tensor
is its 8-bit memory under another type, and a quantized tensor is written in 8 bits by the op that produces it. A step
stays a separate kernel only where it cannot be fused: at the model's inputs and outputs, and where a tensor is also
used unquantized.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnx import TensorProto

from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import Node, Value
from forerun.graph.ir import DTYPE_BYTES
from forerun.runtimes.notes import INT8_NOTE

_BYTES = ("int8", "uint8")
#: Clamps that a kernel applies when it rounds its result.
_CLAMPS = ("Relu", "Clip")
#: Ops on scales and zero points before the matmul that uses them.
_SCALE_ARITHMETIC = frozenset("Mul Div Add Sub Floor Ceil Round Clip Cast Reshape Squeeze Unsqueeze Identity".split())


def unit_of(t: Trace, a: Value, b: Value) -> dict[str, Any]:
    """The attribute that marks an 8-bit matmul; empty for others."""
    dtypes = [t.tensors[t.tensor(v)].dtype for v in (a, b)]
    return marked(t) if all(dtype in _BYTES for dtype in dtypes) else {}


def marked(t: Trace) -> dict[str, Any]:
    """The attribute of an 8-bit matmul, with its note."""
    t.notes[INT8_NOTE] = None
    return {"unit": "int8"}


def integer_product(t: Trace, n: Node) -> dict[str, Any]:
    """MatMulInteger, ConvInteger and their fused forms: the attribute, and accumulators that are scaled to floats."""
    n.out[0].accumulator = n.op in ("MatMulInteger", "ConvInteger")
    return marked(t)


def quantize(t: Trace, n: Node) -> None:
    """QuantizeLinear: the op that produced the tensor writes it in 8 bits, where no other op reads it unquantized."""
    x, y = n.need(0), n.out[0]
    if x.constant:
        role = "parameter" if t.is_weight(x) else x.role
        n.out[0] = Value(x.shape, y.dtype, origin=x.origin, constant=True, role=role)
    elif t.decide(n, t.tensors[t.tensor(x)].dtype in _BYTES or _can_be_written_as(t, x)):
        _rewrite(t, x, t.ir_dtype(y))
        n.out[0] = t.alias(x, x.shape, y.dtype)
    else:
        t.emit("elementwise", n, [x])


def _can_be_written_as(t: Trace, x: Value) -> bool:
    storage = t.tensors[t.tensor(x)].storage
    return not x.shared and t.storages[storage].role == "activation" and storage not in t.read


def _rewrite(t: Trace, x: Value, dtype: str) -> None:
    """Changes the type of the memory of a value."""
    place = t.tensors[t.tensor(x)].storage
    if t.tensors[t.tensor(x)].dtype == dtype:
        return
    for tensor in t.members[place]:
        tensor.dtype = dtype
        t.storages[place].bytes = math.ceil(math.prod(tensor.shape) * DTYPE_BYTES[dtype])


def dequantize(t: Trace, n: Node) -> None:
    """DequantizeLinear: readers of the result read the 8-bit memory and dequantize on the fly."""
    x = n.need(0)
    if x.constant:
        t.mark_weight(x)
        t.count(x)
    elif n.outputs[0] in t.output_names:
        t.emit("elementwise", n, [x])
        return
    n.out[0] = t.alias(x, x.shape, n.out[0].dtype)


def dynamic_quantize(t: Trace, n: Node) -> None:
    """DynamicQuantizeLinear: part of the matmuls that read it, with its scale and zero point."""
    x = n.need(0)
    n.out[0] = t.alias(x, x.shape, n.out[0].dtype)
    for value in n.out[1:]:
        value.scale = True


def folded(t: Trace, n: Node) -> bool:
    """Whether the node is part of a quantized op before it: the arithmetic of scales, a bias, a clamp."""
    values = [v for v in n.inputs if v is not None]
    if n.domain or not values:
        return False
    moving = [v for v in values if not v.constant]
    if n.op in _SCALE_ARITHMETIC and moving and all(v.scale for v in moving):
        _keep(t, [v for v in values if v.constant])
        for value in n.out:
            value.scale = True
        return True
    sums = [v for v in moving if v.accumulator]
    others = [v for v in values if not v.accumulator]
    if len(sums) == 1 and not sums[0].shared and n.out[0].shape == sums[0].shape:
        scaled = n.op in ("Mul", "Add") and all(v.scale for v in others)
        biased = n.op == "Add" and all(v.constant for v in others)
        if n.op == "Cast" or scaled or biased:
            _keep(t, others if biased else [])
            _rewrite(t, sums[0], t.ir_dtype(Value((), TensorProto.FLOAT)))
            n.out[0] = t.alias(sums[0], n.out[0].shape, n.out[0].dtype, same=False)
            n.out[0].accumulator = not biased
            return True
    if n.op in _CLAMPS and len(moving) == 1 and _clamps_int8(t, n, moving[0]):
        n.out[0] = t.alias(moving[0], n.out[0].shape, same=False)
        return True
    return False


def _keep(t: Trace, constants: list[Value]) -> None:
    """Weights that a folded node reads stay in memory and count."""
    for value in constants:
        if t.is_weight(value) and value.size > 1:
            t.count(value)
            t.tensor(value)


def _clamps_int8(t: Trace, n: Node, x: Value) -> bool:
    """Whether a clamp is between an 8-bit matmul and the rounding of its result."""
    if x.tensor is None or not t.quantized_next(n.outputs[0]) or not _can_be_written_as(t, x):
        return False
    producer = t.tensors[x.tensor].producer
    return producer >= 0 and t.ops[producer].attrs.get("unit") == "int8"


HANDLERS: dict[str, Callable[[Trace, Node], None]] = {
    "QuantizeLinear": quantize, "DequantizeLinear": dequantize, "DynamicQuantizeLinear": dynamic_quantize,
}  # fmt: skip
