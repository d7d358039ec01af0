"""One walk through an ONNX graph with every input shape known: shapes, host arithmetic, ops, tensors and storages.

Each node asks ONNX's own rule for its output shapes (`infer_node_outputs`, at the opset of the file, with the small
values found so far), so a Reshape fed by a chain of shape arithmetic is no barrier. Nodes whose values are known
vanish; nodes that only rename memory become views; the rest become ops through the table in `onnx_ops`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from forerun.errors import ForerunError
from forerun.graph.ir import DTYPE_BYTES, Op, Storage, Tensor
from forerun.graph.sources import onnx_eval

DTYPES: dict[int, str] = {
    TensorProto.FLOAT: "fp32", TensorProto.DOUBLE: "fp64", TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bf16",
    TensorProto.INT64: "int64", TensorProto.UINT64: "int64", TensorProto.INT32: "int32", TensorProto.UINT32: "int32",
    TensorProto.INT16: "int16", TensorProto.UINT16: "int16", TensorProto.INT8: "int8", TensorProto.UINT8: "uint8",
    TensorProto.BOOL: "bool", TensorProto.COMPLEX64: "complex64", TensorProto.COMPLEX128: "complex128",
    TensorProto.INT4: "int4", TensorProto.UINT4: "int4",
    TensorProto.STRING: "uint8",
}  # fmt: skip
#: Read as this opset at least: exporters left Resize's roi out before the standard allowed it.
MORE_LENIENT = {"Resize": 13}
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Float tensors that a module keeps beside its weights, by the name they have in a state dict.
_BUFFER_NAME = re.compile(
    r"(running_(mean|var)|moving_(mean|variance)|num_batches_tracked|inv_freq|attn_mask|position_ids|masked_bias"
    r"|relative_(position|coords)_(index|table)|anchors?|lookup|_cached)$"
)
_SCALAR_WEIGHT = re.compile(r"^[\w.]*(weight|bias|slope|scale|gamma|beta|alpha)$")


class UnsafeBatchError(Exception):
    """This graph does not work at the batch size that was tried."""


@dataclass(slots=True, eq=False)
class Value:
    """What a name in the ONNX graph stands for at this point of the walk."""

    shape: tuple[int, ...]
    dtype: int  # ONNX element type
    data: np.ndarray[Any, Any] | None = None  # known before the model runs
    tensor: int | None = None  # index in the IR; made when an op first needs it
    origin: frozenset[str] = frozenset()  # the initializers it is made of
    constant: bool = False
    role: str | None = None  # forced by the op that reads it: BatchNormalization statistics are a buffer
    packed: tuple[int, str] | None = None  # (elements, dtype) of a weight packed into bytes
    items: list[Value] | None = None  # a sequence

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(slots=True)
class Node:
    """One ONNX node with its inputs looked up, its attributes read and its outputs shaped."""

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
            raise ForerunError(f"ONNX node '{self.name}' ({self.op}) lacks its input {position}.")
        return value


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The node's attributes as plain Python values; tensors and graphs stay protos."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        found[attribute.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return found


def dims_of(kind: onnx.TypeProto) -> list[int | str] | None:
    """Dimensions of a type: a number, or the symbol ('' when it has none); None when even the rank is unknown."""
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]


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
    ) -> None:
        self.model = model
        self.shapes = shapes
        self.float_dtype = float_dtype  # what floating tensors become; None: as in the file
        self.rebatch = rebatch  # (batch in the file, batch asked, the walk at the file's batch)
        self.strict = strict  # the user chose shapes: a clash between them is an error, not an unknown
        # What vanishes at batch 1 by accident (a transpose over an axis of one) is decided as in the guide's walk, so
        # that the graph has the same ops at every batch.
        self.decisions: dict[str, bool] = {} if guide is None else guide.decisions
        self.opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
        self.from_torch = model.producer_name == "pytorch"
        self.described = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
        self.env: dict[str, Value] = {}
        self.ops: list[Op] = []
        self.tensors: list[Tensor] = []
        self.storages: list[Storage] = []
        self.counted: dict[str, int] = {}  # weight -> elements
        self.elements: dict[str, int] = {}  # initializer -> elements, for those that may be weights
        self.readers: dict[str, set[int]] = {}  # weight -> ops that read it
        self.protos: dict[str, onnx.TensorProto] = {}
        self.unknown: Counter[str] = Counter()
        self.notes: dict[str, None] = {}  # ordered set
        self.outputs: list[int] = []

    # -- the walk ------------------------------------------------------------------------------------------------

    def run(self) -> Trace:
        graph = self.model.graph
        self.bind_initializers(graph)
        for info in graph.input:
            if info.name not in self.env:
                self.env[info.name] = self.input_value(info)
        self.walk(graph)
        for info in graph.output:
            value = self.env.get(info.name)
            for item in [value] if value is not None and value.items is None else (value.items or [] if value else []):
                self.outputs.append(self.tensor(item))
        self.close_lifetimes()
        for op, count in self.unknown.items():
            self.notes[f"No cost law for ONNX op {op} ({count} node{'s' * (count > 1)}): only its bytes count."] = None
        return self

    def input_value(self, info: onnx.ValueInfoProto) -> Value:
        if info.type.HasField("sequence_type"):
            return Value((), TensorProto.FLOAT, items=[])
        value = Value(self.shapes.get(info.name, ()), info.type.tensor_type.elem_type)
        self.store(value, "input", -1)
        return value

    def bind_initializers(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self.env[tensor.name] = self.constant(tensor, tensor.name, weight=True)
            self.protos[tensor.name] = tensor
        for sparse in graph.sparse_initializer:
            dims, kind = tuple(sparse.dims), sparse.values.data_type
            name = sparse.values.name
            self.elements[name] = math.prod(sparse.values.dims)
            self.env[name] = Value(dims, kind, origin=frozenset({name}), constant=True)

    def constant(self, tensor: onnx.TensorProto, name: str, weight: bool) -> Value:
        shape = tuple(int(d) for d in tensor.dims)
        if any(d < 0 for d in shape):
            raise ForerunError(f"Tensor '{name}' in the ONNX file has a negative dimension.")
        size, data = math.prod(shape), None
        if size <= onnx_eval.MAX_CONSTANT and tensor.data_location != TensorProto.EXTERNAL:
            try:
                data = numpy_helper.to_array(tensor)
            except (ValueError, TypeError, IndexError):  # fewer bytes than the dimensions say: the values stay unknown
                data = None
        if data is not None and data.dtype == object:
            data = None
        floating = tensor.data_type in FLOATS  # integers are weights only where an op reads them so: mark_weight
        if weight and floating and (size > 1 or _SCALAR_WEIGHT.match(name)) and not _BUFFER_NAME.search(name):
            self.elements[name] = size
        return Value(shape, tensor.data_type, data, origin=frozenset({name}), constant=True)

    def walk(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            self.visit(node)

    def lookup(self, name: str, node: onnx.NodeProto) -> Value | None:
        if not name:
            return None
        if (value := self.env.get(name)) is None:
            raise ForerunError(f"ONNX node '{node.name}' ({node.op_type}) reads '{name}', which nothing produces.")
        return value

    def visit(self, proto: onnx.NodeProto) -> None:
        from forerun.graph.sources import onnx_control, onnx_ops

        domain = "" if proto.domain == "ai.onnx" else proto.domain
        node = Node(
            proto.op_type, domain, proto.name or (proto.output[0] if proto.output else ""), attributes(proto),
            [self.lookup(name, proto) for name in proto.input], list(proto.output),
        )  # fmt: skip
        if node.op in onnx_control.CONTROL and not domain:
            onnx_control.CONTROL[node.op](self, node)
            return
        if node.op == "Constant" and not domain:
            self.env[proto.output[0]] = self.constant_node(node)
            return
        if self.rebatch is not None:
            self.fit_batch(node, proto)
        if node.op == "Identity" and self.is_merged_weight(node.need(0)):
            self.elements[node.outputs[0]] = node.need(0).size
            self.env[node.outputs[0]] = replace(node.need(0), tensor=None, origin=frozenset(node.outputs), role=None)
            return
        read = node.inputs[:1] if node.op == "CastLike" else node.inputs
        known = all(v is None or v.data is not None for v in read)
        if node.op in ("Shape", "Size") and not domain:
            self.env[proto.output[0]] = self.shape_node(node)
            return
        node.out = self.infer(node, proto)
        if not (known and not domain and self.evaluate(node)):
            onnx_ops.emit(self, node)
        for name, value in zip(node.outputs, node.out, strict=False):
            if name:
                self.env[name] = value

    def is_merged_weight(self, value: Value) -> bool:
        """torch.onnx merges weights of equal value (every fresh LayerNorm is all ones) behind Identity nodes.

        When all their elements are one number they only look alike; otherwise they are tied.
        """
        if not self.from_torch or not value.constant or len(value.origin) != 1:
            return False
        tensor = self.protos.get(next(iter(value.origin)))
        if tensor is None or tensor.data_type not in FLOATS or value.size < 2:
            return False
        return self.is_uniform(tensor) is True

    @staticmethod
    def is_uniform(tensor: onnx.TensorProto) -> bool | None:
        """Whether all elements are the same number; None when the values are not in this file."""
        if tensor.data_location == TensorProto.EXTERNAL:
            return None
        try:
            data = numpy_helper.to_array(tensor)
        except (ValueError, TypeError):  # dropped, or cut short
            return None
        return bool((data == data.flat[0]).all()) if data.size else None

    def constant_node(self, node: Node) -> Value:
        name = node.outputs[0]
        if (tensor := node.attrs.get("value")) is not None and isinstance(tensor, onnx.TensorProto):
            # torch.onnx keeps weights in initializers and literals in Constant nodes; other exporters mix them.
            return self.constant(tensor, name, weight=not self.from_torch and math.prod(tensor.dims) > 1)
        for key, value in node.attrs.items():
            if key.startswith("value_") and "string" not in key:
                data = np.array(value, dtype=np.int64 if "int" in key else np.float32)
                kind = TensorProto.INT64 if "int" in key else TensorProto.FLOAT
                return Value(data.shape, kind, data, constant=True)
        if (sparse := node.attrs.get("sparse_value")) is not None:
            return Value(tuple(sparse.dims), sparse.values.data_type, constant=True)
        return Value((), TensorProto.STRING, constant=True)

    def shape_node(self, node: Node) -> Value:
        shape = node.need(0).shape
        if node.op == "Size":
            data = np.array(math.prod(shape), dtype=np.int64)
        else:
            data = np.array(shape[slice(node.attrs.get("start"), node.attrs.get("end"))], dtype=np.int64)
        return Value(data.shape, TensorProto.INT64, data, constant=True)

    # -- shapes --------------------------------------------------------------------------------------------------

    def infer(self, node: Node, proto: onnx.NodeProto) -> list[Value]:
        """Shaped, still empty values for the node's outputs."""
        from forerun.graph.sources import onnx_ops

        if (rule := onnx_ops.SHAPE_RULES.get(node.op)) is not None and (node.domain or not self.has_schema(node)):
            return rule(node)
        first = next((v for v in node.inputs if v is not None), None)
        fallback = Value(first.shape, first.dtype) if first else Value((), TensorProto.FLOAT)
        known: dict[str, Value] = {}
        try:
            known = self.schema_types(node, proto)
        except onnx.shape_inference.InferenceError as error:
            if self.rebatch is not None:
                raise UnsafeBatchError(f"node '{node.name}' ({node.op})") from error
            if self.strict:
                reason = str(error).split("] ")[-1].strip().splitlines()[0].rstrip(".")
                raise ForerunError(
                    f"These input shapes do not fit node '{node.name}' ({node.op}) of the ONNX file: {reason}."
                ) from error
        except (onnx.defs.SchemaError, onnx.checker.ValidationError):
            if rule is not None:  # onnxruntime writes some of its nodes under the standard domain
                return rule(node)
        out = []
        for name in node.outputs:
            if name in known:
                out.append(known[name])
                continue
            if name and node.op not in onnx_ops.SAME_SHAPE:
                out.append(self.declared(name) or Value(fallback.shape, fallback.dtype))
                if node.op in onnx_ops.KINDS_OF and self.declared(name) is None:
                    self.notes[f"The shape '{node.name}' ({node.op}) returns is unknown: its input's is taken."] = None
            else:
                out.append(Value(fallback.shape, fallback.dtype))
        if node.op == "Reshape" and not node.domain and out[0].size != node.need(0).size:
            if self.rebatch is not None:
                raise UnsafeBatchError(f"node '{node.name}' (Reshape)")
            raise ForerunError(
                f"Reshape '{node.name}' of the ONNX file cannot turn {list(node.need(0).shape)} into "
                f"{list(out[0].shape)}; give the input shape the file was made for."
            )
        return out

    def has_schema(self, node: Node) -> bool:
        return bool(onnx.defs.has(node.op, node.domain))

    def schema_types(self, node: Node, proto: onnx.NodeProto) -> dict[str, Value]:
        from forerun.graph.sources import onnx_ops

        if node.op in onnx_ops.SCHEMA_AS and node.domain:
            proto = helper.make_node(onnx_ops.SCHEMA_AS[node.op], list(proto.input), list(proto.output))
            proto.attribute.extend(a for a in self.proto_attributes(node) if not a.name.startswith("activation"))
        version = self.opsets.get("" if node.op in onnx_ops.SCHEMA_AS else node.domain, onnx.defs.onnx_opset_version())
        schema = onnx.defs.get_schema(proto.op_type, max(version, MORE_LENIENT.get(proto.op_type, 0)), proto.domain)
        types: dict[str, onnx.TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for name, value in zip(proto.input, node.inputs, strict=False):
            if value is None:
                continue
            types[name] = helper.make_tensor_type_proto(value.dtype, value.shape)
            if value.data is not None and value.data.size <= 1024:
                data[name] = self.as_proto(value)
        inferred = shape_inference.infer_node_outputs(
            schema, proto, types, data,
            opset_imports=[helper.make_opsetid(d, v) for d, v in self.opsets.items()], ir_version=self.model.ir_version,
        )  # fmt: skip
        found: dict[str, Value] = {}
        for name, kind in inferred.items():
            dims = dims_of(kind)
            if dims is None or not kind.tensor_type.elem_type:
                continue
            if any(isinstance(d, str) for d in dims):
                bound = onnx_ops.data_dependent(node, dims)
                if bound is None:
                    continue
                self.notes[f"{node.op} returns as many results as the data hold; its upper bound is counted."] = None
                dims = [*bound]
            found[name] = Value(tuple(int(d) for d in dims), kind.tensor_type.elem_type)
        return found

    def proto_attributes(self, node: Node) -> list[onnx.AttributeProto]:
        return [helper.make_attribute(k, v) for k, v in node.attrs.items()]

    def as_proto(self, value: Value) -> onnx.TensorProto:
        assert value.data is not None
        kind = helper.tensor_dtype_to_np_dtype(value.dtype)
        return numpy_helper.from_array(np.ascontiguousarray(value.data, dtype=kind).reshape(value.shape))

    def declared(self, name: str) -> Value | None:
        """What the file itself says about a value, when every dimension of it is a number."""
        if self.rebatch is not None:
            return None
        info = self.described.get(name)
        dims = None if info is None else dims_of(info.type)
        if info is None or dims is None or any(isinstance(d, str) for d in dims):
            return None
        return Value(tuple(int(d) for d in dims), info.type.tensor_type.elem_type)

    def decide(self, node: Node, verdict: bool) -> bool:
        """Whether the node launches nothing; the first walk's verdict holds for all."""
        return self.decisions.setdefault(node.outputs[0], verdict)

    def evaluate(self, node: Node) -> bool:
        """Give the outputs their values when they are small and known; the node then runs on the host, if at all."""
        if not node.out or not self.decide(node, all(onnx_eval.keeps(v.shape) for v in node.out)):
            return False
        inputs = [v.data if v is not None else None for v in node.inputs]
        arrays: list[Any] | None
        if node.op == "Cast" or node.op == "CastLike":
            kind = helper.tensor_dtype_to_np_dtype(node.out[0].dtype)
            with np.errstate(all="ignore"):
                arrays = [np.asarray(inputs[0]).astype(kind)]
        elif node.op == "ConstantOfShape":
            fill = node.attrs.get("value")
            value = numpy_helper.to_array(fill).ravel()[0] if fill is not None else np.float32(0)
            arrays = [np.full(node.out[0].shape, value)]
        else:
            arrays = onnx_eval.evaluate(node.op, node.attrs, inputs, len(node.outputs))
        if arrays is None:
            return False
        origin = frozenset().union(*(v.origin for v in node.inputs if v is not None))
        for value, array in zip(node.out, arrays, strict=False):
            value.shape, value.data, value.constant, value.origin = array.shape, array, True, origin
        return True

    # -- another batch than the file's ---------------------------------------------------------------------------

    def fit_batch(self, node: Node, proto: onnx.NodeProto) -> None:
        """Constants that spell out the file's batch size follow the batch that was asked for."""
        assert self.rebatch is not None
        old, new, base = self.rebatch
        if node.op == "Reshape" and not node.domain:
            x, before = node.need(0), base.env.get(proto.input[0])
            out = base.env.get(proto.output[0])
            if before is None or out is None or x.size == before.size:
                return
            target = node.input(1)
            if target is not None and target.data is None:
                return
            spelled = [int(d) for d in (node.attrs["shape"] if target is None else np.ravel(target.data))]  # type: ignore[arg-type]
            base_target = base.env.get(proto.input[1]) if target is not None else None
            moved = base_target is not None and base_target.data is not None and (
                np.ravel(base_target.data).tolist() != spelled
            )  # fmt: skip
            if moved or not spelled or spelled[0] in (0, -1) or x.shape[0] == before.shape[0]:
                return  # the target follows the batch by itself; a wrong size is found after inference
            if out.shape[0] * new % old:
                raise UnsafeBatchError(f"node '{node.name}' (Reshape)")
            fitted = np.array([out.shape[0] * new // old, *out.shape[1:]], dtype=np.int64)
            if target is None:
                node.attrs["shape"] = fitted.tolist()
                raise UnsafeBatchError(f"node '{node.name}' (Reshape)")
            node.inputs[1] = Value(fitted.shape, TensorProto.INT64, fitted, constant=True)
        elif node.op == "Concat" and not node.domain and node.attrs.get("axis", 0) != 0:
            lead = max(v.shape[0] for v in node.inputs if v is not None and v.shape)
            for position, value in enumerate(node.inputs):
                # A class token baked in as [1, 1, 768] beside patches that now are [new, 196, 768].
                if value is not None and value.shape and value.shape[0] == old != lead:
                    shape = (lead, *value.shape[1:])
                    node.inputs[position] = replace(value, shape=shape, data=None, tensor=self.tensor(value))

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
        self.tensors.append(Tensor(value.shape, dtype, len(self.storages) - 1, born))
        value.tensor = len(self.tensors) - 1
        return value.tensor

    def is_weight(self, value: Value) -> bool:
        return value.role != "buffer" and (value.dtype in FLOATS or value.role == "parameter") and any(
            name in self.elements for name in value.origin
        )  # fmt: skip

    def count(self, value: Value) -> None:
        if value.constant and self.is_weight(value):
            for name in value.origin & self.elements.keys():
                self.counted[name] = self.elements[name]

    def tensor(self, value: Value) -> int:
        """The IR tensor of a value, made now if no op needed it before."""
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
        other = Value(tuple(shape), kind, None, None, value.origin, value.constant, value.role)
        base = self.tensors[self.tensor(value)]
        self.tensors.append(Tensor(other.shape, base.dtype, base.storage, base.producer))
        other.tensor = len(self.tensors) - 1
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

    def product(self, node: Node, a: Value, b: Value, bias: Value | None = None, out: Value | None = None) -> None:
        """Append one GEMM (or one per leading index) for `a @ b`, whatever the ranks."""
        y = node.out[0] if out is None else out
        if len(a.shape) == 1:
            a = self.alias(a, (1, *a.shape))
        if len(b.shape) == 1:
            b = self.alias(b, (*b.shape, 1))
        full = Value((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), y.dtype)
        self.emit("matmul", node, [a, b, bias], [full], shared_b=len(b.shape) == 2)
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
        """Append an op. A scalar constant travels in the launch itself and is no tensor."""
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
        outs = [v for n, v in zip(node.outputs, node.out, strict=False) if n] if outputs is None else outputs
        written = [self.store(v, "activation", index) for v in outs]
        self.ops.append(Op(kind, name or node.op, tuple(read), tuple(written), attrs, node.name))

    def close_lifetimes(self) -> None:
        kept = {self.tensors[t].storage for t in self.outputs}
        for storage in self.storages:
            storage.dies = storage.born if storage.role == "activation" else None
        for index, op in enumerate(self.ops):
            for tensor in op.inputs:
                storage = self.storages[self.tensors[tensor].storage]
                if storage.role == "activation":
                    storage.dies = index
        for index in kept:
            self.storages[index].dies = None
