"""`forerun.budget` of one model: what a job takes on a device, or on every device with a price, and what fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from forerun._util.readable import pretty
from forerun._util.rendered import Rendered
from forerun.advice import carbon as carbon_advice
from forerun.advice import cost as cost_advice
from forerun.advice.data_parallel import gradient_mb
from forerun.advice.verdict import DOES_NOT, MEETS, held_back
from forerun.api.predict import predict_many, predict_workload
from forerun.api.questions import profiled
from forerun.api.tables import read_row
from forerun.decisions.budget import refusals
from forerun.decisions.budget.datasets import DataSet
from forerun.decisions.budget.jobs import Case, Job, JobRow, Place, row
from forerun.device import Device, all_devices
from forerun.device.cloud import Instance, instances_for
from forerun.errors import ForerunError
from forerun.prediction import Prediction
from forerun.predictors.registry import load_predictor
from forerun.workload import Workload

#: Batch sizes that are tried besides the requested one, as far as they fit.
BATCHES = tuple(2**n for n in range(2, 11))
#: The best batch is the smallest that is at most this much slower per sample than the fastest.
CLOSE = 0.05
#: Data parallelism within one machine.
MOST_DEVICES = 8


@dataclass(frozen=True)
class JobBudget(Rendered):
    """A job under limits: one row per device, cheapest first; on a single device also other batches and more
    devices."""

    model: str
    workload: dict[str, Any]
    samples: int | None
    dataset: str | None  # its name, where it is known by one
    unit: str  # epochs | steps
    asked: int | None  # requested epochs or steps; None: as many as fit
    limits: dict[str, float]
    confidence: float
    rows: tuple[JobRow, ...]
    batches: tuple[JobRow, ...] = ()
    best_batch: int | None = None
    counts: tuple[JobRow, ...] = ()  # the same job on 1 to 8 devices
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)  # device -> why it has no row
    notes: tuple[str, ...] = ()

    @property
    def cheapest(self) -> JobRow | None:
        """The cheapest row within all limits, among those of the best verdict."""
        return self._first(lambda r: r.each.cost_usd.value if r.each.cost_usd else float("inf"))

    @property
    def fastest(self) -> JobRow | None:
        """The fastest row within all limits, among those of the best verdict."""
        return self._first(lambda r: r.each.hours.value)

    def _first(self, key: Any) -> JobRow | None:
        able = [r for r in self.rows if r.fits is not False and r.verdict != DOES_NOT]
        ranked = sorted(
            able, key=lambda r: ((r.verdict or MEETS).place, r.fits is None, not r.generation_measured, key(r))
        )
        return ranked[0] if ranked else None

    @property
    def fewest_devices(self) -> JobRow | None:
        """The fewest devices within all limits: with confidence or, where none is, by the estimate."""
        ranked = sorted(self.counts, key=lambda r: ((r.verdict or MEETS).place, r.devices))
        return ranked[0] if ranked and ranked[0].verdict != DOES_NOT else None

    def to_dict(self) -> dict[str, Any]:
        picked = {name: getattr(self, name) for name in ("cheapest", "fastest", "fewest_devices")}
        return dataclasses.asdict(self) | {name: r and r.to_dict() for name, r in picked.items()}


@dataclass(frozen=True)
class Asked:
    """Settings that all of a budget's predictions share."""

    region: str | None
    instance: str | None
    options: dict[str, Any]  # predictor, confidence, host

    def place(self, device: Device, price: Instance | None) -> Place:
        named = price if self.instance is not None and price is not None else None
        learned = load_predictor(self.options["predictor"]).generation_measured(device)
        return Place(price, carbon_advice.choose_grid(self.region, named), learned)


