"""The order of work: units of cases that share a model, shuffled, some repeated later, specs taking turns."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from . import specs
from .models import group_key

OPS_PER_UNIT = 48  # one session of the profiler
BREADTH = 3  # cases of a model before another model's turn
REPEAT_SHARE = 0.12  # repeated rows for each first one
REPEAT_WITHIN = (3, 14)  # after this many other units


@dataclass
class Unit:
    """Cases that run in one go."""

    cases: list[dict[str, Any]]
    repeat: int = 0


@dataclass
class Lane:
    """One spec's units, and the time it has had."""

    name: str
    share: float
    units: list[Unit] = field(default_factory=list)
    spent_s: float = 0.0


def lane(spec: dict[str, Any], share: float, seed: int, done: set[tuple[str, int]]) -> Lane:
    """The units still to do. The order depends on the seed; what is done is left out."""
    rng = random.Random(f"{seed}/{spec['name']}")
    if spec.get("kind") == "op":
        from . import operator_cases  # brings PyTorch, which planning models does not need

        drawn = operator_cases.cases(spec)
        units = [Unit(drawn[i : i + OPS_PER_UNIT]) for i in range(0, len(drawn), OPS_PER_UNIT)]
    else:
        groups: dict[str, list[dict[str, Any]]] = {}
        for case in specs.cases(spec):
            groups.setdefault(group_key(case), []).append(case)
        # The largest first: if it does not fit, that is known before the small ones fill the allocator.
        units = [Unit(sorted(group, key=_order)) for group in groups.values()]
    breadth = OPS_PER_UNIT if spec.get("kind") == "op" else int(spec.get("breadth", BREADTH))
    return Lane(spec["name"], share, ordered(units, rng, done, breadth))


def ordered(units: list[Unit], rng: random.Random, done: set[tuple[str, int]], breadth: int = BREADTH) -> list[Unit]:
    """The units shuffled, some of them repeated later, without what is done; a few cases of every model come before the
    rest of any, so that a sweep cut short has seen many models."""
    rng.shuffle(units)
    front: list[Unit] = []
    back: list[Unit] = []
    for unit in _with_repeats(units, rng):
        todo = [case for case in unit.cases if (specs.key_of(case), unit.repeat) not in done]
        few = len(todo) if unit.repeat else max(0, breadth - (len(unit.cases) - len(todo)))
        chosen = sorted(rng.sample(range(len(todo)), min(few, len(todo))))
        front.append(Unit([todo[i] for i in chosen], unit.repeat))
        back.append(Unit([case for i, case in enumerate(todo) if i not in chosen], unit.repeat))
    return [unit for unit in [*front, *back] if unit.cases]


def _order(case: dict[str, Any]) -> tuple[Any, ...]:
    dtype = specs.DTYPES.index(case["dtype"])
    return (dtype, case["mode"], str(case.get("amp")), -case["batch"] * case.get("seq_len", 1))


def _with_repeats(units: list[Unit], rng: random.Random) -> list[Unit]:
    """A unit comes back whenever the repeated rows have fallen below their share, so every stretch has its part."""
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
    """Whose turn it is: the lane that has had least of its share."""
    waiting = [lane for lane in lanes if lane.units]
    return min(waiting, key=lambda lane: lane.spent_s / lane.share) if waiting else None
