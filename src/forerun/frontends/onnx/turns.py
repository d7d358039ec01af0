"""The trip count of an ONNX Loop: its condition and what the condition reads, evaluated iteration by iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from forerun.frontends.onnx import eval as onnx_eval
from forerun.frontends.onnx.order import in_order
from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import Value, attributes

#: Loops with a larger trip count than this run until their condition ends them.
MOST_TURNS = 1 << 20

Array = np.ndarray[Any, Any]


@dataclass
class Turns:
    """The number of iterations of a loop, where it follows from shapes and constants."""

    count: int | None
    bound: bool = False  # the loop may end earlier, which depends on the data
    carried: dict[int, Array] = field(default_factory=dict)  # values after the last iteration, by position


def count_turns(
    t: Trace, body: onnx.GraphProto, limit: int | None, start: bool | None, carried: Sequence[Value]
) -> Turns:
    """The iterations of a loop over `body`, at most `limit` of them."""
    if limit is not None and limit > MOST_TURNS:
        limit = None  # "until the condition ends it" is written as the largest integer
    if limit == 0 or start is False:
        return Turns(0)
    plan = _Plan(t, body, carried)
    if not plan.known:
        return Turns(limit, bound=limit is not None)
    key = (limit, body.output[0].name, plan.reads())
    if key not in t.turns:
        t.turns[key] = plan.run(limit)
    turns: Turns = t.turns[key]
    return turns


class _Plan:
    """The nodes of a loop's body that its condition depends on, if all they read is known."""

    def __init__(self, t: Trace, body: onnx.GraphProto, carried: Sequence[Value]) -> None:
        self.t, self.body = t, body
        self.state = {info.name: value for info, value in zip(body.input[2:], carried, strict=False)}
        self.counter = body.input[0].name if body.input else ""
        self.condition = body.input[1].name if len(body.input) > 1 else ""
        producers = {name: node for node in body.node for name in node.output if name}
        inside = {tensor.name: tensor for tensor in body.initializer}
        self.fixed: dict[str, Array] = {}
        self.wanted: set[str] = set()  # first outputs of the nodes to evaluate
        self.carried: dict[str, str] = {}  # body input -> the body output that follows it
        after = {info.name: out.name for info, out in zip(body.input[2:], body.output[1:], strict=False)}
        open_names, seen = [body.output[0].name] if body.output else [], set()
        self.known = bool(open_names)
        self.counts = False  # the condition depends on the iteration number
        while open_names and self.known:
            name = open_names.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            if name in (self.counter, self.condition):
                self.counts = self.counts or name == self.counter
                continue
            if name in self.state:
                self.known = self.state[name].data is not None and name in after
                self.carried[name] = after.get(name, "")
                open_names.append(self.carried[name])
            elif (node := producers.get(name)) is not None:
                self.known = self._add(node, open_names)
            elif name in inside:
                self.fixed[name] = onnx.numpy_helper.to_array(inside[name])
            else:
                outer = t.env.get(name)
                self.known = outer is not None and outer.data is not None
                if outer is not None and outer.data is not None:
                    self.fixed[name] = outer.data

    def _add(self, node: onnx.NodeProto, open_names: list[str]) -> bool:
        if node.domain not in ("", "ai.onnx"):
            return False
        outer = self.t.env.get(node.input[0]) if node.input else None
        if node.op_type in ("Shape", "Size") and outer is not None and node.input[0] not in self.state:
            shape = np.array(outer.shape[slice(*(attributes(node).get(k) for k in ("start", "end")))], dtype=np.int64)
            self.fixed[node.output[0]] = shape if node.op_type == "Shape" else np.array(math.prod(outer.shape))
            return True
        self.wanted.add(node.output[0])
        open_names.extend(node.input)
        return True

    def reads(self) -> tuple[tuple[str, bytes], ...]:
        """All values that determine the number of iterations."""
        began = {name: self.state[name].data for name in self.carried}
        return tuple((name, np.asarray(data).tobytes()) for name, data in sorted({**self.fixed, **began}.items()))

    def run(self, limit: int | None) -> Turns:
        values: dict[str, Array] = {self.condition: np.array(True)}
        values |= {name: self.state[name].data for name in self.carried}  # type: ignore[misc]
        plan = [(n, attributes(n)) for n in in_order(self.body) if n.output and n.output[0] in self.wanted]
        budget = self.t.evaluations_left // max(len(plan), 1)
        for turn in range(min(limit if limit is not None else budget, budget)):
            self.t.evaluations_left -= len(plan)
            now = {**self.fixed, **values, self.counter: np.array(turn, dtype=np.int64)}
            for node, attrs in plan:
                results = onnx_eval.node_value(node.op_type, attrs, [now.get(i) if i else None for i in node.input],
                                            len(node.output))  # fmt: skip
                if results is None:
                    return Turns(limit, bound=limit is not None)
                now.update(zip(node.output, results, strict=False))
            before, values = values, {name: now[out] for name, out in self.carried.items()}
            go_on = now[self.body.output[0].name]
            values[self.condition] = go_on
            if not bool(np.ravel(go_on)[0]):
                return self._done(turn + 1, values)
            if not self.counts and all(np.array_equal(before[name], value) for name, value in values.items()):
                return self._done(limit, values) if limit is not None else Turns(None)  # all iterations are the same
        if limit is not None and limit <= budget:
            return self._done(limit, values)
        return Turns(limit, bound=limit is not None)

    def _done(self, turns: int, values: dict[str, Array]) -> Turns:
        places = {info.name: i for i, info in enumerate(self.body.input[2:])}
        return Turns(turns, carried={places[name]: values[name] for name in self.carried})
