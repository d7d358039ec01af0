"""`forerun.budget` of one model: what a job takes on a device, or on every device with a price, and what fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.advice import carbon as carbon_advice
from forerun.advice import cost as cost_advice
from forerun.advice.data_parallel import gradient_mb
from forerun.advice.verdict import DOES_NOT, MEETS, VERDICTS
from forerun.api import predict_many, predict_workload
from forerun.blocks import Block
from forerun.decisions.budget import refusals
from forerun.decisions.budget.datasets import DataSet
from forerun.decisions.budget.jobs import Case, Job, JobRow, Place, row
from forerun.device import Device, all_devices
from forerun.device.cloud import Instance, instances_for
from forerun.errors import ForerunError
from forerun.prediction import Prediction
from forerun.predictors.registry import load_predictor
from forerun.questions import profiled
from forerun.readable import pretty
from forerun.workload import Workload

#: Batch sizes that are tried beside the one asked for, as far as they fit.
BATCHES = tuple(2**n for n in range(2, 11))
#: The best batch is the smallest that is at most this much slower per sample than the fastest.
CLOSE = 0.05
#: Data parallelism within one machine.
MOST_DEVICES = 8


@dataclass(frozen=True)
class JobBudget:
    """A job under limits: one row a device, cheapest first; on a single device also other batches and more devices."""

    model: str
    workload: dict[str, Any]
    samples: int | None
    dataset: str | None  # its name, where it is known by one
    unit: str  # epochs | steps
    asked: int | None  # epochs or steps asked for; None: as many as fit
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
        """The cheapest row that keeps all limits, by the best verdict that any row has."""
        return self._first(lambda r: r.each.cost_usd.value if r.each.cost_usd else float("inf"))

    @property
    def fastest(self) -> JobRow | None:
        """The fastest row that keeps all limits, by the best verdict that any row has."""
        return self._first(lambda r: r.each.hours.value)

    def _first(self, key: Any) -> JobRow | None:
        able = [r for r in self.rows if r.fits is not False and r.verdict != DOES_NOT]
        ranked = sorted(able, key=lambda r: (VERDICTS.index(r.verdict or MEETS), r.fits is None, key(r)))
        return ranked[0] if ranked else None

    @property
    def fewest_devices(self) -> JobRow | None:
        """The fewest devices that keep all limits: with confidence or, where none does, by the estimate."""
        ranked = sorted(self.counts, key=lambda r: (VERDICTS.index(r.verdict or MEETS), r.devices))
        return ranked[0] if ranked and ranked[0].verdict != DOES_NOT else None

    def to_dict(self) -> dict[str, Any]:
        picked = {name: getattr(self, name) for name in ("cheapest", "fastest", "fewest_devices")}
        return dataclasses.asdict(self) | {name: r and r.to_dict() for name, r in picked.items()}

    def blocks(self, width: int | None = None) -> Iterator[Block]:
        """What is shown of it, in a terminal of some width or on a page."""
        from forerun.views.budget import job_view

        yield from job_view(self, width)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield from self.blocks(options.max_width)

    def _repr_html_(self) -> str:
        from forerun.pages import budget_html, notebook

        return notebook(budget_html(self))


@dataclass(frozen=True)
class Asked:
    """How predictions are asked for: settings that all of a budget's predictions share."""

    region: str | None
    instance: str | None
    options: dict[str, Any]  # predictor, confidence, host

    def place(self, device: Device, price: Instance | None) -> Place:
        named = price if self.instance is not None and price is not None else None
        learned = load_predictor(self.options["predictor"]).generation_measured(device)
        return Place(price, carbon_advice.choose_grid(self.region, named), learned)


