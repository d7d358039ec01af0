"""The optimizer step as one fused launch (`fused=True`) in place of the launches over lists that PyTorch makes else.

A fused kernel reads every weight, gradient and state once and writes weights and states once; nothing lies in between.
"""

from __future__ import annotations

from dataclasses import replace

from forerun.graph.ir import Graph, Op

#: What a fused step is called, by the optimizer.
_NAMES = {"sgd": "_fused_sgd_", "momentum": "_fused_sgd_", "adam": "_fused_adam_", "adamw": "_fused_adamw_"}


def fused_optimizer(graph: Graph, optimizer: str) -> Graph | None:
    """A training graph with its optimizer step fused; None where that is a single launch already."""
    steps = [
        i
        for i, op in enumerate(graph.ops)
        if op.phase == "optimizer" and "_foreach_" in op.name and "_amp" not in op.name
    ]
    if len(steps) < 2:
        return None
    first, gone = steps[0], set(steps)
    read = _before(graph, [t for i in steps for t in graph.ops[i].inputs])
    written = _before(graph, [t for i in steps for t in graph.ops[i].outputs], ("parameter", "state"))
    known = [t for i in steps for t in graph.ops[i].inputs if graph.tensors[t].producer < first]
    fused = Op(
        "optimizer", f"aten::{_NAMES[optimizer]}", tuple(dict.fromkeys(known)), (),
        {"bytes_read": _bytes(graph, read), "bytes_written": _bytes(graph, written),
         "tensors": max(graph.ops[i].attrs.get("tensors", 1) for i in steps),
         "lists": len({graph.storages[s].role for s in read}) + (optimizer in ("adam", "adamw"))},
        "", "optimizer",
    )  # fmt: skip
    ops: list[Op] = []
    place: list[int] = []
    for i, op in enumerate(graph.ops):
        if i == first:
            ops.append(fused)
        elif i not in gone:
            ops.append(op)
        place.append(len(ops) - 1)
    at = place[first]
    tensors = [
        replace(t, producer=at if t.producer in gone else place[t.producer] if t.producer >= 0 else -1)
        for t in graph.tensors
    ]
    storages = []
    for s in graph.storages:
        moved = replace(s, born=_at(s.born, place), dies=None if s.dies is None else _at(s.dies, place))
        if s.born in gone:  # what the launches put between one another
            moved = replace(moved, bytes=0, per_sample=0, per_sample2=0)
        storages.append(moved)
    return replace(graph, ops=ops, tensors=tensors, storages=storages, notes=[*graph.notes, "the optimizer is fused"])


def _before(graph: Graph, tensors: list[int], roles: tuple[str, ...] = ("parameter", "gradient", "state")) -> set[int]:
    """The storages behind tensors that exist before the step."""
    first = min(i for i, op in enumerate(graph.ops) if op.phase == "optimizer")
    storages = {graph.tensors[t].storage for t in tensors}
    return {s for s in storages if graph.storages[s].born < first and _role(graph, s) in roles}


def _role(graph: Graph, storage: int) -> str:
    """A gradient that the backward pass of this call makes is recorded as an activation."""
    role = graph.storages[storage].role
    return "gradient" if role == "activation" else role


def _bytes(graph: Graph, storages: set[int]) -> int:
    return sum(graph.storages[s].bytes * graph.storages[s].repeat for s in storages)


def _at(op: int, place: list[int]) -> int:
    return op if op < 0 else place[min(op, len(place) - 1)] + (op >= len(place))
