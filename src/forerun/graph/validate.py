"""Validation of graphs where they enter, so that a frontend's mistake is an error instead of a wrong cost."""

from __future__ import annotations

import math
from typing import Any

from forerun.errors import ForerunError, did_you_mean
from forerun.graph.ir import DTYPE_BYTES, PHASES, ROLES, Graph, Op
from forerun.graph.kinds import KINDS

#: Elements of one tensor: two terabytes in fp32. Products of two such tensors are still counted exactly.
MAX_ELEMENTS = 2**39
MAX_REPEAT = 2**31


def validate(graph: Graph) -> None:
    """Raises a ForerunError that names the first thing in `graph` that no graph may have."""
    for i, op in enumerate(graph.ops):
        if fault := _op_fault(graph, i, op):
            raise ForerunError(f"the graph of {graph.name} is not valid: op {i} ({op.name}) {fault}")
    for i, t in enumerate(graph.tensors):
        fault = ""
        if t.dtype not in DTYPE_BYTES:
            fault = f"has the dtype {t.dtype!r}; choose from {', '.join(DTYPE_BYTES)}"
        elif not 0 <= t.storage < len(graph.storages):
            fault = f"lies in storage {t.storage}, and there are {len(graph.storages)}"
        elif not -1 <= t.producer < len(graph.ops):
            fault = f"is written by op {t.producer}, and there are {len(graph.ops)}"
        elif any(d < 0 for d in t.shape):
            fault = f"has a negative size: {list(t.shape)}"
        elif math.prod(t.shape) > MAX_ELEMENTS:
            fault = f"has {min(math.prod(t.shape), 10**99):.3g} elements, which is more than any machine holds"
        elif t.per_sample is not None and len(t.per_sample) != len(t.shape):
            fault = f"has {len(t.shape)} dimensions and says how {len(t.per_sample)} grow"
        if fault:
            raise ForerunError(f"the graph of {graph.name} is not valid: tensor {i} {fault}")
    for i, s in enumerate(graph.storages):
        fault = ""
        if s.role not in ROLES:
            fault = f"has the role {s.role!r}; choose from {', '.join(ROLES)}"
        elif not (0 <= s.bytes <= 16 * MAX_ELEMENTS and 0 <= s.repeat <= MAX_REPEAT):
            fault = f"has {s.bytes} bytes, {s.repeat} times"
        elif not -1 <= s.born <= len(graph.ops):  # what is allocated behind the last op has no op
            fault = f"is made by op {s.born}, and there are {len(graph.ops)}"
        if fault:
            raise ForerunError(f"the graph of {graph.name} is not valid: storage {i} {fault}")
    if not all(0 <= t < len(graph.tensors) for t in graph.outputs):
        raise ForerunError(f"the graph of {graph.name} is not valid: an output is no tensor of it")
    if graph.batch < 1 or graph.min_batch < 1 or graph.parameters < 0:
        raise ForerunError(f"the graph of {graph.name} is not valid: batch and min_batch are 1 or more")


def _op_fault(graph: Graph, index: int, op: Op) -> str:
    """What is wrong with an op, as the end of a sentence that begins with its name; '' for nothing."""
    kind = KINDS.get(op.kind)
    if kind is None:
        hint = did_you_mean(op.kind, KINDS) or " An op of no listed kind is 'unknown'."
        return f"has the kind {op.kind!r}, which is not in graph/kinds.py.{hint}"
    if len(op.inputs) < kind.inputs or len(op.outputs) < kind.outputs:
        have, need = f"{len(op.inputs)} -> {len(op.outputs)}", f"{kind.inputs} -> {kind.outputs}"
        return f"has {have} tensors, and {op.kind} needs at least {need}: {kind.signature}"
    for name, expected in kind.attrs.items():
        if name not in op.attrs:
            return f"lacks the attribute {name!r} that every {op.kind} has"
        if not _fits(op.attrs[name], expected):
            words = expected.__name__ if isinstance(expected, type) else f"one of {', '.join(expected)}"
            return f"has {name}={op.attrs[name]!r}, which must be {words}"
    for t in (*op.inputs, *op.outputs):
        if not 0 <= t < len(graph.tensors):
            return f"uses tensor {t}, and there are {len(graph.tensors)}"
    for t in op.inputs:
        if graph.tensors[t].producer >= index:
            return f"reads tensor {t} before op {graph.tensors[t].producer} writes it"
    if op.phase not in PHASES:
        return f"has the phase {op.phase!r}; choose from {', '.join(PHASES)}"
    return f"is repeated {min(op.repeat, 10**99):.3g} times" if not 0 <= op.repeat <= MAX_REPEAT else ""


def _fits(value: Any, expected: type | tuple[str, ...]) -> bool:
    if not isinstance(expected, type):
        return value in expected
    if expected is list:
        return isinstance(value, (list, tuple))
    return isinstance(value, expected) and (expected is bool or not isinstance(value, bool))
