"""A training or inference job on one device or several: totals and a verdict from the predictions of its steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from forerun.advice import job as law
from forerun.advice.cost import price_line
from forerun.advice.data_parallel import scaled
from forerun.advice.job import Limits, Totals
from forerun.advice.verdict import DOES_NOT, MEETS, PROBABLY, Verdict, worst
from forerun.api.tables import TableRow
from forerun.device import Device
from forerun.device.carbon import Grid
from forerun.device.cloud import Instance
from forerun.errors import ForerunError
from forerun.prediction import Estimate, Prediction


@dataclass(frozen=True)
class Job:
    """The amount of work: samples over epochs, or a number of steps; without either, as much as fits the limits."""

    samples: int | None
    epochs: int | None
    steps: int | None
    limits: Limits
    evaluation_samples: int = 0  # after every epoch; once at the end of a job of steps
    loading_samples_per_s: float | None = None  # None: loading keeps up

    @property
    def unit(self) -> str:
        """The unit of the job."""
        return "steps" if self.steps or self.samples is None else "epochs"


@dataclass(frozen=True)
class Case:
    """One step as predicted on one device."""

    device: Device
    batch: int
    latency_ms: Estimate
    energy_j: Estimate | None
    memory_mb: Estimate | None
    fits: bool | None
    surely_fits: bool | None
    basis: str

    @classmethod
    def of_prediction(cls, device: Device, p: Prediction) -> Case:
        if p.latency_ms is None:
            raise ForerunError(f"the latency of {p.model} on {device.id} is not predicted")
        fit = p.fit
        return cls(
            device, p.workload["batch"], p.latency_ms, p.energy_j, p.memory_mb,
            fit.fits if fit else None, fit.sure if fit else None, p.basis,
        )  # fmt: skip

    @classmethod
    def of_row(cls, device: Device, row: TableRow) -> Case:
        """From a row of `predict_many`."""
        return cls(device, row.batch, row.latency_ms, row.energy_j, row.memory_mb, row.fits, row.surely_fits, row.basis)


@dataclass(frozen=True)
class JobRow:
    """The job on a number of equal devices, at one batch size."""

    device: str
    devices: int
    batch: int  # of each device
    count: int  # epochs, or steps where the job is given in steps
    steps: int
    step_ms: Estimate
    samples_per_s: Estimate
    hours: Estimate
    cost_usd: Estimate | None
    energy_kwh: Estimate | None
    carbon_kg: Estimate | None
    memory_mb: Estimate | None
    fits: bool | None
    basis: str
    price: str | None
    each: Totals  # one epoch, or one step
    verdicts: dict[str, Verdict]  # by limit
    verdict: Verdict | None  # of all limits and the memory; None without a limit
    largest: int | None  # epochs or steps that fit by the estimate; None without a limit
    surely_largest: int | None  # that fit by the upper end of the interval
    binds: str | None  # the limiting constraint on `largest`
    generation_measured: bool  # False: no device of its generation was measured

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """What the devices of a job cost, what electricity they use, and whether their generation was measured."""

    price: Instance | None
    grid: Grid
    learned: bool

    @property
    def hourly_usd(self) -> float | None:
        """Of one device."""
        return None if self.price is None else self.price.usd_per_device_hour


def row(job: Job, case: Case, evaluation: Case | None, place: Place, devices: int, gradients_mb: float) -> JobRow:
    """The job at the pace of a predicted step; `gradients_mb` is summed over devices after every step."""
    step = scaled(case.latency_ms, gradients_mb, case.device, devices).step_ms if gradients_mb else case.latency_ms
    pace = law.paced(step, case.batch * devices, job.loading_samples_per_s)
    part = 1 if job.unit == "steps" else law.steps_per_epoch(job.samples or 0, case.batch, devices)
    each = _totals(case, pace, part, place, devices)
    fixed = None
    if evaluation is not None:
        calls = law.steps_per_epoch(job.evaluation_samples, case.batch, devices)
        eval_pace = law.paced(evaluation.latency_ms, case.batch * devices, job.loading_samples_per_s)
        tested = _totals(evaluation, eval_pace, calls, place, devices)
        each, fixed = (each, tested) if job.unit == "steps" else (each.plus(tested), None)
    room = job.limits.largest(each, fixed)
    sure = job.limits.largest(each, fixed, end="high")
    count = job.steps or job.epochs or (room[0] if room else 1)
    total = each.times(count) if fixed is None else each.times(count).plus(fixed)
    learned = place.learned
    least = total if count else each if fixed is None else each.plus(fixed)  # if it does not fit once, no limit is met
    samples = 1e3 * case.batch * devices
    return JobRow(
        case.device.id, devices, case.batch, count, count * part, pace,
        Estimate(samples / pace.value, samples / pace.high, samples / pace.low, "samples/s"),
        total.hours, total.cost_usd, total.energy_kwh, total.carbon_kg, case.memory_mb, case.fits, case.basis,
        None if place.price is None else price_line(place.price), each, job.limits.verdicts(least, learned=learned),
        worst([job.limits.verdict(least, learned=learned), _memory_verdict(case)]) if room else None,
        room and room[0], sure and (sure[0] if learned else 0), room and room[1], learned,
    )  # fmt: skip


def _totals(case: Case, pace: Estimate, steps: int, place: Place, devices: int) -> Totals:
    energy = case.energy_j and law.with_waits(case.energy_j, case.latency_ms, pace, case.device)
    return law.totals(pace, energy, steps, usd_per_device_hour=place.hourly_usd, grid=place.grid, devices=devices)


def _memory_verdict(case: Case) -> Verdict:
    if case.fits is False:
        return DOES_NOT
    return MEETS if case.surely_fits else PROBABLY
