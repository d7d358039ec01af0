"""Totals of a job of many equal steps: hours, US dollars, kilowatt-hours, kilograms of CO2; and how much of it fits.

A job is steps x the time of a step. The interval of a step scales to the job: the error of a prediction
is the same in every step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from forerun.advice.cost import MS_PER_HOUR, usd_per_ms
from forerun.advice.verdict import DOES_NOT, Verdict, verdict, worst
from forerun.device import Device
from forerun.device.carbon import JOULES_PER_KWH, Grid, carbon_g
from forerun.prediction import Estimate, WholeTraining
from forerun.predictors.laws.energy import waiting_w


@dataclass(frozen=True)
class Totals:
    """Totals of a job, or a part of it; None is unknown."""

    hours: Estimate
    cost_usd: Estimate | None = None
    energy_kwh: Estimate | None = None
    carbon_kg: Estimate | None = None

    def times(self, count: float) -> Totals:
        """`count` times these totals."""
        amounts = {f.name: getattr(self, f.name) for f in fields(self)}
        return Totals(**{name: e and e.scaled(count, e.unit) for name, e in amounts.items()})

    def plus(self, other: Totals) -> Totals:
        """The sum; unknown where either is."""
        amounts: dict[str, Any] = {f.name: _sum(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Totals(**amounts)


@dataclass(frozen=True)
class Limits:
    """The most that a job may take, by the fields of Totals; None is no limit."""

    hours: float | None = None
    cost_usd: float | None = None
    energy_kwh: float | None = None
    carbon_kg: float | None = None

    def given(self) -> dict[str, float]:
        """The limits that there are, by name."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: limit for name, limit in values.items() if limit is not None}

    def verdicts(self, totals: Totals, *, learned: bool = True) -> dict[str, Verdict]:
        """Whether each limit is met; an unknown value meets none."""
        out = {}
        for name, limit in self.given().items():
            e: Estimate | None = getattr(totals, name)
            out[name] = DOES_NOT if e is None else verdict(e, limit, learned=learned)
        return out

    def verdict(self, totals: Totals, *, learned: bool = True) -> Verdict:
        """Whether all limits are met."""
        return worst(self.verdicts(totals, learned=learned).values())

    def largest(self, each: Totals, fixed: Totals | None = None, *, end: str = "value") -> tuple[int, str] | None:
        """How many parts fit besides what is `fixed`, and the limiting constraint; None where there is no limit.

        `end` is the end of the intervals that must fit: value, low or high.
        """
        counts = dict(self._counts(each, fixed, end))
        if not counts:
            return None
        limiting = min(counts, key=lambda name: counts[name])
        return counts[limiting], limiting

    def _counts(self, each: Totals, fixed: Totals | None, end: str) -> Iterator[tuple[str, int]]:
        for name, limit in self.given().items():
            e, first = getattr(each, name), getattr(fixed, name) if fixed else None
            known = e is not None and (fixed is None or first is not None)
            yield name, largest_count(getattr(e, end), limit - (getattr(first, end) if first else 0)) if known else 0


def steps_per_epoch(samples: int, batch: int, devices: int = 1) -> int:
    """Steps that see every sample once; the last one may be smaller."""
    return math.ceil(samples / (batch * devices))


def paced(step_ms: Estimate, samples: int, loading_samples_per_s: float | None) -> Estimate:
    """A step that cannot be faster than its samples are loaded; None: loading always keeps up."""
    if loading_samples_per_s is None:
        return step_ms
    load_ms = 1e3 * samples / loading_samples_per_s
    return Estimate(max(step_ms.value, load_ms), max(step_ms.low, load_ms), max(step_ms.high, load_ms), step_ms.unit)


def with_waits(energy_j: Estimate, busy_ms: Estimate, step_ms: Estimate, device: Device) -> Estimate:
    """Energy of a step that takes longer than its compute, waiting for gradients of other devices or for samples: the
    device is idle for the rest."""
    watts = waiting_w(device) or 0.0

    def at(end: str) -> float:
        waits_ms = getattr(step_ms, end) - getattr(busy_ms, end)
        return float(getattr(energy_j, end) + watts * waits_ms / 1e3)

    return Estimate(at("value"), at("low"), at("high"), energy_j.unit)


def totals(
    step_ms: Estimate, energy_j: Estimate | None, steps: float, *, usd_per_device_hour: float | None = None,
    grid: Grid | None = None, devices: int = 1,
) -> Totals:  # fmt: skip
    """Totals of `steps` steps on `devices` devices at once; `energy_j` is that of one device in one step."""
    hours = step_ms.scaled(steps / MS_PER_HOUR, "h")
    cost = None
    if usd_per_device_hour is not None:
        cost = step_ms.scaled(steps * usd_per_ms(usd_per_device_hour * devices), "USD")
    energy = None if energy_j is None else energy_j.scaled(steps * devices / JOULES_PER_KWH, "kWh")
    carbon = (
        energy.scaled(carbon_g(JOULES_PER_KWH, grid) / 1e3, "kg") if energy is not None and grid is not None else None
    )
    return Totals(hours, cost, energy, carbon)


def whole_training(
    step_ms: Estimate, energy_j: Estimate | None, batch: int, *, epochs: int, dataset_size: int,
    usd_per_device_hour: float | None = None, grid: Grid | None = None,
) -> WholeTraining:  # fmt: skip
    """Totals of training for a number of epochs on one device, at the rate of a step."""
    steps = steps_per_epoch(dataset_size, batch)
    each = totals(step_ms, energy_j, steps, usd_per_device_hour=usd_per_device_hour, grid=grid)
    total = each.times(epochs)
    pace = {end: 1e3 * dataset_size / (steps * getattr(step_ms, end)) for end in ("value", "low", "high")}
    return WholeTraining(
        epochs, dataset_size, steps * epochs, Estimate(pace["value"], pace["high"], pace["low"], "samples/s"),
        each.hours, total.hours, total.cost_usd, total.energy_kwh, total.carbon_kg,
    )  # fmt: skip


def largest_count(each: float, limit: float) -> int:
    """The largest whole number whose product with `each` is not above the limit."""
    if limit < each:
        return 0
    count = math.floor(limit / each)
    if count > 2**53:  # beyond that, floating point cannot represent one more or less
        return count
    while count * each > limit:  # the quotient may be rounded up
        count -= 1
    return count + 1 if (count + 1) * each <= limit else count


def _sum(a: Estimate | None, b: Estimate | None) -> Estimate | None:
    return a and b and Estimate(a.value + b.value, a.low + b.low, a.high + b.high, a.unit)