def on_one_device(
    workload: Workload, device: Device, job: Job, request: Asked, devices: int, dataset: DataSet | None
) -> JobBudget:
    """The job on a device: totals, what fits, the best batch, and what more devices would do."""
    price = cost_advice.choose_instance(device, request.instance)
    place = request.place(device, price)
    if job.limits.cost_usd is not None and price is None:
        raise refusals.not_known("cost_usd", device.id)

    def predicted(batch: int, mode: str | None = None) -> Prediction:
        work = dataclasses.replace(workload, batch=batch)
        work = _evaluated(work) if mode == "inference" else work
        return predict_workload(
            work, device, measured=False, region=request.region, instance=request.instance, **request.options
        )

    def job_row(batch: int, count: int, job: Job = job) -> JobRow:
        tested = Case.of_prediction(device, predicted(batch, "inference")) if job.evaluation_samples else None
        step = Case.of_prediction(device, predicted(batch))
        return row(job, step, tested, place, count, gradients)

    first = predicted(workload.batch)
    gradients = gradient_mb(first.parameters, workload.weight_dtype) if workload.mode == "training" else 0.0
    chosen = job_row(workload.batch, devices)
    if first.fit is not None and not first.fit.fits:
        raise refusals.too_large(chosen, first.model, device, first.fit.largest_batch)
    if chosen.largest == 0:
        wanted = job.steps or job.epochs or 1
        enough = next((r.devices for r in _counts(job_row, workload.batch, job)[0] if (r.largest or 0) >= wanted), None)
        raise refusals.not_one_fits(chosen, first.model, job, enough)
    largest = (first.fit.largest_batch if first.fit else None) or workload.batch
    sizes = sorted({workload.batch, *(b for b in BATCHES if b <= min(largest, job.samples or largest))})
    same = dataclasses.replace(job, epochs=chosen.count) if job.unit == "epochs" else job  # the same work for all
    batches = tuple(job_row(batch, devices, same) for batch in sizes)
    counts, reason = _counts(job_row, workload.batch, same)
    notes = [*_notes(job, chosen, price, devices, dataset), *([reason] if reason else []), *first.notes]
    called = dataset.name if dataset else None
    return JobBudget(
        first.model, first.workload, job.samples, called, job.unit, job.steps or job.epochs, job.limits.given(),
        first.confidence, (chosen,), batches, best_batch(batches), counts, {}, tuple(notes),
    )  # fmt: skip


def _counts(job_row: Any, batch: int, job: Job) -> tuple[tuple[JobRow, ...], str | None]:
    """The job on 1 to 8 devices, or why only one can be predicted."""
    try:
        return tuple(job_row(batch, count, job) for count in range(1, MOST_DEVICES + 1)), None
    except ForerunError as error:  # the interconnect is unknown
        return (), str(error)


def best_batch(rows: Sequence[JobRow]) -> int | None:
    """The smallest batch that is about as fast per sample as the fastest one that fits."""
    able = [r for r in rows if r.fits is not False]
    pace = max((r.samples_per_s.value for r in able), default=0.0)
    return min((r.batch for r in able if r.samples_per_s.value >= (1 - CLOSE) * pace), default=None)


def on_many_devices(
    workload: Workload, chosen: Sequence[Device], job: Job, request: Asked, devices: int, dataset: DataSet | None
) -> JobBudget:
    """The job on every device given, or on every one with a price: those within the limits first, then by cost."""
    question = profiled(workload)  # an unreadable model is the user's error
    candidates = list(chosen) or [d for d in all_devices() if d.traits.rented and instances_for(d)]
    prices = dict(zip(candidates, cost_advice.choose_instances(candidates, request.instance), strict=True))
    steps = _cases(workload, candidates, request)
    tested = _cases(_evaluated(workload), candidates, request) if job.evaluation_samples else {}
    gradients = gradient_mb(question.graph.parameters, workload.weight_dtype) if workload.mode == "training" else 0.0
    rows, left_out = [], {}
    for device in candidates:
        try:
            step = _answered(steps[device])
            evaluation = _answered(tested[device]) if tested else None
            place = request.place(device, prices[device])
            rows.append(row(job, step, evaluation, place, devices, gradients))
        except ForerunError as reason:
            left_out[device.id] = str(reason)
    if not rows:
        raise ForerunError(f"no device can run this: {next(iter(left_out.values()))}")
    able = [r for r in rows if r.fits is not False]
    if not any(r.fits for r in rows) and len(able) < len(rows):  # fits on no device of known memory
        raise _too_large(rows, candidates, workload, request)
    asked_for = bool(job.epochs or job.steps)
    if job.limits.given() and not any(r.verdict != DOES_NOT if asked_for else r.largest for r in able):
        raise refusals.no_device_meets(able, question.graph.name, job)
    ranked = sorted(rows, key=lambda r: _rank(r, asked_for))
    alone = min(rows, key=lambda r: _rank(r, asked_for, by_goal_alone=True))
    confidence = request.options.get("confidence", 0.9)
    notes = (*_held_back(ranked[0], alone, job), *_notes(job, None, None, devices, dataset))
    called = dataset.name if dataset else None
    return JobBudget(
        question.graph.name, workload.to_dict() | {"region": request.region, "instance": request.instance}, job.samples,
        called, job.unit, job.steps or job.epochs, job.limits.given(), confidence, tuple(ranked), left_out=left_out,
        notes=notes,
    )  # fmt: skip


