"""`forerun.budget("timm")`: the most accurate published models whose latency, or whose training, is within a limit."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forerun._util.readable import pretty
from forerun._util.rendered import Rendered
from forerun.advice import cost as cost_advice
from forerun.advice.data_parallel import gradient_mb
from forerun.advice.verdict import DOES_NOT, MEETS, PROBABLY, Verdict, verdict, worst
from forerun.api.predict import predict_many
from forerun.api.questions import workload_from
from forerun.api.tables import TableRow, read_row
from forerun.decisions.budget.datasets import load_dataset
from forerun.decisions.budget.job_budget import Asked
from forerun.decisions.budget.jobs import Case, Job, row
from forerun.decisions.budget.published_accuracy import Published, published
from forerun.decisions.budget.refusals import amount, estimate, not_known, refuse_unused
from forerun.device import Device
from forerun.errors import ArgumentError, ForerunError
from forerun.prediction import Estimate
from forerun.workload import Workload

#: The number of models within the limit, or probably within it, that ends the search.
ENOUGH, ENOUGH_PROBABLY = 5, 10
#: A model is skipped when a rough estimate is this many times over the limit.
ROUGHLY_OVER = 1.5
#: Device-bound predictions needed before rough estimates are used.
FEW = 3
#: The least ratio of the arithmetic of a training step to that of a call.
TRAINING_WORK = 2.5
TRAINING_BATCH = 32
_WHY = (
    "too large by the device's peaks alone", "too slow by a rough estimate", "that could not be predicted",
    "less accurate and not tried",
)  # fmt: skip


@dataclass(frozen=True)
class ModelRow:
    """A published model on the device: its accuracy, what it takes, and whether that is within the limits."""

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
class ModelChoice(Rendered):
    """Published models within the limits, most accurate first, and what was not tried."""

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


def choose_model(
    collection: str, devices: Sequence[Device], job: Job, request: Asked, *, max_latency_ms: float | None,
    batch: int | None, gpus: int, most: int, progress: Callable[[int, int], None] | None, settings: dict[str, Any],
) -> ModelChoice:  # fmt: skip
    """Models from the most accurate downward, until enough of them are within the limits or `most` were tried."""
    if len(devices) != 1:
        raise ArgumentError("name one device to choose a model for ({})", "device")
    if (max_latency_ms is None) == (not job.limits.given()):
        raise ForerunError("limit the latency of a call, or a training job (hours, US dollars, ...): one of the two")
    if max_latency_ms is None:
        if job.epochs is None and job.steps is None:
            raise ArgumentError("say how long each model is trained: {}, or {}", "epochs", "steps")
        if job.samples is None and job.steps is None:
            job = dataclasses.replace(job, samples=load_dataset("imagenet").training)
    shape = {"input_shape": settings.get("input_shape")}
    refuse_unused("published accuracies are for fixed image sizes", shape)
    mode = "inference" if max_latency_ms is not None else "training"
    size = batch or (1 if mode == "inference" else TRAINING_BATCH)
    search = _Search(devices[0], job, request, max_latency_ms, mode, size, gpus, settings)
    models, sources = published(collection)
    search.run(models, most, progress)
    keeping = [r for r in search.rows if r.verdict != DOES_NOT]
    if not keeping:
        raise search.refusal(models)
    limits = {"latency_ms": max_latency_ms} if max_latency_ms is not None else job.limits.given()
    return ModelChoice(
        collection, devices[0].id, search.about, limits, search.words(), request.options["confidence"], tuple(keeping),
        len(search.rows), {why: n for why, n in search.untried.items() if n}, tuple(search.notes(sources)),
    )  # fmt: skip


class _Search:
    """One search: predictions of models in turn, and which of them can be skipped."""

    def __init__(
        self, device: Device, job: Job, request: Asked, max_latency_ms: float | None, mode: str, batch: int, gpus: int,
        settings: dict[str, Any],
    ) -> None:  # fmt: skip
        self.device, self.job, self.asked, self.max_latency_ms, self.gpus = device, job, request, max_latency_ms, gpus
        self.given = {"mode": mode, "batch": batch, **settings}
        self.about = workload_from({"model": "", **self.given}).to_dict()
        price = cost_advice.choose_instance(device, request.instance)
        if job.limits.cost_usd is not None and price is None:
            raise not_known("cost_usd", device.id)
        self.place = request.place(device, price)
        self.rows: list[ModelRow] = []
        self.over: list[float] = []  # ratios of predicted to least time, of device-bound models
        self.untried = dict.fromkeys(_WHY, 0)

    def run(self, models: Sequence[Published], most: int, progress: Callable[[int, int], None] | None) -> None:
        large, rough, failed, rest = _WHY
        for number, candidate in enumerate(models):
            if len(self.rows) >= most or self._enough():
                self.untried[rest] = len(models) - number
                break
            least = self.least_ms(candidate)
            typical = statistics.median(self.over) if len(self.over) >= FEW else 1.0
            if self._verdict_of_least(least) == DOES_NOT:
                self.untried[large] += 1
            elif self._verdict_of_least(least * typical / ROUGHLY_OVER) == DOES_NOT:
                self.untried[rough] += 1
            elif not self._try(candidate, least):
                self.untried[failed] += 1
            elif progress:
                progress(len(self.rows), most)

    def _enough(self) -> bool:
        sure, probably = (sum(r.verdict in verdicts for r in self.rows) for verdicts in ((MEETS,), (MEETS, PROBABLY)))
        return sure >= ENOUGH or probably >= ENOUGH_PROBABLY

    def workload(self, candidate: Published) -> Workload:
        side = candidate.image_size
        return workload_from({**self.given, "model": candidate.model, "input_shape": (3, side, side)})

    def least_ms(self, candidate: Published) -> float:
        """The least time of a call by the device's peaks: all weights are read once, all arithmetic is done."""
        w = self.about
        half = w["dtype"] not in ("fp32", "tf32", "fp32-ieee", "fp64") or w["amp"]
        units = ("fp32", "tf32", "fp16", "bf16", "fp8") if half else ("fp32", "tf32")
        peak = max((self.device.peak_tflops.get(unit, 0.0) for unit in units), default=0.0)
        bits = {"fp64": 64, "int8": 8, "fp8": 8, "int4": 4}.get(w["dtype"], 16 if half else 32)
        read_ms = candidate.parameters * bits / 8 / (self.device.bandwidth_gbs or float("inf")) / 1e6
        work = (candidate.flops or 0.0) * w["batch"] * (TRAINING_WORK if w["mode"] == "training" else 1.0)
        return max(read_ms, work / (peak * 1e9) if peak else 0.0)

    def _verdict_of_least(self, ms: float) -> Verdict:
        least = Case(self.device, self.about["batch"], Estimate(ms, ms, ms, "ms"), None, None, None, None, "learned")
        if self.max_latency_ms is not None:
            return verdict(least.latency_ms, self.max_latency_ms)
        limits = dataclasses.replace(self.job.limits, energy_kwh=None, carbon_kg=None)  # peaks give no bound on these
        return worst(
            row(dataclasses.replace(self.job, limits=limits), least, None, self.place, self.gpus, 0.0).verdicts.values()
        )

    def _try(self, candidate: Published, least: float) -> bool:
        work = self.workload(candidate)
        prediction = self._row(work)
        if isinstance(prediction, str):
            return False
        if prediction.bound == "device" and least > 0:
            self.over.append(prediction.latency_ms.value / least)
        case = Case.of_row(self.device, prediction)
        hours = cost = None
        if self.max_latency_ms is not None:
            verdicts = [verdict(case.latency_ms, self.max_latency_ms, learned=self.place.learned)]
        else:
            try:
                evaluation = self._evaluation(work)
            except ForerunError:  # training works, inference does not
                return False
            gradients = gradient_mb(int(candidate.parameters), work.weight_dtype)
            job_row = row(self.job, case, evaluation, self.place, self.gpus, gradients)
            verdicts, hours, cost = [job_row.verdict or MEETS], job_row.hours, job_row.cost_usd
        verdicts += [DOES_NOT] if case.fits is False else []
        self.rows.append(
            ModelRow(candidate.model, candidate.weights, candidate.image_size, candidate.top1, candidate.parameters,
                     case.latency_ms, hours, cost, case.memory_mb, worst(verdicts), case.basis)
        )  # fmt: skip
        return True

    def _evaluation(self, work: Workload) -> Case | None:
        if not self.job.evaluation_samples:
            return None
        prediction = self._row(dataclasses.replace(work, mode="inference", optimizer=None))
        if isinstance(prediction, str):
            raise ForerunError(prediction)
        return Case.of_row(self.device, prediction)

    def _row(self, work: Workload) -> TableRow | str:
        table = predict_many([work], [self.device], region=self.asked.region, **self.asked.options)
        return read_row(table.to_dict("records")[0])

    def words(self) -> str | None:
        """The training job in words."""
        if self.max_latency_ms is not None:
            return None
        job = self.job
        return f"{job.steps:,} steps" if job.steps else f"{job.samples:,} samples x {job.epochs} epochs"

    def refusal(self, models: Sequence[Published]) -> ForerunError:
        """The error where no model is within the limits; where none was worth trying, the smallest are tried now, so
        that the nearest value can be named."""
        if not self.rows:
            for model in sorted(models, key=self.least_ms):
                if self._try(model, self.least_ms(model)) and len(self.rows) == FEW:
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
            f"none of the {len(self.rows)} models that were tried meets {limit} on {self.device.id}: the nearest is "
            f"{nearest.model} at {nearest.image_size} pixels with {needs}; --most tries more"
        )

    def notes(self, sources: Sequence[str]) -> list[str]:
        """Where the accuracies come from, and what they are not."""
        out = [f"accuracies are top-1 on ImageNet-1k of published weights: {sources[0]}", *sources[1:]]
        if self.max_latency_ms is None:
            out.append("they are of the weights' own recipes, often longer and on more data than this job")
        return out
