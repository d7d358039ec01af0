"""Shapes of a node's outputs: ONNX's own rule, at the opset of the file, with the small values known so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from forerun.errors import ForerunError
from forerun.frontends.onnx.ops import SAME_SHAPE, SCHEMA_AS, SHAPE_RULES, data_dependent
from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import Node, UnsafeBatchError, Value, dims_of

#: Read as this opset at least: exporters omitted Resize's roi before the standard allowed it.
MORE_LENIENT = {"Resize": 13}


def infer(t: Trace, node: Node, proto: onnx.NodeProto) -> list[Value]:
    """Shaped, still empty values for the node's outputs."""
    if (rule := SHAPE_RULES.get(node.op)) is not None and (node.domain or not onnx.defs.has(node.op, node.domain)):
        return rule(node)
    first = next((v for v in node.inputs if v is not None), None)
    fallback = Value(first.shape, first.dtype) if first else Value((), TensorProto.FLOAT)
    known: dict[str, Value] = {}
    try:
        known = _own_rule(node) or _schema_types(t, node, proto)
    except onnx.shape_inference.InferenceError as error:
        if t.rebatch is not None:
            raise UnsafeBatchError(f"node '{node.name}' ({node.op})") from error
        if t.strict and t.exact:
            reason = str(error).split("] ")[-1].strip().splitlines()[0].rstrip(".")
            raise ForerunError(
                f"these input shapes do not fit node '{node.name}' ({node.op}) of the ONNX file: {reason}"
            ) from error
    except (onnx.defs.SchemaError, onnx.checker.ValidationError):
        if rule is not None:  # onnxruntime writes some of its nodes under the standard domain
            return rule(node)
    out = []
    for name in node.outputs:
        if name in known:
            out.append(known[name])
            continue
        declared = _declared(t, name) if name and node.op not in SAME_SHAPE else None
        if name and declared is None and node.op not in SAME_SHAPE:
            t.exact = False
            t.notes[f"the output shape of {node.op} is unknown for some nodes: that of their input is assumed"] = None
        out.append(declared or Value(fallback.shape, fallback.dtype))
    _check_reshape(t, node, out)
    return out


def _check_reshape(t: Trace, node: Node, out: list[Value]) -> None:
    """A Reshape keeps the number of elements, unless a shape before it was assumed."""
    if node.op != "Reshape" or node.domain or out[0].size == node.need(0).size:
        return
    if t.rebatch is not None:
        raise UnsafeBatchError(f"node '{node.name}' (Reshape)")
    if t.exact:
        raise ForerunError(
            f"Reshape '{node.name}' of the ONNX file cannot turn {list(node.need(0).shape)} into "
            f"{list(out[0].shape)}; give the input shape that the file was made for"
        )


def _own_rule(node: Node) -> dict[str, Value]:
    """STFT: ONNX's rule takes a missing `onesided` for 0, and its default is 1."""
    step, window, length = (node.input(i) for i in (1, 2, 3))
    if node.op != "STFT" or node.domain or step is None or step.data is None:
        return {}
    x = node.need(0)
    sizes = [int(v.data.ravel()[0]) for v in (length,) if v is not None and v.data is not None]
    size = (sizes or [window.shape[0] if window is not None and window.shape else 0])[0]
    frames = (x.shape[1] - size) // max(int(step.data.ravel()[0]), 1) + 1
    if not size or frames < 1:
        return {}
    one_sided = node.attrs.get("onesided", 1) and not (len(x.shape) > 2 and x.shape[2] == 2)
    return {node.outputs[0]: Value((x.shape[0], frames, size // 2 + 1 if one_sided else size, 2), x.dtype)}


def _schema_types(t: Trace, node: Node, proto: onnx.NodeProto) -> dict[str, Value]:
    if node.op in SCHEMA_AS and node.domain:
        proto = helper.make_node(SCHEMA_AS[node.op], list(proto.input), list(proto.output))
        attributes = [helper.make_attribute(k, v) for k, v in node.attrs.items()]
        proto.attribute.extend(a for a in attributes if not a.name.startswith("activation"))
    version = t.opsets.get("" if node.op in SCHEMA_AS else node.domain, onnx.defs.onnx_opset_version())
    schema = onnx.defs.get_schema(proto.op_type, max(version, MORE_LENIENT.get(proto.op_type, 0)), proto.domain)
    try:
        inferred = _inferred(t, schema, proto, node.inputs)
    except onnx.shape_inference.InferenceError:
        # Runtimes accept a vector of one number where the standard requires a scalar.
        scalars = [replace(v, shape=()) if v and v.data is not None and v.shape == (1,) else v for v in node.inputs]
        if scalars == node.inputs:
            raise
        inferred = _inferred(t, schema, proto, scalars)
    types: dict[str, Value] = {}
    for name, kind in inferred.items():
        dims = dims_of(kind)
        if dims is None or not kind.tensor_type.elem_type:
            continue
        if any(isinstance(d, str) for d in dims):
            bound = data_dependent(node, dims)
            t.exact = False
            if bound is None:
                bound = _assumed(t, name, node, dims)
                t.notes[f"sizes that {node.op} computes from the data are unknown: they are assumed"] = None
            else:
                t.notes[f"{node.op} returns a data-dependent number of results: the upper bound is counted"] = None
            dims = [*bound]
        types[name] = Value(tuple(int(d) for d in dims), kind.tensor_type.elem_type)
    return types


def _inferred(
    t: Trace, schema: onnx.defs.OpSchema, proto: onnx.NodeProto, inputs: Sequence[Value | None]
) -> dict[str, onnx.TypeProto]:
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name, value in zip(proto.input, inputs, strict=False):
        if value is None:
            continue
        types[name] = helper.make_tensor_type_proto(value.dtype, value.shape)
        if value.data is not None and value.data.size <= 1024:
            data[name] = _as_proto(value)
    inferred: dict[str, onnx.TypeProto] = shape_inference.infer_node_outputs(
        schema, proto, types, data,
        opset_imports=[helper.make_opsetid(d, v) for d, v in t.opsets.items()], ir_version=t.model.ir_version,
    )  # fmt: skip
    return inferred


def _assumed(t: Trace, name: str, node: Node, dims: list[int | str]) -> list[int]:
    """Sizes for unknown ones: what the file declares, else those of an input of the same rank, else 1."""
    info = t.described.get(name)
    declared = (dims_of(info.type) if info is not None and t.rebatch is None else None) or []
    likely = [declared, *(v.shape for v in node.inputs if v is not None)]
    shape = []
    for axis, dim in enumerate(dims):
        sizes = [s[axis] for s in likely if len(s) == len(dims) and isinstance(s[axis], int) and int(s[axis]) > 0]
        shape.append(dim if isinstance(dim, int) else int(sizes[0]) if sizes else 1)
    return shape


def _as_proto(value: Value) -> onnx.TensorProto:
    assert value.data is not None
    kind = helper.tensor_dtype_to_np_dtype(value.dtype)
    return numpy_helper.from_array(np.ascontiguousarray(value.data, dtype=kind).reshape(value.shape))


def _declared(t: Trace, name: str) -> Value | None:
    """The declared type of a value, when every dimension of it is a number."""
    if t.rebatch is not None:
        return None
    info = t.described.get(name)
    dims = None if info is None else dims_of(info.type)
    if info is None or dims is None or any(isinstance(d, str) for d in dims):
        return None
    return Value(tuple(int(d) for d in dims), info.type.tensor_type.elem_type)