def _cases(workload: Workload, devices: Sequence[Device], request: Asked) -> dict[Device, Case | str]:
    """The prediction for each device, or the reason for none."""
    table = predict_many([workload], devices, region=request.region, **request.options)
    answers = (read_row(row) for row in table.to_dict("records"))
    return {
        device: row if isinstance(row, str) else Case.of_row(device, row)
        for device, row in zip(devices, answers, strict=True)
    }


def _answered(answer: Case | str) -> Case:
    if isinstance(answer, str):
        raise ForerunError(answer)
    return answer


def _rank(candidate: JobRow, by_verdict: bool, by_goal_alone: bool = False) -> tuple[Any, ...]:
    """Sort key: what fits within the limits first, then measured generations; then the cheapest or, where the limits
    set the amount, the largest amount."""
    usd = candidate.cost_usd.value if candidate.cost_usd else float("inf")
    fails = candidate.verdict == DOES_NOT
    verdict = (candidate.verdict or MEETS).place if by_verdict and not by_goal_alone else fails
    return (
        (True, None, False).index(candidate.fits),
        verdict,
        not (candidate.generation_measured or by_goal_alone),
        usd if by_verdict else -candidate.count,
        usd,
        candidate.hours.value,
    )


def _held_back(first: JobRow, alone: JobRow, job: Job) -> Iterator[str]:
    """A note where a device of an unmeasured generation would come first by the goal alone."""
    if alone.generation_measured or alone.device == first.device:
        return
    if job.epochs or job.steps:
        numbers = [refusals.estimate("cost_usd", r.cost_usd) if r.cost_usd else "unknown" for r in (alone, first)]
        goal = "cost"
    else:
        numbers, goal = [f"{r.count:,}" for r in (alone, first)], job.unit
    if numbers[0] != numbers[1]:
        yield held_back(alone.device, first.device, goal, *numbers)


def _too_large(rows: Sequence[JobRow], devices: Sequence[Device], workload: Workload, request: Asked) -> ForerunError:
    device = max(devices, key=lambda d: d.usable_mb or 0.0)
    largest_row = next(r for r in rows if r.device == device.id)
    largest = predict_workload(workload, device, measured=False, **request.options)
    return refusals.too_large(
        largest_row, largest.model, device, largest.fit.largest_batch if largest.fit else None, of_all=True
    )


def _evaluated(workload: Workload) -> Workload:
    """The same batch without gradients."""
    return dataclasses.replace(workload, mode="inference", optimizer=None)


def _notes(
    job: Job, chosen: JobRow | None, price: Instance | None, devices: int, dataset: DataSet | None
) -> Iterator[str]:
    """What is assumed and what is not included."""
    if dataset is not None:
        yield f"{dataset.name}: {dataset.training:,} samples for training ({dataset.source}, {dataset.date})"
    rate = job.loading_samples_per_s
    if rate is not None:
        yield f"data loading: no more than {pretty(rate)} samples/s, as given"
    elif chosen is not None:
        yield f"data loading is assumed to keep up: {pretty(chosen.samples_per_s.value)} samples/s (--loading-rate)"
    else:
        yield "data loading is assumed to keep up with every device (--loading-rate)"
    if job.evaluation_samples:
        when = "once, at the end" if job.unit == "steps" else "after every epoch"
        yield f"evaluation: {job.evaluation_samples:,} samples, {when}"
    untested = "" if job.evaluation_samples else "evaluation (--eval-size), "
    yield f"not included: {untested}start-up, checkpoints, interruptions"
    if devices > 1:
        yield (
            f"{devices} devices of one machine, each with its own batch; the all-reduce of gradients is computed "
            "from the interconnect by a law fitted to published measurements (docs/PARALLEL.md)"
        )
    if price is not None and price.device_count < devices:
        yield f"the price is that of {price.id}, which has {price.device_count}: a machine of {devices} may cost more"
    if price is not None and price.device_count > devices:
        instance_text = f"{price.device_count} of the device and costs {price.usd_per_hour:.2f} USD/h as a whole"
        yield f"the price is a share: {price.id} has {instance_text}"
