"""One walk through an ONNX graph with every input shape known: shapes, host arithmetic, ops, tensors and storages.

Output shapes come from ONNX's own rules (`shapes`), so a Reshape whose target is computed by a chain of shape
arithmetic is not a barrier. Nodes whose values are known vanish; nodes that only rename memory become views; the rest
become ops by the table in `ops`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper

from forerun.errors import ForerunError
from forerun.frontends.onnx import eager as onnx_eager
from forerun.frontends.onnx import eval as onnx_eval
from forerun.frontends.onnx import ops as onnx_ops
from forerun.frontends.onnx.calls import first_output, fits
from forerun.frontends.onnx.control import BODIES, SEQUENCES, has_gradient
from forerun.frontends.onnx.order import in_order
from forerun.frontends.onnx.shapes import infer
from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import (
    FLOATS,
    Node,
    UnsafeBatchError,
    Value,
    attributes,
    dims_of,
    no_gradient,
    printable,
)

#: Since this version of the format, a weight that is listed among the inputs is a default that a call may replace.
_DEFAULTS = 4


def run(t: Trace) -> Trace:
    """The same trace, with the whole model written into it."""
    graph = t.model.graph
    t.bind_initializers(graph)
    for info in graph.input:
        if info.name not in t.env:
            t.env[info.name] = _input_value(t, info)
        elif t.model.ir_version >= _DEFAULTS:
            t.env[info.name].fixed = False
    walk(t, graph)
    for info in graph.output:
        value = t.env.get(info.name)
        for item in [value] if value is not None and value.items is None else (value.items or [] if value else []):
            t.outputs.append(t.tensor(item))
    t.close_lifetimes()
    return t


def _input_value(t: Trace, info: onnx.ValueInfoProto) -> Value:
    kind = info.type.optional_type.elem_type if info.type.HasField("optional_type") else info.type
    if kind.HasField("sequence_type"):
        return Value((), TensorProto.FLOAT, items=[])
    declared = tuple(d if isinstance(d, int) else 1 for d in dims_of(kind) or ())
    value = Value(t.shapes.get(info.name, declared), kind.tensor_type.elem_type)
    t.store(value, "input", -1)
    return value


def walk(t: Trace, graph: onnx.GraphProto) -> None:
    for node in in_order(graph):
        first = first_output(node)
        if first in t.rejoined.spared:
            continue
        call = t.rejoined.calls.get(first)
        given = [] if call is None else [_lookup(t, name, call) for name in call.input]
        fitting = call is not None and fits(call, [v.shape for v in given if v is not None])
        _visit(t, call if call is not None and fitting else node)


def _lookup(t: Trace, name: str, node: onnx.NodeProto) -> Value | None:
    if not name:
        return None
    if name not in t.env and (spared := t.rejoined.spared.get(name)) is not None:
        _visit(t, spared)  # the call that it is a part of was not replaced
    if (value := t.env.get(name)) is None:
        raise ForerunError(f"ONNX node '{node.name}' ({node.op_type}) reads '{name}', which no node produces")
    return value


def _visit(t: Trace, proto: onnx.NodeProto) -> None:
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    node = Node(
        proto.op_type, domain, proto.name or (proto.output[0] if proto.output else ""), attributes(proto),
        [_lookup(t, name, proto) for name in proto.input], list(proto.output),
    )  # fmt: skip
    if t.tape is not None and not domain and not has_gradient(node):
        raise no_gradient(node)
    if node.op in BODIES and not domain:
        t.in_turns += node.op != "If"
        BODIES[node.op](t, node, walk)
        t.in_turns -= node.op != "If"
        if node.op != "If" or not node.need(0).fixed:
            t.env.update({name: t.changeable(t.env[name]) for name in node.outputs if name in t.env})
        return
    if node.op in SEQUENCES and not domain:
        SEQUENCES[node.op](t, node)
        return
    if node.op == "Constant" and not domain:
        t.env[proto.output[0]] = _constant_node(t, node)
        return
    if t.rebatch is not None:
        _fit_batch(t, node, proto)
    if node.op == "Identity" and _is_merged_weight(t, node.need(0)):
        t.elements[node.outputs[0]] = node.need(0).size
        t.env[node.outputs[0]] = replace(node.need(0), tensor=None, origin=frozenset(node.outputs), role=None)
        return
    read = node.inputs[:1] if node.op == "CastLike" else node.inputs
    known = all(v is None or (v.data is not None and not (t.tape is not None and t.is_weight(v))) for v in read)
    if node.op in ("Shape", "Size") and not domain:
        t.env[proto.output[0]] = _shape_node(node)
        return
    node.out, first = infer(t, node, proto), len(t.ops)
    if not (known and not domain and _evaluate(t, node)):
        _emit(t, node)
    fixed = _is_fixed(t, node)
    for op in t.ops[first:] if fixed else ():
        op.attrs["constant"] = True
    for name, value in zip(node.outputs, node.out, strict=False):
        if value not in node.inputs:
            value.fixed = fixed
        elif not fixed:
            value = t.changeable(value)
        if name:
            value.shared = value.shared or t.is_shared(name)
            t.env[name] = value


#: Nodes whose results differ between calls with the same inputs.
_DRAWN = ("Random", "Bernoulli", "Multinomial")


def _is_fixed(t: Trace, node: Node) -> bool:
    """Whether a node's output is the same at every call, so that it can be computed when the file is loaded."""
    read = [v for v in node.inputs if v is not None]
    training = node.input(2) if node.op == "Dropout" else None
    drawn = node.op.startswith(_DRAWN) or (training is not None and (training.data is None or bool(training.data)))
    return bool(read) and not drawn and not t.in_turns and all(v.fixed for v in read)


