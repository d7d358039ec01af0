"""Control flow and sequences of ONNX: one branch of an If, the turns of a Loop or Scan, lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto

from forerun.errors import ForerunError
from forerun.graph.sources.onnx_trace import Trace
from forerun.graph.sources.onnx_values import Node, Value

Walk = Callable[[Trace, onnx.GraphProto], None]
#: A Loop with more turns than this runs until its condition says stop.
MOST_TURNS = 1 << 20
MOST_PARTS = 1 << 16


def _truth(value: Value | None) -> bool | None:
    return None if value is None or value.data is None or not value.data.size else bool(value.data.ravel()[0])


def _if(t: Trace, n: Node, walk: Walk) -> None:
    chosen = _truth(n.need(0))
    branch = n.attrs["else_branch" if chosen is False else "then_branch"]
    if chosen is None:
        t.notes["An If whose condition depends on the data: its then-branch is counted."] = None
    t.bind_initializers(branch)
    walk(t, branch)
    for name, info in zip(n.outputs, branch.output, strict=False):
        t.env[name] = t.env[info.name]


def _stack(t: Trace, n: Node, item: Value, turns: int) -> Value:
    """What a Loop or Scan collects: the result of every turn, one after the other."""
    out = Value((turns, *item.shape), item.dtype)
    t.emit("copy", n, [item], [out])
    return out


def _turns(t: Trace, n: Node, body: onnx.GraphProto, turns: int | None, walk: Walk) -> None:
    """Walk the body once; each of its ops stands for as many as there are turns."""
    start = len(t.ops)
    walk(t, body)
    if turns is None:
        t.notes[f"A {n.op} whose number of turns depends on the data: one turn is counted."] = None
        return
    for op in t.ops[start:]:
        op.repeat *= turns


def _loop(t: Trace, n: Node, walk: Walk) -> None:
    body = n.attrs["body"]
    limit, start = n.input(0), _truth(n.input(1))
    turns = int(limit.data.ravel()[0]) if limit is not None and limit.data is not None and limit.data.size else None
    carried = [v for v in n.inputs[2:] if v is not None]
    if turns == 0 or start is False:
        for name, value in zip(n.outputs, carried, strict=False):
            t.env[name] = value
        for name in n.outputs[len(carried) :]:
            t.env[name] = Value((0,), TensorProto.FLOAT, constant=True)
        return
    if turns is not None and turns > MOST_TURNS:
        turns = None  # "until the condition says so" is written as the largest integer
    t.bind_initializers(body)
    counter = Value((), TensorProto.INT64, np.array(0, dtype=np.int64), constant=True)
    go_on = Value((), TensorProto.BOOL, np.array(True), constant=True)
    for info, value in zip(body.input, [counter, go_on, *carried], strict=False):
        t.env[info.name] = value
    _turns(t, n, body, turns, walk)
    results = [t.env[o.name] for o in body.output][1:]
    stacked = turns or 1
    for position, (name, value) in enumerate(zip(n.outputs, results, strict=False)):
        if position >= len(carried):
            value = _stack(t, n, value, stacked)
        elif turns != 1 and value.data is not None:
            value = replace(value, data=None)  # later turns change it
        if name:
            t.env[name] = value


def _scan(t: Trace, n: Node, walk: Walk) -> None:
    body, scanned = n.attrs["body"], int(n.attrs["num_scan_inputs"])
    values = [v for v in n.inputs if v is not None]
    states, inputs = values[: len(values) - scanned], values[len(values) - scanned :]
    axes = list(n.attrs.get("scan_input_axes") or [0] * scanned)
    turns = inputs[0].shape[axes[0]] if inputs and inputs[0].shape else 1
    t.bind_initializers(body)
    slices = [t.alias(v, tuple(d for i, d in enumerate(v.shape) if i != ax % len(v.shape)))
              for v, ax in zip(inputs, axes, strict=True)]  # fmt: skip
    for info, value in zip(body.input, [*states, *slices], strict=False):
        t.env[info.name] = value
    _turns(t, n, body, turns, walk)
    results = [t.env[o.name] for o in body.output]
    for position, (name, value) in enumerate(zip(n.outputs, results, strict=False)):
        if name:
            t.env[name] = value if position < len(states) else _stack(t, n, value, turns)


def _sequence(t: Trace, n: Node) -> None:
    t.env[n.outputs[0]] = Value((), TensorProto.FLOAT, items=[v for v in n.inputs if v is not None])


def _insert(t: Trace, n: Node) -> None:
    items = list(n.need(0).items or [])
    at = n.input(2)
    where = int(at.data.ravel()[0]) if at is not None and at.data is not None else len(items)
    items.insert(where, n.need(1))
    t.env[n.outputs[0]] = Value((), TensorProto.FLOAT, items=items)


def _split(t: Trace, n: Node) -> None:
    x, sizes = n.need(0), n.input(1)
    axis, keep = int(n.attrs.get("axis", 0)) % max(len(x.shape), 1), bool(n.attrs.get("keepdims", 1))
    length = x.shape[axis]
    if length > MOST_PARTS:
        raise ForerunError(f"'{n.name}' splits a tensor into {length:,} parts; {MOST_PARTS:,} is the limit.")
    if sizes is None or sizes.data is None:
        parts = [1] * length
    elif sizes.data.ndim == 0:
        step = max(int(sizes.data), 1)
        parts = [min(step, length - i) for i in range(0, length, step)]
    else:
        parts = [int(s) for s in sizes.data]
    items = []
    for part in parts:
        shape = [part if i == axis else d for i, d in enumerate(x.shape)]
        if sizes is None and not keep:
            del shape[axis]
        items.append(Value(tuple(shape), x.dtype))
    t.emit("copy", n, [x], items)
    t.env[n.outputs[0]] = Value((), x.dtype, items=items)


def _at(t: Trace, n: Node) -> None:
    items, at = n.need(0).items or [], n.need(1)
    index = int(at.data.ravel()[0]) if at.data is not None else 0
    t.env[n.outputs[0]] = items[index] if -len(items) <= index < len(items) else Value((1,), TensorProto.FLOAT)


def _length(t: Trace, n: Node) -> None:
    data = np.array(len(n.need(0).items or []), dtype=np.int64)
    t.env[n.outputs[0]] = Value((), TensorProto.INT64, data, constant=True)


def _concat(t: Trace, n: Node) -> None:
    items, axis = list(n.need(0).items or []), int(n.attrs["axis"])
    if not items:
        t.env[n.outputs[0]] = Value((0,), TensorProto.FLOAT, constant=True)
        return
    shape = list(items[0].shape)
    if n.attrs.get("new_axis", 0):
        shape.insert(axis if axis >= 0 else axis + len(shape) + 1, len(items))
    else:
        shape[axis] = sum(v.shape[axis] for v in items)
    out = Value(tuple(shape), items[0].dtype)
    t.emit("copy", n, items, [out])
    t.env[n.outputs[0]] = out


def _optional(t: Trace, n: Node) -> None:
    if n.op == "OptionalHasElement":
        data = np.array(bool(n.inputs and n.inputs[0] is not None))
        t.env[n.outputs[0]] = Value((), TensorProto.BOOL, data, constant=True)
    else:
        t.env[n.outputs[0]] = n.inputs[0] if n.inputs and n.inputs[0] is not None else Value((), TensorProto.FLOAT)


#: Nodes that hold graphs of their own, each to be walked in its turn.
BODIES: dict[str, Callable[[Trace, Node, Walk], None]] = {"If": _if, "Loop": _loop, "Scan": _scan}
#: Nodes that give their outputs their values themselves.
SEQUENCES: dict[str, Callable[[Trace, Node], None]] = {
    "SequenceConstruct": _sequence, "SequenceEmpty": _sequence, "SequenceInsert": _insert, "SplitToSequence": _split,
    "SequenceAt": _at, "SequenceLength": _length, "ConcatFromSequence": _concat, "Optional": _optional,
    "OptionalGetElement": _optional, "OptionalHasElement": _optional,
}  # fmt: skip
