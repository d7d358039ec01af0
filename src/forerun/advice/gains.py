"""Gains of a change: the ratio of two predictions, its interval, and whether it may be claimed.

Two predictions of one model share most of their error, so the interval of a ratio comes from ratios that were measured
(predictors/laws/gain_errors.py). Without such, the two intervals count as independent, which is too wide, never too
narrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from forerun.prediction import Estimate

#: A gain is claimed when its whole interval is above 1 by more than this, a loss when it is below: less is negligible.
LEAST_CLAIMED = 0.02
CLAIMED, CANNOT_TELL, WORSE = "claimed", "cannot tell", "worse"


@dataclass(frozen=True)
class Gain:
    """How many times better: 1.5 means two thirds of the time (or memory, energy, money); below 1 it is worse."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Claimed, cannot tell, or worse."""
        if self.low > 1 + LEAST_CLAIMED:
            return CLAIMED
        return WORSE if self.high < 1 - LEAST_CLAIMED else CANNOT_TELL

    @classmethod
    def of(cls, ratio: float, factors: tuple[float, float]) -> Gain:
        """The gain of two predictions with this ratio; `factors` are those of its interval."""
        return cls(ratio, ratio * factors[0], ratio * factors[1])


def independent_factors(before: Estimate, after: Estimate) -> tuple[float, float]:
    """Interval factors of before / after where the shared error is unknown: their squares add."""
    low = math.hypot(math.log(before.value / before.low), math.log(after.high / after.value))
    high = math.hypot(math.log(before.high / before.value), math.log(after.value / after.low))
    return math.exp(-low), math.exp(high)
