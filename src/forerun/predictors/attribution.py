"""What each number that a predictor sees contributes to an answer, as a factor on it.

A predictor that learns the logarithm of a quantity shares it out over what it sees; in the quantity itself every share
is a factor. All factors and the usual value together give the answer exactly.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from forerun._util.rendered import Rendered

#: So many features have a row; the others are one factor together.
SHOWN = 12


@dataclass(frozen=True)
class FeatureFactor:
    """A number that the predictor sees, its value in this case, and the factor it puts on the answer."""

    feature: str
    value: float | None  # None: not known of this device
    factor: float

    @property
    def strength(self) -> float:
        """How far the factor is from 1, up or down."""
        return abs(math.log(self.factor))


@dataclass(frozen=True)
class Attribution(Rendered):
    """A predicted latency as usual x the factors of all features, the strongest first."""

    model: str
    device: str
    workload: dict[str, Any]
    predictor: str
    usual_ms: float  # what the predictor says of a case of which it knows nothing
    latency_ms: float  # usual_ms x all factors; what is answered is never below `roofline_ms`
    roofline_ms: float
    factors: tuple[FeatureFactor, ...]

    def top(self, count: int = SHOWN) -> tuple[tuple[FeatureFactor, ...], float]:
        """The strongest features, and the factor of all others together."""
        rest = math.prod(one.factor for one in self.factors[count:])
        return self.factors[:count], rest

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
