"""Folds loops over a sequence, and extrapolates captures at short lengths to a long one.

Some models process their tokens one by one, so that a graph at 2,048 tokens has 2,048 times the ops of a step. The
steps are equal: a loop is stored as its first, one middle and its last iteration, the middle one with `repeat`, as
blocks are folded. Folded graphs of several lengths have one structure, and every number in them is a polynomial of the
length: two lengths give a line on which a third must lie, or three a parabola on which a fourth must lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from forerun.graph.ir import Graph, Op, Storage, Tensor

#: Lengths that are captured, evenly spaced; the last one validates the others.
LENGTHS = (7, 9, 11, 13)
#: Lengths whose calls are counted to detect a loop: longer than the few tokens that some models treat differently.
COUNTED = (16, 18)
SHORTEST_BODY, LONGEST_BODY = 2, 160  # ops of one step; runs of single ops are fills and the like
#: A loop over the sequence has about as many iterations as tokens: the first or the last may differ.
SLACK = 3


@dataclass
class _Loop:
    """`turns` equal groups of `size` ops, starting at op `start`."""

    start: int
    size: int
    turns: int

    @property
    def end(self) -> int:
        return self.start + self.size * self.turns

    def turn_of(self, op: int) -> int:
        return (op - self.start) // self.size if self.start <= op < self.end else -1

    def dropped(self, op: int) -> bool:
        return 2 <= self.turn_of(op) < self.turns - 1


def extended(
    capture: Callable[[int], Sequence[Graph]], calls: Callable[[int], int], length: int, counted: int | None = None
) -> list[Graph] | None:
    """Graphs at a length from captures at LENGTHS; None where no polynomial fits, or the model has no loop over tokens.

    A loop shows in `calls`, the number of calls of a pass over a number of tokens. A decode step has none itself, but
    its prefill may. `counted` are the calls at the requested length, where known.
    """
    few = calls(COUNTED[0])
    if few == counted or few == calls(COUNTED[1]):
        return None
    captured = [capture(n) for n in LENGTHS[:2]]
    for n in LENGTHS[2:]:
        captured.append(capture(n))
        at_length = _law(captured, length)
        if at_length is not None:
            return at_length
    return None


def _law(captured: list[Sequence[Graph]], length: int) -> list[Graph] | None:
    """Graphs at a length from those of the first of LENGTHS; None where the last is not on the curve of the others."""
    if len({len(graphs) for graphs in captured}) != 1:
        return None
    at_length = []
    for same in zip(*captured, strict=True):
        if len({(g.batch, g.scalable, g.min_batch) for g in same}) != 1:
            return None
        try:
            graph = _extrapolated([fold_steps(g, n) for g, n in zip(same, LENGTHS, strict=False)], length)
        except KeyError:  # the iterations of some loop differ in the memory they keep
            return None
        if graph is None:
            return None
        at_length.append(graph)
    return at_length


# -- folding ----------------------------------------------------------------------------------------------------------


def fold_steps(graph: Graph, length: int) -> tuple[Graph, list[list[int]]]:
    """The graph with its loops over `length` tokens folded, and the multiplicity of each input of each op."""
    loops = _loops(graph, length)
    loop_of = {op: loop for loop in loops for op in range(loop.start, loop.end)}
    home, memory = _homes(graph, loops)
    new_index: dict[int, int] = {}
    ops: list[Op] = []
    counts: list[list[int]] = []
    for i, op in enumerate(graph.ops):
        loop = loop_of.get(i)
        if loop is not None and loop.dropped(i):
            continue
        new_index[i] = len(ops)
        inputs, times = _run_lengths([home.get(t, t) for t in op.inputs])
        middle = loop.turns - 2 if loop is not None and loop.turn_of(i) == 1 else 1
        ops.append(replace(op, inputs=inputs, repeat=op.repeat * middle))
        counts.append(times)
    return _compact(graph, loop_of, ops, new_index, home, memory), counts


def _homes(graph: Graph, loops: list[_Loop]) -> tuple[dict[int, int], dict[int, int]]:
    """For every tensor and storage of a dropped iteration, the counterpart in the middle iteration."""
    home: dict[int, int] = {}
    op_home: dict[int, int] = {}
    memory: dict[int, int] = {}
    for loop in loops:
        for i in range(loop.start + 2 * loop.size, loop.end - loop.size):
            op_home[i] = loop.start + loop.size + (i - loop.start) % loop.size
            for out, first in zip(graph.ops[i].outputs, graph.ops[op_home[i]].outputs, strict=True):
                home[out] = first
                memory[graph.tensors[out].storage] = graph.tensors[first].storage
    # Views of an op's output are tensors of their own.
    place = {(t.storage, t.shape, t.dtype, t.producer): i for i, t in enumerate(graph.tensors)}
    for i, t in enumerate(graph.tensors):
        if i not in home and t.producer in op_home:
            same = (memory.get(t.storage, t.storage), t.shape, t.dtype, op_home[t.producer])
            if same in place:
                home[i] = place[same]
    return home, memory


def _loops(graph: Graph, length: int) -> list[_Loop]:
    names: dict[Any, int] = {}
    signs = [names.setdefault(_sign(op, graph), len(names)) for op in graph.ops]
    fills = {sign for sign, op in zip(signs, graph.ops, strict=True) if not op.inputs}
    loops: list[_Loop] = []
    i = 0
    while i < len(signs):
        loop = next((x for size in range(SHORTEST_BODY, LONGEST_BODY) if (x := _loop_at(signs, i, size, length))), None)
        if loop is None or fills.issuperset(signs[i : i + loop.size]):  # fills of many layers' states are not steps
            i += 1
        else:
            loops.append(loop)
            i = loop.end
    return loops


def _loop_at(signs: list[int], start: int, size: int, length: int) -> _Loop | None:
    if start + size >= len(signs) or signs[start + size] != signs[start]:
        return None
    body = signs[start : start + size]
    turns = 1
    while signs[start + turns * size : start + (turns + 1) * size] == body:
        turns += 1
    return _Loop(start, size, turns) if length - SLACK <= turns <= length + 1 else None


def _sign(op: Op, graph: Graph) -> tuple[Any, ...]:
    """The part of an op that is equal in every iteration."""
    seen = tuple((graph.tensors[t].shape, graph.tensors[t].dtype) for t in (*op.inputs, *op.outputs))
    return op.kind, op.name, op.scope, op.phase, op.repeat, repr(sorted(op.attrs.items())), seen


def _run_lengths(ids: list[int]) -> tuple[tuple[int, ...], list[int]]:
    """Run-length encoding: equal neighbours as one, with their count."""
    out: list[int] = []
    times: list[int] = []
    for i in ids:
        if out and out[-1] == i:
            times[-1] += 1
        else:
            out.append(i)
            times.append(1)
    return tuple(out), times


def _compact(
    graph: Graph,
    loop_of: dict[int, _Loop],
    ops: list[Op],
    new_index: dict[int, int],
    home: dict[int, int],
    memory: dict[int, int],
) -> Graph:
    """The graph of the remaining ops, with the tensors and storages that they use.

    Raises KeyError where a remaining op uses memory of a dropped iteration without a counterpart in the middle one.
    """

    def moved(op: int) -> int:
        """The index of an op, or for one of a dropped iteration the end of the middle one."""
        loop = loop_of.get(op)
        if loop is not None and loop.dropped(op):
            op = loop.start + 2 * loop.size - 1
        return new_index.get(op, op)

    storages: list[Storage] = []
    storage_index: dict[int, int] = {}
    for i, s in enumerate(graph.storages):
        loop = loop_of.get(s.born)
        if loop is not None and loop.dropped(s.born):
            continue
        dies = s.dies if s.dies is None or s.dies < 0 else moved(s.dies)
        middle = loop if loop is not None and loop.turn_of(s.born) == 1 else None
        if middle is not None and s.dies is not None and middle.turn_of(s.dies) == middle.turns - 1:
            dies = moved(middle.start + 2 * middle.size - 1)
        born = moved(s.born) if s.born >= 0 else s.born
        storage_index[i] = len(storages)
        times = middle.turns - 2 if middle is not None else 1
        storages.append(replace(s, born=min(born, len(ops)), dies=dies, repeat=s.repeat * times))
    wanted = dict.fromkeys(t for op in ops for t in (*op.inputs, *op.outputs))
    wanted |= dict.fromkeys(home.get(t, t) for t in graph.outputs)
    tensor_index = {t: n for n, t in enumerate(wanted)}
    tensors = []
    for t in (graph.tensors[i] for i in wanted):
        own = storage_index[t.storage if t.storage in storage_index else memory[t.storage]]
        tensors.append(replace(t, storage=own, producer=moved(t.producer) if t.producer >= 0 else -1))
    ops = [
        replace(
            op, inputs=tuple(tensor_index[t] for t in op.inputs), outputs=tuple(tensor_index[t] for t in op.outputs)
        )
        for op in ops
    ]
    outputs = tuple(tensor_index[home.get(t, t)] for t in graph.outputs)
    return replace(graph, ops=ops, tensors=tensors, storages=storages, outputs=outputs)


# -- extrapolation ----------------------------------------------------------------------------------------------------


def _extrapolated(folded: list[tuple[Graph, list[list[int]]]], length: int) -> Graph | None:
    """The graph at a length, where all have the same structure and the last lies on the curve of the others."""
    graphs = [graph for graph, _ in folded]
    if any(_structure(g) != _structure(graphs[0]) for g in graphs[1:]):
        return None
    columns = [_numbers(g, counts) for g, counts in folded]
    if len({len(c) for c in columns}) != 1:
        return None
    numbers = [_at(points, length) for points in zip(*columns, strict=True)]
    if any(n is None for n in numbers):
        return None
    graph = _rebuilt(folded[0], iter(numbers))
    graph.facts.update(_python_calls(graphs, length))
    return graph


def _python_calls(graphs: list[Graph], length: int) -> dict[str, Any]:
    """Calls of Python at a length; where they are on no curve, on the line through the shortest and the longest."""
    counted = [found for g in graphs if (found := g.facts.get("python_calls"))]
    if len(counted) < len(graphs):
        return {}

    def at(points: tuple[int, ...]) -> int:
        found = _at(points, length)
        if found is not None:
            return int(found)
        slope = (points[-1] - points[0]) / (LENGTHS[len(points) - 1] - LENGTHS[0])
        return max(0, round(points[0] + slope * (length - LENGTHS[0])))

    phases = {phase: zip(*(each[phase] for each in counted), strict=True) for phase in counted[0]}
    return {"python_calls": {phase: [at(points) for points in columns] for phase, columns in phases.items()}}


def _structure(g: Graph) -> tuple[Any, ...]:
    """Everything but the numbers."""
    ops = [(o.kind, o.name, o.inputs, o.outputs, o.scope, o.phase, sorted(o.attrs)) for o in g.ops]
    tensors = [(t.dtype, t.storage, t.producer, len(t.shape), t.per_sample is None) for t in g.tensors]
    storages = [(s.role, s.born, s.dies) for s in g.storages]
    return ops, tensors, storages, g.outputs, g.parameters, g.notes


def _numbers(g: Graph, counts: list[list[int]]) -> list[Any]:
    """Every number of a graph, in the order in which `_rebuilt` takes them."""
    out: list[Any] = []
    for op, times in zip(g.ops, counts, strict=True):
        out += [op.repeat, *times, *(v for _, v in sorted(op.attrs.items()))]
    for t in g.tensors:
        out += [*t.shape, *(t.per_sample or ())]
    for s in g.storages:
        out += [s.bytes, s.repeat, s.per_sample, s.per_sample2]
    return [*out, *g.facts.get("host_calls", {}).values()]


def _at(points: tuple[Any, ...], length: int) -> Any:
    """The value at a length, extrapolated from the values at LENGTHS; None where the last is not on the others'
    curve."""
    if all(p == points[0] for p in points):
        return points[0]
    if not all(isinstance(p, int) and not isinstance(p, bool) for p in points):
        return None
    first, second = points[1] - points[0], points[2] - 2 * points[1] + points[0]
    if len(points) == 3 and second:
        return None
    if len(points) == 4 and points[3] - 3 * points[2] + 3 * points[1] - points[0]:
        return None
    x = Fraction(length - LENGTHS[0], LENGTHS[1] - LENGTHS[0])
    value = points[0] + first * x + second * x * (x - 1) / 2
    return int(value) if value.denominator == 1 and value >= 0 else None


def _rebuilt(pattern: tuple[Graph, list[list[int]]], numbers: Any) -> Graph:
    """The graph of a pattern with the given numbers."""
    graph, counts = pattern
    ops = []
    for op, times in zip(graph.ops, counts, strict=True):
        repeat = next(numbers)
        inputs = tuple(t for t, _ in zip(op.inputs, times, strict=True) for _ in range(next(numbers)))
        attrs = {name: next(numbers) for name in sorted(op.attrs)}
        ops.append(replace(op, inputs=inputs, repeat=repeat, attrs={name: attrs[name] for name in op.attrs}))
    tensors: list[Tensor] = []
    for t in graph.tensors:
        shape = tuple(next(numbers) for _ in t.shape)
        slopes = None if t.per_sample is None else tuple(next(numbers) for _ in t.per_sample)
        tensors.append(replace(t, shape=shape, per_sample=slopes))
    storages = [
        replace(s, bytes=next(numbers), repeat=next(numbers), per_sample=next(numbers), per_sample2=next(numbers))
        for s in graph.storages
    ]
    calls = {name: next(numbers) for name in graph.facts.get("host_calls", {})}
    facts = {**graph.facts, "host_calls": calls} if calls else dict(graph.facts)
    return replace(graph, ops=ops, tensors=tensors, storages=storages, facts=facts, notes=list(graph.notes))
