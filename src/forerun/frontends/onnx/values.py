"""Parts of an ONNX graph while it is read: values, nodes with resolved inputs, element types."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from forerun.errors import ForerunError

DTYPES: dict[int, str] = {
    TensorProto.FLOAT: "fp32", TensorProto.DOUBLE: "fp64", TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bf16",
    TensorProto.INT64: "int64", TensorProto.UINT64: "int64", TensorProto.INT32: "int32", TensorProto.UINT32: "int32",
    TensorProto.INT16: "int16", TensorProto.UINT16: "int16", TensorProto.INT8: "int8", TensorProto.UINT8: "uint8",
    TensorProto.BOOL: "bool", TensorProto.COMPLEX64: "complex64", TensorProto.COMPLEX128: "complex128",
    TensorProto.INT4: "int4", TensorProto.UINT4: "int4",
    TensorProto.STRING: "uint8",
}  # fmt: skip
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


class UnsafeBatchError(Exception):
    """The graph fails at the batch size that was tried."""


@dataclass(slots=True, eq=False)
class Value:
    """The value of a name in the ONNX graph at this point of the walk."""

    shape: tuple[int, ...]
    dtype: int  # ONNX element type
    data: np.ndarray[Any, Any] | None = None  # known before the model runs
    tensor: int | None = None  # index in the IR; created on first use by an op
    origin: frozenset[str] = frozenset()  # the initializers that it derives from
    constant: bool = False
    role: str | None = None  # forced by the op that reads it: BatchNormalization statistics are a buffer
    packed: tuple[int, str] | None = None  # (elements, dtype) of a weight packed into bytes
    items: list[Value] | None = None  # a sequence
    shared: bool = False  # more than one node reads it, or it leaves the model
    scale: bool = False  # a scale or zero point that is computed at run time
    accumulator: bool = False  # the accumulator of an 8-bit matmul, before scaling
    strides: tuple[int, ...] | None = None  # in eager PyTorch; None: contiguous
    fixed: bool = False  # derived from the file alone: independent of inputs and their shapes

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(slots=True)
class Node:
    """One ONNX node with its inputs resolved, its attributes read and its outputs shaped."""

    op: str
    domain: str
    name: str
    attrs: dict[str, Any]
    inputs: list[Value | None]
    outputs: list[str]
    out: list[Value] = field(default_factory=list)

    def input(self, position: int) -> Value | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def need(self, position: int) -> Value:
        value = self.input(position)
        if value is None:
            raise ForerunError(f"ONNX node '{self.name}' ({self.op}) lacks its input {position}")
        return value


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The node's attributes as plain Python values; tensors and graphs stay protos."""
    values: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        values[attribute.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return values


def dims_of(kind: onnx.TypeProto) -> list[int | str] | None:
    """Dimensions of a type: a number, or the symbol ('' when it has none); None when even the rank is unknown."""
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]


def printable(text: str) -> str:
    """A name from the file, without line breaks and terminal control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)


def groups_of(n: Node) -> dict[str, Any]:
    """How many groups a group norm has; other norms have none."""
    groups = n.attrs.get("num_groups", n.attrs.get("groups"))
    return {} if groups is None else {"groups": int(groups)}


def no_gradient(node: Node, what: str = "") -> ForerunError:
    """Why a file cannot be trained: the operator, by its name, and where it is."""
    name = printable(f"{node.domain}.{node.op}".lstrip("."))
    return ForerunError(
        f"training needs the gradient of {name}{' ' if what else ''}{what}, for which there is no rule "
        f"(node '{printable(node.name)}'); pass the model that the file was made from instead"
    )
