"""Two predictions of one model before and after changes: the gain and its interval."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.advice.gains import Gain, independent_factors
from forerun.decisions.optimise.goals import Goal
from forerun.prediction import Prediction
from forerun.predictors.laws.gain_errors import GainErrors, pace

INDEPENDENT = "the two intervals, taken as independent"


@dataclass(frozen=True)
class Answer:
    """A prediction, its out-of-distribution deviation (in logarithms), and the kind of its device."""

    prediction: Prediction
    doubt: float
    device_kind: str

    @property
    def host_over_device(self) -> float:
        """How host-bound (above 1) or device-bound (below 1) it is."""
        host, device = self.prediction.host_ms, self.prediction.device_ms
        return 0.0 if host is None or device is None else host.value / device.value

    @property
    def batch(self) -> int:
        return int(self.prediction.workload["batch"])


def compared(
    before: Answer, after: Answer, goal: Goal, kinds: tuple[str, ...], errors: GainErrors | None, confidence: float,
    shared_by: int = 1,
) -> tuple[Gain, str]:  # fmt: skip
    """The gain, and what its interval is based on: `errors` of measured gains of the kinds of change between the two,
    or else both intervals. `shared_by` calls run side by side after the change. Items are those of the case as it is,
    so that padding adds none."""
    before_value, after_value = goal.estimate(before.prediction), goal.estimate(after.prediction)
    ratio = before_value.value / after_value.value * shared_by
    if goal.per_item:
        ratio *= after.batch / before.batch
    learned = errors is not None and before.prediction.basis == after.prediction.basis == "learned"
    kind = errors.kind_of(goal.target, kinds, before.device_kind) if errors is not None and learned else None
    if errors is None or kind is None:
        return Gain.of(ratio, independent_factors(before_value, after_value)), INDEPENDENT
    factors = errors.factors(
        goal.target, kind, before.device_kind, pace(max(before.host_over_device, after.host_over_device)), confidence,
        max(before.doubt, after.doubt),
    )  # fmt: skip
    return Gain.of(ratio, factors), f"{errors.pairs(goal.target, kind, before.device_kind):,} measured pairs"