def _emit(t: Trace, node: Node) -> None:
    """Converts a shaped node to ops; where an earlier shape was assumed and does not fit, only its bytes count."""
    if t.tape is not None:
        t.tape.append(node)
        return
    start, out = len(t.ops), list(node.out)
    try:
        if t.eager and onnx_eager.is_view(t, node):
            return
        if t.eager:
            onnx_eager.prepare(t, node)
        onnx_ops.emit(t, node)
        if t.eager:
            onnx_eager.finish(t, node, start)
    except (IndexError, KeyError, TypeError, ValueError):
        if t.exact:
            raise
        del t.ops[start:]
        node.out = [Value(v.shape, v.dtype) for v in out]
        t.emit("unknown", node, node.inputs, name=printable(node.op))


def _is_merged_weight(t: Trace, value: Value) -> bool:
    """torch.onnx merges weights of equal value (every fresh LayerNorm is all ones) behind Identity nodes.

    When all their elements are equal they are separate weights; otherwise they are tied.
    """
    if not t.from_torch or not value.constant or len(value.origin) != 1:
        return False
    tensor = t.protos.get(next(iter(value.origin)))
    if tensor is None or tensor.data_type not in FLOATS or value.size < 2:
        return False
    return t.is_uniform(tensor) is True


def _constant_node(t: Trace, node: Node) -> Value:
    name = node.outputs[0]
    if (tensor := node.attrs.get("value")) is not None and isinstance(tensor, onnx.TensorProto):
        # torch.onnx keeps weights in initializers and literals in Constant nodes; other exporters mix them.
        return t.constant(tensor, name, weight=not t.from_torch and math.prod(tensor.dims) > 1)
    if (data := onnx_eval.constant_value(node.attrs)) is not None:
        kind = TensorProto.INT64 if data.dtype == np.int64 else TensorProto.FLOAT
        return Value(data.shape, kind, data, constant=True, fixed=True)
    if (sparse := node.attrs.get("sparse_value")) is not None:
        return Value(tuple(sparse.dims), sparse.values.data_type, constant=True, fixed=True)
    return Value((), TensorProto.STRING, constant=True, fixed=True)


def _shape_node(node: Node) -> Value:
    shape = node.need(0).shape
    if node.op == "Size":
        data = np.array(math.prod(shape), dtype=np.int64)
    else:
        data = np.array(shape[slice(node.attrs.get("start"), node.attrs.get("end"))], dtype=np.int64)
    return Value(data.shape, TensorProto.INT64, data, constant=True, fixed=node.need(0).fixed)


def _evaluate(t: Trace, node: Node) -> bool:
    """Sets the outputs' values when they are small and known; the node then runs on the host, if at all."""
    if not node.out or not t.decide(node, all(onnx_eval.keeps(v.shape) for v in node.out)):
        return False
    inputs = [v.data if v is not None else None for v in node.inputs]
    if node.op == "CastLike":
        inputs[1] = np.empty(0, helper.tensor_dtype_to_np_dtype(node.out[0].dtype))
    arrays = onnx_eval.node_value(node.op, node.attrs, inputs, len(node.outputs))
    if arrays is None:
        return False
    origin = frozenset().union(*(v.origin for v in node.inputs if v is not None))
    for value, array in zip(node.out, arrays, strict=False):
        value.shape, value.data, value.constant, value.origin = array.shape, array, True, origin
    return True


def _fit_batch(t: Trace, node: Node, proto: onnx.NodeProto) -> None:
    """Constants that contain the file's batch size follow the requested batch."""
    assert t.rebatch is not None
    old, new, base = t.rebatch
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
            return  # the target follows the batch by itself; a wrong size is detected after inference
        if target is None or out.shape[0] * new % old:
            raise UnsafeBatchError(f"node '{node.name}' (Reshape)")
        fitted = np.array([out.shape[0] * new // old, *out.shape[1:]], dtype=np.int64)
        node.inputs[1] = Value(fitted.shape, TensorProto.INT64, fitted, constant=True)
    elif node.op == "Concat" and not node.domain and node.attrs.get("axis", 0) != 0:
        lead = max(v.shape[0] for v in node.inputs if v is not None and v.shape)
        for position, value in enumerate(node.inputs):
            # A class token baked in as [1, 1, 768] beside patches that now are [new, 196, 768].
            if value is not None and value.shape and value.shape[0] == old != lead:
                shape = (lead, *value.shape[1:])
                node.inputs[position] = replace(value, shape=shape, data=None, tensor=t.tensor(value))
