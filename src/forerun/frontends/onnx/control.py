"""Control flow and sequences of ONNX: one branch of an If, the iterations of a Loop or Scan, lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto

from forerun.errors import ForerunError
from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.turns import count_turns
from forerun.frontends.onnx.values import FLOATS, Node, Value, dims_of

Walk = Callable[[Trace, onnx.GraphProto], None]
MOST_PARTS = 1 << 16


def _truth(value: Value | None) -> bool | None:
    return None if value is None or value.data is None or not value.data.size else bool(value.data.ravel()[0])


def _if(t: Trace, n: Node, walk: Walk) -> None:
    chosen = _truth(n.need(0))
    branch = n.attrs["else_branch" if chosen is False else "then_branch"]
    if chosen is None:
        t.exact = False
        t.notes["an If with a data-dependent condition: its then-branch is counted"] = None
    t.bind_initializers(branch)
    walk(t, branch)
    for name, info in zip(n.outputs, branch.output, strict=False):
        t.env[name] = t.env[info.name]


def _stack(t: Trace, n: Node, item: Value, turns: int, axis: int = 0) -> Value:
    """What a Loop or Scan collects: the result of every iteration, concatenated."""
    shape = list(item.shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, turns)
    out = Value(tuple(shape), item.dtype)
    t.emit("copy", n, [item], [out])
    return out


def _loop(t: Trace, n: Node, walk: Walk) -> None:
    body = n.attrs["body"]
    limit = n.input(0)
    most = int(limit.data.ravel()[0]) if limit is not None and limit.data is not None and limit.data.size else None
    carried = [v for v in n.inputs[2:] if v is not None]
    t.bind_initializers(body)
    counted = count_turns(t, body, most, _truth(n.input(1)), carried)
    if counted.count == 0:
        _no_turns(t, n, body, carried)
        return
    if counted.count is None or counted.bound:
        t.exact = False
    if counted.count is None:
        t.notes[f"a {n.op} with an unknown number of iterations: one is counted"] = None
    elif counted.bound:
        t.notes[f"a {n.op} that the data may end early: all {counted.count} iterations are counted"] = None
    turns = counted.count or 1
    results = _walked(t, n, [_varying(t, body, i, v) if turns > 1 else v for i, v in enumerate(carried)], turns, walk)
    for position, (name, value) in enumerate(zip(n.outputs, results, strict=False)):
        if position >= len(carried):
            value = _stack(t, n, value, turns)
        elif position in counted.carried:
            data = counted.carried[position]
            value = replace(value, data=data, shape=data.shape, tensor=None, constant=True)
        elif turns != 1 and value.data is not None:
            value = replace(value, data=None)  # later iterations change it
        if name:
            t.env[name] = value


def _no_turns(t: Trace, n: Node, body: onnx.GraphProto, carried: list[Value]) -> None:
    for name, value in zip(n.outputs, carried, strict=False):
        t.env[name] = value
    for name, info in zip(n.outputs[len(carried) :], body.output[1 + len(carried) :], strict=False):
        dims = [d if isinstance(d, int) else 0 for d in dims_of(info.type) or []]
        t.env[name] = Value((0, *dims), info.type.tensor_type.elem_type or TensorProto.FLOAT, constant=True)


def _varying(t: Trace, body: onnx.GraphProto, position: int, value: Value) -> Value:
    """A value that a loop carries, as its iterations see it: floats that the body changes lose their initial values."""
    if body.output[position + 1].name == body.input[position + 2].name or value.dtype not in FLOATS or value.items:
        return value
    return Value(value.shape, value.dtype, tensor=t.tensor(value))


def _walked(t: Trace, n: Node, carried: list[Value], turns: int, walk: Walk) -> list[Value]:
    """Walks the body once for all iterations, or one by one where carried tensors change their size."""
    body, start = n.attrs["body"], len(t.ops)
    results = _turn(t, body, 0, carried, walk)
    grows = any(
        before.shape != after.shape or len(before.items or ()) != len(after.items or ())
        for before, after in zip(carried, results, strict=False)
    )
    if turns == 1 or (grows and turns * len(body.node) <= t.unrolled_left):
        t.unrolled_left -= (turns - 1) * len(body.node)
        for turn in range(1, turns):
            results = _turn(t, body, turn, results[: len(carried)], walk)
        return results
    for op in t.ops[start:]:
        op.repeat *= turns
    if grows:
        t.exact = False
        t.notes[f"a {n.op} that carries tensors of changing sizes: those of its first iteration are counted"] = None
        for value in results[: len(carried)]:
            if value.items:
                value.items += [value.items[-1]] * min(turns - 1, MOST_PARTS)
    return results


def _turn(t: Trace, body: onnx.GraphProto, turn: int, carried: list[Value], walk: Walk) -> list[Value]:
    """One iteration of a loop's body: what it carries on, and what it collects."""
    counter = Value((), TensorProto.INT64, np.array(turn, dtype=np.int64), constant=True)
    go_on = Value((), TensorProto.BOOL, np.array(True), constant=True)
    for info, value in zip(body.input, [counter, go_on, *carried], strict=False):
        t.env[info.name] = value
    walk(t, body)
    return [t.env[o.name] for o in body.output][1:]


