"""Feature attribution: the contribution of each feature to a prediction, as a factor on it.

A predictor that learns the logarithm of a quantity divides it into shares of its features; in the quantity itself every
share is a factor. The usual value times all factors is exactly the prediction.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from forerun._util.rendered import Rendered

#: Number of features that have a row; the others are one factor together.
SHOWN = 12


@dataclass(frozen=True)
class FeatureFactor:
    """A feature, its value in this case, and its factor on the prediction."""

    feature: str
    value: float | None  # None: not known of this device
    factor: float

    @property
    def strength(self) -> float:
        """How far the factor is from 1, up or down."""
        return abs(math.log(self.factor))


@dataclass(frozen=True)
class Attribution(Rendered):
    """A predicted latency as the usual value x the factors of all features, the strongest first."""

    model: str
    device: str
    workload: dict[str, Any]
    predictor: str
    usual_ms: float  # the prediction where no feature is known
    latency_ms: float  # usual_ms x all factors; predictions are never below `roofline_ms`
    roofline_ms: float
    factors: tuple[FeatureFactor, ...]

    def top(self, count: int = SHOWN) -> tuple[tuple[FeatureFactor, ...], float]:
        """The strongest features, and the factor of all others together."""
        rest = math.prod(one.factor for one in self.factors[count:])
        return self.factors[:count], rest

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
