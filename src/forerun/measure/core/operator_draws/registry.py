"""The registry of draws: by label, a function that returns an operator, its shape and its size."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Drawn:
    """An operator with its shape. Work and size are rough, to skip shapes that would not fit or take too long."""

    op: str
    shape: dict[str, int]
    numbers: float  # in memory at once: inputs, results and intermediates
    flops: float = 0.0


Draw = Callable[[random.Random], Drawn]
DRAWS: dict[str, Draw] = {}


def draw(label: str) -> Callable[[Draw], Draw]:
    """Registers the function under it."""

    def register(function: Draw) -> Draw:
        if label in DRAWS:
            raise ValueError(f"the draw {label!r} is registered twice")
        DRAWS[label] = function
        return function

    return register


def log_uniform(rng: random.Random, low: float, high: float, align: tuple[int, ...] = (1, 8, 64)) -> int:
    """A log-uniform whole number, often rounded to a multiple that suits tensor cores."""
    value = math.exp(rng.uniform(math.log(low), math.log(high)))
    step = rng.choice(align)
    return max(int(low), round(value / step) * step)