def _scan(t: Trace, n: Node, walk: Walk) -> None:
    body, scanned = n.attrs["body"], int(n.attrs["num_scan_inputs"])
    batched = t.opsets.get("", 9) < 9  # the first input was the lengths, and every tensor had a batch in front
    values = [v for v in (n.inputs[1:] if batched else n.inputs) if v is not None]
    states, inputs = values[: len(values) - scanned], values[len(values) - scanned :]
    axes = [1] * scanned if batched else list(n.attrs.get("scan_input_axes") or [0] * scanned)
    turns = inputs[0].shape[axes[0]] if inputs and inputs[0].shape else 1
    samples = inputs[0].shape[0] if batched and inputs and inputs[0].shape else 1
    t.bind_initializers(body)
    if batched:
        states = [t.alias(v, v.shape[1:]) for v in states]
    left_out = [{0, 1} if batched else {ax % max(len(v.shape), 1)} for v, ax in zip(inputs, axes, strict=True)]
    slices = [
        t.alias(v, tuple(d for i, d in enumerate(v.shape) if i not in out))
        for v, out in zip(inputs, left_out, strict=True)
    ]
    start = len(t.ops)
    for info, value in zip(body.input, [*states, *slices], strict=False):
        t.env[info.name] = value
    walk(t, body)
    for op in t.ops[start:]:
        op.repeat *= turns * samples
    results = [t.env[o.name] for o in body.output]
    out_axes = list(n.attrs.get("scan_output_axes") or [0] * len(results))
    for position, (name, value) in enumerate(zip(n.outputs, results, strict=False)):
        if position >= len(states):
            value = _stack(t, n, value, turns, out_axes[position - len(states)])
        if batched:
            value = t.alias(value, (samples, *value.shape))
        if name:
            t.env[name] = value


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
        raise ForerunError(f"'{n.name}' splits a tensor into {length:,} parts; {MOST_PARTS:,} is the limit")
    if sizes is None:
        parts = [1] * length
    elif sizes.data is None:
        t.exact = False
        t.notes["a SplitToSequence with data-dependent sizes: parts of size 1 are counted"] = None
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
    item = items[index] if -len(items) <= index < len(items) else Value((1,), TensorProto.FLOAT)
    t.env[n.outputs[0]] = item if at.fixed else t.changeable(item)


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


#: Nodes with subgraphs, which are walked too.
BODIES: dict[str, Callable[[Trace, Node, Walk], None]] = {"If": _if, "Loop": _loop, "Scan": _scan}
#: Nodes that give their outputs their values themselves.
SEQUENCES: dict[str, Callable[[Trace, Node], None]] = {
    "SequenceConstruct": _sequence, "SequenceEmpty": _sequence, "SequenceInsert": _insert, "SplitToSequence": _split,
    "SequenceAt": _at, "SequenceLength": _length, "ConcatFromSequence": _concat, "Optional": _optional,
    "OptionalGetElement": _optional, "OptionalHasElement": _optional,
}  # fmt: skip


def has_gradient(n: Node) -> bool:
    """Whether a training step can run a node: no lists and no loops, and an If whose branch is known."""
    return n.op not in SEQUENCES and (n.op not in BODIES or (n.op == "If" and _truth(n.need(0)) is not None))
