"""Pipeline parallelism: a graph cut into stages by layers, and the stage that takes longest."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from forerun.errors import ForerunError
from forerun.graph.cost import Shapes, cost
from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.splice import storage_of

#: The number of a layer in the scope of an op.
_NUMBER = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")
#: FLOPs that a device does while it moves a byte: what makes the costs of layers comparable before a device is known.
_FLOPS_PER_BYTE = 200.0


@dataclass(frozen=True)
class Layer:
    """What is never cut: the ops of a layer (their places), and how many equal ones they stand for."""

    ops: tuple[int, ...]
    repeat: int
    cost: float  # of one of them


def layers(graph: Graph) -> list[Layer]:
    """The layers of a graph in order of their forward ops; what stands outside of layers belongs to its neighbour."""
    order: dict[tuple[str, int], list[int]] = {}
    for i, op in enumerate(graph.ops):
        found = _NUMBER.search(op.scope)
        if found is not None and op.phase != "optimizer":
            order.setdefault((op.scope[: found.start(1)], int(found[1])), []).append(i)
    # A stack of layers is the list of modules with the most of them: lists within a layer are short.
    costs, most = _costs(graph), _stack(order)
    runs = [places for key, places in sorted(order.items(), key=lambda item: item[1][0]) if key[0] == most]
    return [
        Layer(tuple(places), repeat := max(graph.ops[i].repeat for i in places), sum(costs[i] for i in places) / repeat)
        for places in runs
    ]


def _stack(order: dict[tuple[str, int], list[int]]) -> str:
    sizes: dict[str, int] = {}
    for (name, _), places in order.items():
        sizes[name] = sizes.get(name, 0) + len(places)
    return max(sizes, key=lambda name: sizes[name], default="")


def _costs(graph: Graph) -> list[float]:
    shapes = Shapes(graph)
    found = (cost(op, shapes) for op in graph.ops)
    return [
        max(float(c.flops), _FLOPS_PER_BYTE * float(c.read + c.written)) * op.repeat
        for c, op in zip(found, graph.ops, strict=True)
    ]


def stages(graph: Graph, pp: int) -> list[Graph]:
    """The graphs of `pp` stages, each with about the same cost, and what is sent from one to the next."""
    if pp == 1:
        return [graph]
    found = layers(graph)
    total = sum(layer.repeat for layer in found)
    if total < pp:
        raise ForerunError(f"pp={pp} cuts {graph.name} into stages by layers, of which it has {total}")
    counts = _balanced(graph, found, pp)
    return [_stage(graph, found, counts, k) for k in range(pp)]


def slowest_stage(graph: Graph, pp: int) -> Graph:
    """The stage with the greatest cost, the one with more weights among equals."""
    return max(stages(graph, pp), key=lambda stage: (sum(_costs(stage)), stage.parameters)) if pp > 1 else graph


def _balanced(graph: Graph, found: Sequence[Layer], pp: int) -> list[list[int]]:
    """How many of each kind of layer every stage has: as even as whole layers allow, what stands before and after the
    layers counted with the first and the last stage."""
    inside = {i for layer in found for i in layer.ops}
    costs = _costs(graph)
    first = min(inside)
    last_forward = max(i for i in inside if graph.ops[i].phase == "forward")
    outside = [i for i in range(len(graph.ops)) if i not in inside and graph.ops[i].phase != "optimizer"]
    head = sum(costs[i] for i in outside if i < first)
    tail = sum(costs[i] for i in outside if i > last_forward)
    units = [k for k, layer in enumerate(found) for _ in range(layer.repeat)]
    ends = _cuts([found[k].cost for k in units], head, tail, pp)
    counts, start = [], 0
    for end in ends:
        counts.append([units[start:end].count(k) for k in range(len(found))])
        start = end
    return counts


def _cuts(costs: Sequence[float], head: float, tail: float, pp: int) -> list[int]:
    """Where each stage ends, so that the dearest is as cheap as possible: bisection over its cost."""
    low, high = max(costs), sum(costs) + head + tail

    def within(limit: float) -> list[int] | None:
        ends: list[int] = []
        used = head
        for k, one in enumerate(costs):
            left = pp - len(ends) - 1
            if (used + one > limit and k > (ends[-1] if ends else 0)) or len(costs) - k == left:
                if left == 0:
                    return None
                ends.append(k)
                used = 0.0
            used += one
        if len(ends) < pp - 1 or used + tail > limit:
            return None
        return [*ends, len(costs)]

    best = within(high) or [round((k + 1) * len(costs) / pp) for k in range(pp)]
    for _ in range(50):
        middle = (low + high) / 2
        found = within(middle)
        low, high, best = (low, middle, found) if found else (middle, high, best)
    return best


def _stage(graph: Graph, found: Sequence[Layer], counts: Sequence[Sequence[int]], at: int) -> Graph:
    """One stage: its layers, and of what stands outside of layers that before them, or after."""
    here, pp = counts[at], len(counts)
    repeat = {i: n for layer, n in zip(found, here, strict=True) for i in layer.ops}
    of_layer = {i: layer.repeat for layer in found for i in layer.ops}
    first = min(of_layer)
    last = max(of_layer)

    def kept(i: int, op: Op) -> int:
        if i in repeat:
            return repeat[i] * op.repeat // of_layer[i] if op.repeat >= of_layer[i] else min(repeat[i], 1) * op.repeat
        shared = i < first and not _weighs(graph, op)  # masks and positions, which every stage makes
        if op.phase == "optimizer" or shared:
            return op.repeat
        begins = i < first or (i > last and op.phase != "forward")
        return op.repeat if (at == 0 if begins else at == pp - 1) else 0

    repeats = [kept(i, op) for i, op in enumerate(graph.ops)]
    return _only(graph, repeats, at, pp)


def _weighs(graph: Graph, op: Op) -> bool:
    return any(graph.storages[graph.tensors[t].storage].role == "parameter" for t in op.inputs)


def _only(graph: Graph, repeats: Sequence[int], at: int, pp: int) -> Graph:
    """The graph with each op so often, without those that are not in it, and the exchange with its neighbours."""
    share = {i: n / op.repeat for i, (op, n) in enumerate(zip(graph.ops, repeats, strict=True))}
    used: dict[int, float] = {}  # storage -> the share of its blocks that are here
    for i, op in enumerate(graph.ops):
        if op.phase != "optimizer" and repeats[i]:
            for t in (*op.inputs, *op.outputs):
                storage = graph.tensors[t].storage
                used[storage] = max(used.get(storage, 0.0), share[i])
    of_weights = _weight_shares(graph, used)
    place = [-1] * len(graph.ops)
    ops: list[Op] = []
    for i, op in enumerate(graph.ops):
        if repeats[i] and not (op.phase == "optimizer" and not of_weights):
            place[i] = len(ops)
            ops.append(replace(op, repeat=repeats[i], attrs=_scaled(graph, op, used)))
    after = _next_places(place, len(ops))
    storages = []
    for s, one in enumerate(graph.storages):
        blocks = round(one.repeat * used.get(s, of_weights.get(s, 0.0)))
        born = one.born if one.born < 0 else (place[one.born] if one.born < len(place) else len(ops))
        dies = (
            one.dies if one.dies is None or one.dies < 0 else (after[one.dies] if one.dies < len(after) else len(ops))
        )
        storages.append(replace(one, born=born, dies=dies, repeat=blocks) if blocks else Storage(0, one.role, -1, None))
    tensors = [replace(t, producer=place[t.producer] if t.producer >= 0 else -1) for t in graph.tensors]
    weights = sum(s.bytes * s.repeat for s in graph.storages if s.role == "parameter")
    here = sum(s.bytes * s.repeat for s in storages if s.role == "parameter")
    made = replace(
        graph, ops=ops, tensors=tensors, storages=storages, parameters=round(graph.parameters * here / max(weights, 1)),
        active_parameters=round(graph.active_parameters * here / max(weights, 1)),
        outputs=graph.outputs if at == pp - 1 else (), facts={**graph.facts, "stage": at, "stages": pp},
    )  # fmt: skip
    return _with_sends(made, graph, at, pp)


def _weight_shares(graph: Graph, used: dict[int, float]) -> dict[int, float]:
    """The shares of what only the optimizer reads: those of weights and gradients in the same place of its lists."""
    shares: dict[int, float] = {}
    launches = [op for op in graph.ops if op.phase == "optimizer"]
    for _ in range(2):  # states may be listed beside gradients before weights are
        for op in launches:
            lists = max(int(op.attrs.get("lists", 1)), 1)
            size = max(len(op.inputs) // lists, 1)
            every = [graph.tensors[t].storage for t in (*op.inputs, *op.outputs)]
            for k in range(min(size, len(every))):
                column = every[k::size]
                known = [n for s in column if (n := used.get(s, shares.get(s))) is not None]
                shares.update((s, max(known)) for s in column if known and s not in used)
    return shares


def _scaled(graph: Graph, op: Op, used: dict[int, float]) -> dict[str, object]:
    """The attributes of an op; what an optimizer moves, by the share of its weights that is here."""
    if op.kind != "optimizer" or "bytes_read" not in op.attrs:
        return op.attrs
    shares = {**_weight_shares(graph, used), **used}
    whole = here = 0.0
    for t in (*op.inputs, *op.outputs):
        storage = graph.tensors[t].storage
        size = math.prod(graph.tensors[t].shape) * graph.storages[storage].repeat
        whole, here = whole + size, here + size * shares.get(storage, 0.0)
    share = here / max(whole, 1)
    return {**op.attrs, **{name: round(op.attrs[name] * share) for name in ("bytes_read", "bytes_written")}}


def _next_places(place: Sequence[int], end: int) -> list[int]:
    """For every op, the place of the next one that is kept."""
    out, following = [0] * len(place), end
    for i in range(len(place) - 1, -1, -1):
        following = place[i] if place[i] >= 0 else following
        out[i] = min(following, max(end - 1, 0))
    return out


def _with_sends(stage: Graph, whole: Graph, at: int, pp: int) -> Graph:
    """The stage with the exchange of activations, and in training of their gradients, with its neighbours."""
    hidden = hidden_state(whole)
    if hidden is None or not stage.ops:
        return stage
    backward = any(op.phase == "backward" for op in stage.ops)
    many = ((at > 0) + (at < pp - 1) * backward) if backward else int(at > 0)
    tensors, storages, ops = list(stage.tensors), list(stage.storages), list(stage.ops)
    for _ in range(many):
        local = Tensor(hidden.shape, hidden.dtype, len(storages), -1, hidden.per_sample)
        storages.append(storage_of(local, hidden.dtype, 0, 1))
        tensors.append(local)
        ops.append(Op("send_recv", "send_recv", (len(tensors) - 1,), (len(tensors) - 1,), {"devices": 2}))
    return replace(stage, ops=ops, tensors=tensors, storages=storages)


def hidden_state(graph: Graph) -> Tensor | None:
    """What one layer hands to the next: the first activation that a layer in the middle reads."""
    found = layers(graph)
    for layer in found[1:]:
        for i in layer.ops:
            for t in graph.ops[i].inputs:
                tensor = graph.tensors[t]
                if graph.storages[tensor.storage].role == "activation" and len(tensor.shape) > 1:
                    return tensor
    return None
