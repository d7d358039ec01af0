"""The cases of a sweep of kind `serving`: a model, an engine's settings, and the requests that arrive."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import specs

KIND = "serving"
ENGINE = {"block_size": 256, "num_blocks": 384, "max_batch_tokens": 2048}
REPEAT_MODELS = 2  # every so many models, one is built again for its repeats
REPEATS = 2  # repeated runs of such a model
REPEAT_AFTER = 3  # other models before them
SHORTEST, LONGEST = 4, 4.0  # bounds of a drawn length: tokens, and times the mean


@dataclass
class Unit:
    """Runs of one model that share its build."""

    cases: list[dict[str, Any]]
    repeat: int = 0


@dataclass
class Traffic:
    """The requests of a run, the same for every run of a case: lengths, gaps between arrivals, and prompts."""

    case: dict[str, Any]
    vocab: int
    rng: np.random.Generator = field(init=False)
    tokens: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(int(specs.key_of(self.case), 16))
        longest = int(LONGEST * self.case["prompt"]) + 1
        self.tokens = self.rng.integers(0, self.vocab, 8 * longest + 4096).tolist()

    @property
    def open(self) -> bool:
        """Whether requests arrive at a rate, independently of those that finish."""
        return self.case["arrivals"] == "poisson"

    def gap_s(self) -> float:
        """Seconds to the next arrival."""
        return float(self.rng.exponential(1.0 / self.case["rate"]))

    def lengths(self) -> tuple[int, int]:
        """Tokens of the next request's prompt and of its answer."""
        return self._length(self.case["prompt"]), self._length(self.case["output"])

    def residual(self, output: int) -> int:
        """What is left of a request in the middle of its answer, as those are with which a closed loop begins."""
        return int(self.rng.integers(1, output + 1))

    def prompt(self, length: int) -> list[int]:
        """Random tokens, so that no two prompts share a prefix."""
        begin = int(self.rng.integers(0, len(self.tokens) - length))
        return self.tokens[begin : begin + length]

    def _length(self, mean: int) -> int:
        """The mean itself, or with a `spread` a draw from a log-normal distribution of that mean."""
        sigma = float(self.case.get("spread") or 0.0)
        if not sigma:
            return mean
        drawn = mean * float(np.exp(sigma * self.rng.standard_normal() - sigma**2 / 2))
        return int(min(max(round(drawn), SHORTEST), LONGEST * mean))


def cases(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Every case of a spec; `engine` of the spec are settings of the engine that differ from ours."""
    engine = {**ENGINE, **spec.get("engine", {})}
    for block in spec["blocks"]:
        for setting in block["settings"]:
            _check(setting)
    return [{**case, "kind": KIND, "mode": KIND, "engine": engine} for case in specs.cases(spec)]


def _check(setting: dict[str, Any]) -> None:
    """Raises a ValueError if the requests of a setting cannot be made."""
    arrivals = setting.get("arrivals")
    needed = {"poisson": "rate", "closed": "concurrency"}.get(str(arrivals))
    if needed is None:
        raise ValueError(f"arrivals are poisson or closed, not {arrivals!r}")
    for name in (needed, "prompt", "output"):
        given = setting.get(name)
        if not all(isinstance(n, int | float) and n > 0 for n in (given if isinstance(given, list) else [given])):
            raise ValueError(f"a setting with {arrivals} arrivals needs {name}, a number above 0")


def model_key(case: dict[str, Any]) -> str:
    """Cases with the same key run on one built model and one engine."""
    parts = {k: case.get(k) for k in ("source", "name", "config", "overrides", "dtype", "engine")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def units(spec: dict[str, Any], seed: int, done: set[tuple[str, int]]) -> list[Unit]:
    """The models in random order, each with its runs that are not done; some are built again later for repeats."""
    rng = random.Random(f"{seed}/{spec['name']}")
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in cases(spec):
        groups.setdefault(model_key(case), []).append(case)
    shuffled = list(groups.values())
    rng.shuffle(shuffled)
    for group in shuffled:
        rng.shuffle(group)
    ordered = [
        Unit([case for case in unit.cases if (specs.key_of(case), unit.repeat) not in done], unit.repeat)
        for unit in _with_repeats(shuffled, rng)
    ]
    return [unit for unit in ordered if unit.cases]


def _with_repeats(groups: list[list[dict[str, Any]]], rng: random.Random) -> Iterator[Unit]:
    later: list[tuple[int, Unit]] = []
    for i, group in enumerate(groups):
        yield Unit(group)
        if i % REPEAT_MODELS == 0:
            later.append((i + REPEAT_AFTER, Unit(rng.sample(group, min(REPEATS, len(group))), repeat=1)))
        yield from (unit for due, unit in later if due == i)
        later = [(due, unit) for due, unit in later if due > i]
    yield from (unit for _, unit in later)
