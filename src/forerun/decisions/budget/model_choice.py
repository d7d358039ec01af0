"""`forerun.budget("timm")`: the most accurate published models whose latency, or whose training, keeps a limit."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.advice import cost as cost_advice
from forerun.advice.data_parallel import gradient_mb
from forerun.advice.verdict import DOES_NOT, MEETS, PROBABLY, Verdict, verdict, worst
from forerun.api import predict_many
from forerun.blocks import Block
from forerun.decisions.budget.datasets import load_dataset
from forerun.decisions.budget.job_budget import Asked
from forerun.decisions.budget.jobs import Case, Job, row
from forerun.decisions.budget.published_accuracy import Published, published
from forerun.decisions.budget.refusals import amount, estimate, not_known, refuse_unused
from forerun.device import Device
from forerun.errors import ArgumentError, ForerunError
from forerun.prediction import Estimate
from forerun.questions import workload_from
from forerun.readable import pretty
from forerun.tables import TableRow, read_row
from forerun.workload import Workload

#: So many models that keep the limit, or probably keep it, end the search.
ENOUGH, ENOUGH_PROBABLY = 5, 10
#: A model is left untried when a rough estimate is this many times over the limit.
ROUGHLY_OVER = 1.5
#: Device-bound models that must have been predicted before rough estimates are made.
FEW = 3
#: Arithmetic of a training step over that of a call, at the least.
TRAINING_WORK = 2.5
TRAINING_BATCH = 32
_WHY = (
    "too large by the device's peaks alone", "too slow by a rough estimate", "that could not be predicted",
    "less accurate and not tried",
)  # fmt: skip


@dataclass(frozen=True)
class ModelRow:
    """A published model on the device: its accuracy, what it takes, and whether that keeps the limits."""

    model: str
    weights: str
    image_size: int
    top1: float
    parameters: float
    latency_ms: Estimate  # of a call, or of a training step
    hours: Estimate | None  # of the training job
    cost_usd: Estimate | None
    memory_mb: Estimate | None
    verdict: Verdict
    basis: str


@dataclass(frozen=True)
class ModelChoice:
    """Published models that keep the limits, most accurate first, and what was not looked at."""

    collection: str
    device: str
    workload: dict[str, Any]
    limits: dict[str, float]  # latency_ms, or those of a job
    job: str | None  # in words
    confidence: float
    rows: tuple[ModelRow, ...]
    tried: int
    untried: dict[str, int]  # why -> how many
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def blocks(self, width: int | None = None) -> Iterator[Block]:
        """What is shown of it, in a terminal of some width or on a page."""
        from forerun.views.choices import model_view

        yield from model_view(self, width)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield from self.blocks(options.max_width)

    def _repr_html_(self) -> str:
        from forerun.pages import budget_html, notebook

        return notebook(budget_html(self))


def choose_model(
    collection: str, devices: Sequence[Device], job: Job, asked: Asked, *, max_latency_ms: float | None,
    batch: int | None, gpus: int, most: int, progress: Callable[[int, int], None] | None, settings: dict[str, Any],
) -> ModelChoice:  # fmt: skip
    """Models from the most accurate downward, until enough of them keep the limits or `most` were tried."""
    if len(devices) != 1:
        raise ArgumentError("name one device to choose a model for it ({})", "device")
    if (max_latency_ms is None) == (not job.limits.given()):
        raise ForerunError("limit the latency of a call, or a training job (hours, US dollars, ...): one of the two")
    if max_latency_ms is None:
        if job.epochs is None and job.steps is None:
            raise ArgumentError("say how long each model is trained: {}, or {}", "epochs", "steps")
        if job.samples is None and job.steps is None:
            job = dataclasses.replace(job, samples=load_dataset("imagenet").training)
    shape = {"input_shape": settings.get("input_shape")}
    refuse_unused("published accuracies are of their own image sizes", shape)
    mode = "inference" if max_latency_ms is not None else "training"
    size = batch or (1 if mode == "inference" else TRAINING_BATCH)
    search = _Search(devices[0], job, asked, max_latency_ms, mode, size, gpus, settings)
    models, sources = published(collection)
    search.run(models, most, progress)
    kept = [r for r in search.rows if r.verdict != DOES_NOT]
    if not kept:
        raise search.refusal(models)
    limits = {"latency_ms": max_latency_ms} if max_latency_ms is not None else job.limits.given()
    return ModelChoice(
        collection, devices[0].id, search.about, limits, search.words(), asked.options["confidence"], tuple(kept),
        len(search.rows), {why: n for why, n in search.untried.items() if n}, tuple(search.notes(sources)),
    )  # fmt: skip


class _Search:
    """One search: predictions of models in turn, and which of them need not be made."""

    def __init__(
        self, device: Device, job: Job, asked: Asked, max_latency_ms: float | None, mode: str, batch: int, gpus: int,
        settings: dict[str, Any],
    ) -> None:  # fmt: skip
        self.device, self.job, self.asked, self.max_latency_ms, self.gpus = device, job, asked, max_latency_ms, gpus
        self.given = {"mode": mode, "batch": batch, **settings}
        self.about = workload_from({"model": "", **self.given}).to_dict()
        price = cost_advice.choose_instance(device, asked.instance)
        if job.limits.cost_usd is not None and price is None:
            raise not_known("cost_usd", device.id)
        self.place = asked.place(device, price)
        self.rows: list[ModelRow] = []
        self.over: list[float] = []  # predicted over the least time, of device-bound models
        self.untried = dict.fromkeys(_WHY, 0)

    def run(self, models: Sequence[Published], most: int, progress: Callable[[int, int], None] | None) -> None:
        large, rough, failed, rest = _WHY
        for number, one in enumerate(models):
            if len(self.rows) >= most or self._enough():
                self.untried[rest] = len(models) - number
                break
            least = self.least_ms(one)
            typical = statistics.median(self.over) if len(self.over) >= FEW else 1.0
            if self._verdict_of_least(least) == DOES_NOT:
                self.untried[large] += 1
            elif self._verdict_of_least(least * typical / ROUGHLY_OVER) == DOES_NOT:
                self.untried[rough] += 1
            elif not self._try(one, least):
                self.untried[failed] += 1
            elif progress:
                progress(len(self.rows), most)

    def _enough(self) -> bool:
        sure, kept = (sum(r.verdict in some for r in self.rows) for some in ((MEETS,), (MEETS, PROBABLY)))
        return sure >= ENOUGH or kept >= ENOUGH_PROBABLY

    def workload(self, one: Published) -> Workload:
        side = one.image_size
        return workload_from({**self.given, "model": one.model, "input_shape": (3, side, side)})

    def least_ms(self, one: Published) -> float:
        """The least time of a call by the device's peaks: all weights are read once, all arithmetic is done."""
        w = self.about
        half = w["dtype"] not in ("fp32", "tf32", "fp32-ieee", "fp64") or w["amp"]
        units = ("fp32", "tf32", "fp16", "bf16", "fp8") if half else ("fp32", "tf32")
        peak = max((self.device.peak_tflops.get(unit, 0.0) for unit in units), default=0.0)
        bits = {"fp64": 64, "int8": 8, "fp8": 8, "int4": 4}.get(w["dtype"], 16 if half else 32)
        read_ms = one.parameters * bits / 8 / (self.device.bandwidth_gbs or float("inf")) / 1e6
        work = (one.flops or 0.0) * w["batch"] * (TRAINING_WORK if w["mode"] == "training" else 1.0)
        return max(read_ms, work / (peak * 1e9) if peak else 0.0)

    def _verdict_of_least(self, ms: float) -> Verdict:
        least = Case(self.device, self.about["batch"], Estimate(ms, ms, ms, "ms"), None, None, None, None, "learned")
        if self.max_latency_ms is not None:
            return verdict(least.latency_ms, self.max_latency_ms)
        limits = dataclasses.replace(self.job.limits, energy_kwh=None, carbon_kg=None)  # of which peaks say nothing
        return worst(
            row(dataclasses.replace(self.job, limits=limits), least, None, self.place, self.gpus, 0.0).verdicts.values()
        )

    def _try(self, one: Published, least: float) -> bool:
        work = self.workload(one)
        found = self._row(work)
        if isinstance(found, str):
            return False
        if found.bound == "device" and least > 0:
            self.over.append(found.latency_ms.value / least)
        case = Case.of_row(self.device, found)
        hours = cost = None
        if self.max_latency_ms is not None:
            kept = [verdict(case.latency_ms, self.max_latency_ms, learned=self.place.learned)]
        else:
            try:
                evaluation = self._evaluation(work)
            except ForerunError:  # it can be trained and not called
                return False
            gradients = gradient_mb(int(one.parameters), work.weight_dtype)
            made = row(self.job, case, evaluation, self.place, self.gpus, gradients)
            kept, hours, cost = [made.verdict or MEETS], made.hours, made.cost_usd
        kept += [DOES_NOT] if case.fits is False else []
        self.rows.append(
            ModelRow(one.model, one.weights, one.image_size, one.top1, one.parameters, case.latency_ms, hours, cost,
                     case.memory_mb, worst(kept), case.basis)
        )  # fmt: skip
        return True

    def _evaluation(self, work: Workload) -> Case | None:
        if not self.job.evaluation_samples:
            return None
        found = self._row(dataclasses.replace(work, mode="inference", optimizer=None))
        if isinstance(found, str):
            raise ForerunError(found)
        return Case.of_row(self.device, found)

    def _row(self, work: Workload) -> TableRow | str:
        table = predict_many([work], [self.device], region=self.asked.region, **self.asked.options)
        return read_row(table.to_dict("records")[0])

    def words(self) -> str | None:
        """The training job, as people say it."""
        if self.max_latency_ms is not None:
            return None
        job = self.job
        return f"{job.steps:,} steps" if job.steps else f"{job.samples:,} samples x {job.epochs} epochs"

    def refusal(self, models: Sequence[Published]) -> ForerunError:
        """The error of limits that no model keeps; where none was worth trying, the smallest are tried now, so that
        the nearest value can be named."""
        if not self.rows:
            for one in sorted(models, key=self.least_ms):
                if self._try(one, self.least_ms(one)) and len(self.rows) == FEW:
                    break
        if not self.rows:
            return ForerunError(f"none of the published models could be predicted on {self.device.id}")
        if self.max_latency_ms is not None:
            nearest = min(self.rows, key=lambda r: r.latency_ms.value)
            limit = f"{pretty(self.max_latency_ms)} ms"
            needs = str(nearest.latency_ms)
        else:
            nearest = min(self.rows, key=lambda r: r.hours.value if r.hours else float("inf"))
            limit = " and ".join(amount(name, value) for name, value in self.job.limits.given().items())
            parts = {"hours": nearest.hours, "cost_usd": nearest.cost_usd}
            needs = " and ".join(estimate(name, e) for name, e in parts.items() if e is not None)
        return ForerunError(
            f"none of the {len(self.rows)} models that were tried keeps {limit} on {self.device.id}: the nearest is "
            f"{nearest.model} at {nearest.image_size} pixels with {needs}; --most tries more"
        )

    def notes(self, sources: Sequence[str]) -> list[str]:
        """Where the accuracies come from, and what they are not."""
        out = [f"accuracies are top-1 on ImageNet-1k of published weights: {sources[0]}", *sources[1:]]
        if self.max_latency_ms is None:
            out.append("they are of the weights' own recipes, often longer and on more data than this job")
        return out