def on_one_device(
    workload: Workload, device: Device, job: Job, asked: Asked, devices: int, dataset: DataSet | None
) -> JobBudget:
    """The job on a device: totals, what fits, the best batch, and what more devices would do."""
    price = cost_advice.choose_instance(device, asked.instance)
    place = asked.place(device, price)
    if job.limits.cost_usd is not None and price is None:
        raise ForerunError(f"no cloud price is known for {device.id}, so money cannot be limited: name an instance")

    def predicted(batch: int, mode: str | None = None) -> Prediction:
        work = dataclasses.replace(workload, batch=batch)
        work = _evaluated(work) if mode == "inference" else work
        return predict_workload(
            work, device, measured=False, region=asked.region, instance=asked.instance, **asked.options
        )

    def made(batch: int, count: int, job: Job = job) -> JobRow:
        tested = Case.of_prediction(device, predicted(batch, "inference")) if job.evaluation_samples else None
        step = Case.of_prediction(device, predicted(batch))
        return row(job, step, tested, place, count, gradients)

    first = predicted(workload.batch)
    gradients = gradient_mb(first.parameters, workload.weight_dtype) if workload.mode == "training" else 0.0
    found = made(workload.batch, devices)
    if first.fit is not None and not first.fit.fits:
        raise refusals.too_large(found, first.model, device, first.fit.largest_batch)
    if found.largest == 0:
        enough = next((r.devices for r in _counts(made, workload.batch, job)[0] if r.largest), None)
        raise refusals.not_one_fits(found, first.model, job, enough)
    largest = (first.fit.largest_batch if first.fit else None) or workload.batch
    sizes = sorted({workload.batch, *(b for b in BATCHES if b <= min(largest, job.samples or largest))})
    same = dataclasses.replace(job, epochs=found.count) if job.unit == "epochs" else job  # the same work for all
    batches = tuple(made(batch, devices, same) for batch in sizes)
    counts, reason = _counts(made, workload.batch, same)
    notes = [*_notes(job, found, price, devices, dataset), *([reason] if reason else []), *first.notes]
    called = dataset.name if dataset else None
    return JobBudget(
        first.model, first.workload, job.samples, called, job.unit, job.steps or job.epochs, job.limits.given(),
        first.confidence, (found,), batches, best_batch(batches), counts, {}, tuple(notes),
    )  # fmt: skip


def _counts(made: Any, batch: int, job: Job) -> tuple[tuple[JobRow, ...], str | None]:
    """The job on 1 to 8 devices, or why only one can be answered."""
    try:
        return tuple(made(batch, count, job) for count in range(1, MOST_DEVICES + 1)), None
    except ForerunError as error:  # how the devices are connected is not known
        return (), str(error)


def best_batch(rows: Sequence[JobRow]) -> int | None:
    """The smallest batch that is about as fast per sample as the fastest one that fits."""
    able = [r for r in rows if r.fits is not False]
    pace = max((r.samples_per_s.value for r in able), default=0.0)
    return min((r.batch for r in able if r.samples_per_s.value >= (1 - CLOSE) * pace), default=None)


def on_many_devices(
    workload: Workload, chosen: Sequence[Device], job: Job, asked: Asked, devices: int, dataset: DataSet | None
) -> JobBudget:
    """The job on every device given, or on every one with a price: cheapest first, those that keep the limits first."""
    question = profiled(workload)  # a model that cannot be read is the user's to put right
    candidates = list(chosen) or [d for d in all_devices() if instances_for(d)]
    prices = dict(zip(candidates, cost_advice.choose_instances(candidates, asked.instance), strict=True))
    steps = _cases(workload, candidates, asked)
    tested = _cases(_evaluated(workload), candidates, asked) if job.evaluation_samples else {}
    gradients = gradient_mb(question.graph.parameters, workload.weight_dtype) if workload.mode == "training" else 0.0
    rows, left_out = [], {}
    for device in candidates:
        try:
            step = _answered(steps[device])
            evaluation = _answered(tested[device]) if tested else None
            place = asked.place(device, prices[device])
            rows.append(row(job, step, evaluation, place, devices, gradients))
        except ForerunError as reason:
            left_out[device.id] = str(reason)
    if not rows:
        raise ForerunError(f"no device can run this: {next(iter(left_out.values()))}")
    able = [r for r in rows if r.fits is not False]
    if not any(r.fits for r in rows) and len(able) < len(rows):  # what fits nowhere where memory is known fits nowhere
        raise _too_large(rows, candidates, workload, asked)
    asked_for = bool(job.epochs or job.steps)
    if job.limits.given() and not any(r.verdict != DOES_NOT if asked_for else r.largest for r in able):
        raise refusals.no_device_meets(able, question.graph.name, job)
    ranked = sorted(rows, key=lambda r: _rank(r, asked_for))
    confidence = asked.options.get("confidence", 0.9)
    notes = tuple(_notes(job, None, None, devices, dataset))
    called = dataset.name if dataset else None
    return JobBudget(
        question.graph.name, workload.to_dict() | {"region": asked.region, "instance": asked.instance}, job.samples,
        called, job.unit, job.steps or job.epochs, job.limits.given(), confidence, tuple(ranked), left_out=left_out,
        notes=notes,
    )  # fmt: skip


