"""Devices that do the same call for less money or energy, at a similar speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forerun.advice.gains import CLAIMED, Gain, independent_factors
from forerun.api.predict import predict_many
from forerun.api.tables import TableRow, read_row
from forerun.decisions.optimise.changes import Case
from forerun.decisions.optimise.goals import Goal
from forerun.device import Device, all_devices
from forerun.device.cloud import all_instances
from forerun.prediction import Estimate, Prediction
from forerun.predictors.laws.specs import spec_problem

#: How many are listed, and how many times slower than the given device they may be.
SHOWN, SLOWER = 3, 1.5


@dataclass(frozen=True)
class OtherDevice:
    """Another device for the same call: its gain by the goal, and its speed."""

    device: str
    gain: Gain
    verdict: str
    latency_ms: Estimate
    memory_mb: float

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "gain": vars(self.gain), "latency_ms": vars(self.latency_ms)}


def other_devices(case: Case, now: Prediction, goal: Goal, **settings: Any) -> Iterator[OtherDevice]:
    """The best few by the goal of those that fit and are not much slower; claimed ones first."""
    assert now.latency_ms is not None
    frame = predict_many([case.workload], _candidates(case.device, goal), **settings)
    if "latency_ms" not in frame:
        return
    frame = frame[frame["fits"].eq(True) & (frame["latency_ms"] <= SLOWER * now.latency_ms.value)]
    rows = (read_row(row) for row in frame.to_dict("records"))
    compared = (_compared(row, now, goal) for row in rows if not isinstance(row, str))
    better = [other for other in compared if other and other.gain.value > 1]
    better.sort(key=lambda other: (other.verdict != CLAIMED, -other.gain.value))
    yield from better[:SHOWN]


def _candidates(device: Device, goal: Goal) -> list[Device]:
    """GPUs with a known price or, for energy, with a sufficient spec sheet."""
    priced = {instance.device_id for instance in all_instances()}
    return [
        d for d in all_devices()
        if d.id != device.id and d.traits.is_board and spec_problem(d) is None
        and (goal.name != "cost" or d.id in priced)
    ]  # fmt: skip


def _compared(row: TableRow, now: Prediction, goal: Goal) -> OtherDevice | None:
    after = row.cost_usd if goal.name == "cost" else row.energy_j
    if after is None:  # no price, or no power limit is known
        return None
    before = goal.estimate(now)
    gain = Gain.of(before.value / after.value, independent_factors(before, after))
    return OtherDevice(row.device, gain, gain.verdict, row.latency_ms, row.memory_mb.value)
