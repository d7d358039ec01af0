"""The order of work: shuffled units of cases that share a model, some repeated later, with specs taking turns."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from . import specs
from .models import group_key

OPS_PER_UNIT = 48  # operators per profiler session
BREADTH = 3  # cases of a model before the next model
REPEAT_SHARE = 0.12  # repeated rows per first row
REPEAT_WITHIN = (3, 14)  # number of other units before a repeat


@dataclass
class Unit:
    """Cases that run consecutively."""

    cases: list[dict[str, Any]]
    repeat: int = 0


@dataclass
class Lane:
    """The units of one spec, and the time spent on it."""

    name: str
    share: float
    units: list[Unit] = field(default_factory=list)
    spent_s: float = 0.0


def lane(spec: dict[str, Any], share: float, seed: int, done: set[tuple[str, int]]) -> Lane:
    """The units still to do, in an order that depends on the seed; finished ones are omitted."""
    rng = random.Random(f"{seed}/{spec['name']}")
    if spec.get("kind") == "op":
        from . import operator_cases  # imports PyTorch, which planning models does not need

        drawn = operator_cases.cases(spec)
        units = [Unit(drawn[i : i + OPS_PER_UNIT]) for i in range(0, len(drawn), OPS_PER_UNIT)]
    else:
        groups: dict[str, list[dict[str, Any]]] = {}
        for case in specs.cases(spec):
            groups.setdefault(group_key(case), []).append(case)
        # The largest first, so that running out of memory shows before small ones fill the allocator.
        units = [Unit(sorted(group, key=_order)) for group in groups.values()]
    breadth = OPS_PER_UNIT if spec.get("kind") == "op" else int(spec.get("breadth", BREADTH))
    return Lane(spec["name"], share, ordered(units, rng, done, breadth))


def ordered(units: list[Unit], rng: random.Random, done: set[tuple[str, int]], breadth: int = BREADTH) -> list[Unit]:
    """The units shuffled, some repeated later, without finished ones; a few cases of every model come before the rest
    of any, so that an interrupted sweep covers many models."""
    rng.shuffle(units)
    front: list[Unit] = []
    back: list[Unit] = []
    for unit in _with_repeats(units, rng):
        todo = [case for case in unit.cases if (specs.key_of(case), unit.repeat) not in done]
        count = len(todo) if unit.repeat else max(0, breadth - (len(unit.cases) - len(todo)))
        chosen = sorted(rng.sample(range(len(todo)), min(count, len(todo))))
        front.append(Unit([todo[i] for i in chosen], unit.repeat))
        back.append(Unit([case for i, case in enumerate(todo) if i not in chosen], unit.repeat))
    return [unit for unit in [*front, *back] if unit.cases]


def _order(case: dict[str, Any]) -> tuple[Any, ...]:
    dtype = specs.DTYPES.index(case["dtype"])
    return (dtype, case["mode"], str(case.get("amp")), -case["batch"] * case.get("seq_len", 1))


def _with_repeats(units: list[Unit], rng: random.Random) -> list[Unit]:
    """Repeats a unit whenever repeated rows fall below their share, so that repeats are spread evenly."""
    out: list[Unit] = []
    later: list[tuple[int, Unit]] = []
    first = again = 0
    for i, unit in enumerate(units):
        out.append(unit)
        first += len(unit.cases)
        if again < REPEAT_SHARE * first:
            again += len(unit.cases)
            later.append((i + rng.randint(*REPEAT_WITHIN), Unit(list(unit.cases), repeat=1)))
        out += [unit for due, unit in later if due == i]
        later = [(due, unit) for due, unit in later if due > i]
    return out + [unit for _, unit in later]


def next_lane(lanes: list[Lane]) -> Lane | None:
    """The next lane: the one with the least time relative to its share."""
    waiting = [lane for lane in lanes if lane.units]
    return min(waiting, key=lambda lane: lane.spent_s / lane.share) if waiting else None