def _cases(workload: Workload, devices: Sequence[Device], asked: Asked) -> dict[Device, Case | str]:
    """What is predicted of each device, or why nothing is."""
    table = predict_many([workload], devices, region=asked.region, **asked.options)
    return {
        device: found.error if isinstance(found.error, str) else Case.of_row(device, found)
        for device, found in zip(devices, table.itertuples(), strict=True)
    }


def _answered(found: Case | str) -> Case:
    if isinstance(found, str):
        raise ForerunError(found)
    return found


def _rank(found: JobRow, asked: bool) -> tuple[Any, ...]:
    """What fits and keeps the limits first; then the cheapest or, where the limits decide how much, the most."""
    usd = found.cost_usd.value if found.cost_usd else float("inf")
    verdict = VERDICTS.index(found.verdict) if found.verdict else 0
    return (
        (True, None, False).index(found.fits),
        verdict if asked else 0,
        usd if asked else -(found.count),
        usd,
        found.hours.value,
    )


def _too_large(rows: Sequence[JobRow], devices: Sequence[Device], workload: Workload, asked: Asked) -> ForerunError:
    device = max(devices, key=lambda d: d.memory_gb or 0.0)
    found = next(r for r in rows if r.device == device.id)
    largest = predict_workload(workload, device, measured=False, **asked.options)
    return refusals.too_large(
        found, largest.model, device, largest.fit.largest_batch if largest.fit else None, of_all=True
    )


def _evaluated(workload: Workload) -> Workload:
    """The same batch without gradients."""
    return dataclasses.replace(workload, mode="inference", optimizer=None)


def _notes(
    job: Job, found: JobRow | None, price: Instance | None, devices: int, dataset: DataSet | None
) -> Iterator[str]:
    """What is assumed and what is not counted."""
    if dataset is not None:
        yield f"{dataset.name}: {dataset.training:,} samples for training ({dataset.source}, {dataset.date})"
    rate = job.loading_samples_per_s
    if rate is not None:
        yield f"data loading: no more than {pretty(rate)} samples/s, as given"
    elif found is not None:
        yield f"data loading is assumed to keep up: {pretty(found.samples_per_s.value)} samples/s (--loading-rate)"
    else:
        yield "data loading is assumed to keep up with every device (--loading-rate)"
    if job.evaluation_samples:
        when = "once, at the end" if job.unit == "steps" else "after every epoch"
        yield f"evaluation: {job.evaluation_samples:,} samples, {when}"
    untested = "" if job.evaluation_samples else "evaluation (--eval-size), "
    yield f"not counted: {untested}start-up, checkpoints, interruptions"
    if devices > 1:
        yield (
            f"{devices} devices of one machine, each with a batch of its own; how fast they sum gradients is computed "
            "from their links, not measured"
        )
    if price is not None and price.device_count < devices:
        yield f"the price is of {price.id}, which carries {price.device_count}: a machine of {devices} may cost more"
    if price is not None and price.device_count > devices:
        whole = f"{price.device_count} of the device and costs {price.usd_per_hour:.2f} USD/h as a whole"
        yield f"the price is a share: {price.id} carries {whole}"
