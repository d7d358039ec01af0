"""Goals: each reads one number from a prediction, of a call or of an item."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.errors import ForerunError, did_you_mean
from forerun.prediction import Estimate, Prediction


@dataclass(frozen=True)
class Goal:
    """A quantity to minimise; with `per_item` of one sample or token, so that the batch may change."""

    name: str
    quantity: str  # the field of a prediction
    target: str  # the target whose measured ratios give the interval of a gain
    per_item: bool
    better: str  # the word for a gain

    def estimate(self, p: Prediction) -> Estimate:
        """The number of a call; a ForerunError where it is unknown."""
        value: Estimate | None = getattr(p, self.quantity)
        if value is None:
            reason = p.unknown.get(self.quantity, f"it is not predicted on {p.device}")
            raise ForerunError(f"the goal {self.name} cannot be predicted: {reason}")
        return value


GOALS = {
    goal.name: goal
    for goal in (
        Goal("latency", "latency_ms", "latency_ms", False, "faster"),
        Goal("throughput", "latency_ms", "latency_ms", True, "more"),
        Goal("memory", "memory_mb", "memory_mb", False, "less memory"),
        Goal("energy", "energy_j", "energy_j", True, "less energy"),
        Goal("cost", "cost_usd", "latency_ms", True, "cheaper"),
    )
}


def goal_of(name: str) -> Goal:
    """A goal by its name."""
    if not isinstance(name, str) or name not in GOALS:
        hint = did_you_mean(str(name), GOALS) or f" Choose from {', '.join(GOALS)}."
        raise ForerunError(f"there is no goal {name!r}.{hint}")
    return GOALS[name]
