"""What is to become better: a goal reads one number from a prediction, of a call or of an item."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.errors import ForerunError, did_you_mean
from forerun.prediction import Estimate, Prediction


@dataclass(frozen=True)
class Goal:
    """A quantity that is to become smaller; with `per_item` of one sample or token, so that the batch may change."""

    name: str
    quantity: str  # the field of a prediction
    target: str  # whose measured ratios give the interval of a gain
    per_item: bool
    better: str  # what a gain is called

    def estimate(self, p: Prediction) -> Estimate:
        """The number of a call; a ForerunError where it is not known."""
        found: Estimate | None = getattr(p, self.quantity)
        if found is None:
            reason = p.unknown.get(self.quantity, f"it is not predicted on {p.device}")
            raise ForerunError(f"the goal {self.name} has no answer: {reason}")
        return found


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
    if name not in GOALS:
        hint = did_you_mean(name, GOALS) or f" Choose from {', '.join(GOALS)}."
        raise ForerunError(f"there is no goal {name!r}.{hint}")
    return GOALS[name]
