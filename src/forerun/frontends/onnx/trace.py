"""The IR of an ONNX model while it is built: ops, tensors and storages, and which constants are weights."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from forerun.errors import ForerunError
from forerun.frontends.onnx import eval as onnx_eval
from forerun.frontends.onnx.calls import Rejoined, rejoined
from forerun.frontends.onnx.read import graphs
from forerun.frontends.onnx.values import DTYPES, FLOATS, Node, Value
from forerun.graph.ir import DTYPE_BYTES, Op, Storage, Tensor

#: Float buffers of a module, by their names in a state dict.
_BUFFER_NAME = re.compile(
    r"(running_(mean|var)|moving_(mean|variance)|num_batches_tracked|inv_freq|attn_mask|position_ids|masked_bias"
    r"|relative_(position|coords)_(index|table)|anchors?|lookup|_cached)$"
)
#: The most nodes to which all loops of a model are unrolled where sizes change between iterations, and that the host
#: evaluates to count iterations: beyond that, sizes of a first iteration are used, and the count is unknown.
MOST_UNROLLED, MOST_EVALUATIONS = 8192, 60_000
_SCALAR_WEIGHT = re.compile(r"^[\w.]*(weight|bias|slope|scale|gamma|beta|alpha)$")


class Trace:
    """The IR of one ONNX model at one set of input shapes."""

    def __init__(
        self,
        model: onnx.ModelProto,
        shapes: dict[str, tuple[int, ...]],
        float_dtype: str | None = None,
        rebatch: tuple[int, int, Trace] | None = None,
        strict: bool = False,
        guide: Trace | None = None,
        eager: bool = False,
        tape: list[Node] | None = None,
    ) -> None:
        self.model = model
        self.shapes = shapes
        self.float_dtype = float_dtype  # the dtype of floating tensors; None: as in the file
        self.rebatch = rebatch  # (batch in the file, requested batch, the walk at the file's batch)
        self.strict = strict  # the user chose shapes: a clash between them is an error, not an unknown
        # Nodes that vanish at batch 1 by accident (a transpose over an axis of size 1) follow the guide's walk, so that
        # the graph has the same ops at every batch.
        self.decisions: dict[str, bool] = {} if guide is None else guide.decisions
        self.turns: dict[Any, Any] = {} if guide is None else guide.turns  # of loops that were counted before
        self.eager = eager  # as eager PyTorch runs it, not as the file writes it
        self.tape = tape  # nodes that run on the device are written down here and become no ops: see `training`
        self.opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
        self.from_torch = model.producer_name == "pytorch"
        self.described = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
        self.readers_of = _readers(model.graph)
        self.rejoined = rejoined(model.graph, tape is not None) if eager else Rejoined()
        self.output_names = {info.name for info in model.graph.output}
        self.env: dict[str, Value] = {}
        self.ops: list[Op] = []
        self.tensors: list[Tensor] = []
        self.storages: list[Storage] = []
        self.members: dict[int, list[Tensor]] = {}  # storage -> the tensors in it
        self.read: set[int] = set()  # storages that an op has read
        self.counted: dict[str, int] = {}  # weight -> elements
        self.elements: dict[str, int] = {}  # initializer -> elements, for those that may be weights
        self.readers: dict[str, set[int]] = {}  # weight -> ops that read it
        self.protos: dict[str, onnx.TensorProto] = {}
        self.notes: dict[str, None] = {}  # ordered set
        self.exact = True  # no shape so far was assumed
        self.unrolled_left = MOST_UNROLLED
        self.evaluations_left = MOST_EVALUATIONS
        self.outputs: list[int] = []
        self.views = 0  # nodes that are only views
        self.in_turns = 0  # the depth of loops around the current node

    def bind_initializers(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self.env[tensor.name] = self.constant(tensor, tensor.name, weight=True)
            self.protos[tensor.name] = tensor
        for sparse in graph.sparse_initializer:
            dims, kind = tuple(sparse.dims), sparse.values.data_type
            name = sparse.values.name
            self.elements[name] = math.prod(sparse.values.dims)
            self.env[name] = Value(dims, kind, origin=frozenset({name}), constant=True, fixed=True)

    def constant(self, tensor: onnx.TensorProto, name: str, weight: bool) -> Value:
        shape = tuple(int(d) for d in tensor.dims)
        if any(d < 0 for d in shape):
            raise ForerunError(f"tensor '{name}' in the ONNX file has a negative dimension")
        size, data = math.prod(shape), None
        if size <= onnx_eval.MAX_CONSTANT and tensor.data_location != TensorProto.EXTERNAL:
            try:
                data = numpy_helper.to_array(tensor)
            except (ValueError, TypeError, IndexError):  # fewer bytes than the dimensions need: values stay unknown
                data = None
        if data is not None and data.dtype == object:
            data = None
        floating = tensor.data_type in FLOATS  # integers are weights only where an op reads them so: mark_weight
        if weight and floating and (size > 1 or _SCALAR_WEIGHT.match(name)) and not _BUFFER_NAME.search(name):
            self.elements[name] = size
        return Value(shape, tensor.data_type, data, origin=frozenset({name}), constant=True, fixed=True)

    def changeable(self, value: Value) -> Value:
        """The value over the same memory, marked as depending on inputs."""
        if value.fixed and value.data is None and value.items is None:
            self.tensor(value)
        return replace(value, fixed=False) if value.fixed else value

    @staticmethod
    def is_uniform(tensor: onnx.TensorProto) -> bool | None:
        """Whether all elements are equal; None when the values are not in this file."""
        if tensor.data_location == TensorProto.EXTERNAL:
            return None
        try:
            data = numpy_helper.to_array(tensor)
        except (ValueError, TypeError):  # dropped, or truncated
            return None
        return bool((data == data.flat[0]).all()) if data.size else None

    def decide(self, node: Node, verdict: bool) -> bool:
        """Whether the node launches nothing; the first walk decides for all."""
        return self.decisions.setdefault(node.outputs[0], verdict)

    # -- the IR --------------------------------------------------------------------------------------------------

    def ir_dtype(self, value: Value) -> str:
        if value.dtype in FLOATS and self.float_dtype is not None:
            return self.float_dtype
        if value.dtype in DTYPES:
            return DTYPES[value.dtype]
        return "fp8" if "FLOAT8" in TensorProto.DataType.Name(value.dtype) else "int4"

    def store(self, value: Value, role: str, born: int) -> int:
        dtype, size = self.ir_dtype(value), value.size
        if value.packed is not None:
            size, dtype = value.packed
        elif value.data is not None and value.origin and not value.data.size:
            size = 0
        self.storages.append(Storage(math.ceil(size * DTYPE_BYTES[dtype]), role, born))
        value.tensor = self._add(Tensor(value.shape, dtype, len(self.storages) - 1, born))
        return value.tensor

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        self.members.setdefault(tensor.storage, []).append(tensor)
        return len(self.tensors) - 1

    def is_shared(self, name: str) -> bool:
        """Whether a value is used by more than one node, or leaves the model."""
        return name in self.output_names or (len(self.readers_of.get(name, ())) > 1 and not self.quantized_next(name))

    def quantized_next(self, name: str) -> bool:
        """Whether all readers of a value quantize it."""
        return name not in self.output_names and set(self.readers_of.get(name, ())) == {"QuantizeLinear"}

    def is_weight(self, value: Value) -> bool:
        return value.role != "buffer" and (value.dtype in FLOATS or value.role == "parameter") and any(
            name in self.elements for name in value.origin
        )  # fmt: skip

    def count(self, value: Value) -> None:
        if value.constant and self.is_weight(value):
            for name in value.origin & self.elements.keys():
                self.counted[name] = self.elements[name]

    def tensor(self, value: Value) -> int:
        """The IR tensor of a value, created on first use."""
        if value.tensor is None:
            role = "parameter" if self.is_weight(value) else "buffer"
            self.store(value, role if value.constant else "activation", -1)
        assert value.tensor is not None
        return value.tensor

    def alias(self, value: Value, shape: Sequence[int], dtype: int | None = None, same: bool | None = None) -> Value:
        """Another shape over the same memory."""
        kind = value.dtype if dtype is None else dtype
        if (tuple(shape) == value.shape and kind == value.dtype) if same is None else same:
            return value
        other = Value(tuple(shape), kind, None, None, value.origin, value.constant, value.role, shared=value.shared)
        base = self.tensors[self.tensor(value)]
        other.tensor = self._add(Tensor(other.shape, base.dtype, base.storage, base.producer))
        return other

    def mark_weight(self, *values: Value | None) -> None:
        """Integer constants that an op reads as quantized weights count as parameters."""
        for value in values:
            if value is not None and value.constant and value.tensor is None and value.role is None:
                value.role = "parameter"
                for name in value.origin:
                    self.elements.setdefault(name, value.size)

    def swapped(self, value: Value) -> Value:
        return self.alias(value, (*value.shape[:-2], value.shape[-1], value.shape[-2]))

    def product(
        self, node: Node, a: Value, b: Value, bias: Value | None = None, out: Value | None = None, **attrs: Any
    ) -> None:
        """Appends one GEMM (or one per leading index) for `a @ b`, whatever the ranks."""
        y = node.out[0] if out is None else out
        if len(a.shape) == 1:
            a = self.alias(a, (1, *a.shape))
        if len(b.shape) == 1:
            b = self.alias(b, (*b.shape, 1))
        full = Value((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), y.dtype)
        self.emit("matmul", node, [a, b, bias], [full], shared_b=len(b.shape) == 2, **attrs)
        y.tensor = self.alias(full, y.shape).tensor

    def emit(
        self,
        kind: str,
        node: Node,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value] | None = None,
        name: str = "",
        **attrs: Any,
    ) -> None:
        """Appends an op. A scalar constant is a launch argument and not a tensor."""
        index, read = len(self.ops), []
        for position, value in enumerate(inputs):
            if value is None:
                continue
            self.count(value)
            for origin in value.origin if value.constant else ():
                self.readers.setdefault(origin, set()).add(index)
            inline = value.constant and value.size <= 1 and kind not in ("matmul", "conv")
            if self.decisions.setdefault(f"{node.outputs[0]}#{kind}#{position}", inline):
                continue
            read.append(self.tensor(value))
            self.read.add(self.tensors[read[-1]].storage)
        outs = [v for n, v in zip(node.outputs, node.out, strict=False) if n] if outputs is None else outputs
        written = [self.store(v, "activation", index) for v in outs]
        self.ops.append(Op(kind, name or node.op, tuple(read), tuple(written), attrs, node.name))

    def close_lifetimes(self) -> None:
        storages = {self.tensors[t].storage for t in self.outputs}
        for storage in self.storages:
            storage.dies = storage.born if storage.role == "activation" else None
        for index, op in enumerate(self.ops):
            for tensor in op.inputs:
                storage = self.storages[self.tensors[tensor].storage]
                if storage.role == "activation":
                    storage.dies = index
        for index in storages:
            self.storages[index].dies = None


def _readers(graph: onnx.GraphProto) -> dict[str, list[str]]:
    """The op types that read every value; Shape does not read."""
    readers: dict[str, list[str]] = {}
    for inner in graphs(graph):
        for node in inner.node:
            if node.op_type not in ("Shape", "Size"):
                for name in node.input:
                    readers.setdefault(name, []).append(node.op_type)
        if inner is not graph:
            for info in inner.output:
                readers.setdefault(info.name, []).append("")
    return readers
