"""Plans of pre-training: the layouts of a language model on up to N devices that fit, the best by a goal, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from forerun._util.rendered import Rendered
from forerun.advice.cost import choose_instance, price_line
from forerun.advice.verdict import DOES_NOT, Verdict, verdict, worst
from forerun.api.arguments import number, whole_number
from forerun.decisions.plans.launch import data_parallel_alone, launch_line
from forerun.device import Device, load_device
from forerun.device.cloud import Instance
from forerun.device.links import in_machine, link
from forerun.errors import ForerunError, did_you_mean
from forerun.frontends import load_graph
from forerun.graph.language_model import LanguageModel, describe
from forerun.graph.layout import Layout
from forerun.prediction import Estimate
from forerun.predictors.laws import pretraining as law
from forerun.predictors.laws.energy import waiting_w
from forerun.workload import Workload

GOALS = {"time": "hours", "cost": "usd", "energy": "kwh"}
#: Tokens of a step where no batch is given: what models of this size are trained with.
STEP_TOKENS = 4 * 2**20
#: What is tried: sequences of a microbatch, stages of ZeRO, devices that share a sequence where it is long.
_MICRO_BATCHES, _ZERO, _LONG = (1, 2, 4, 8), (0, 1, 3), 16_384
_CONTEXT = (1, 2, 4, 8)
#: The most devices that divide a layer: a machine's, since it exchanges all the time.
_TENSOR = (1, 2, 4, 8)


@dataclass(frozen=True)
class Candidate:
    """One way to train: its layout, what it takes, and what a device holds."""

    layout: Layout
    micro_batch: int
    micro_batches: int
    recomputed: bool
    framework: str
    step_s: Estimate
    tokens_per_s_per_device: float
    utilisation: float  # FLOPs of the model, nothing twice, over the devices' peak
    hours: Estimate
    usd: Estimate | None
    kwh: Estimate | None
    parts: dict[str, float]  # shares of a step
    memory_mb: dict[str, float]  # of one device, by what it is for
    launch: str
    verdict: Verdict = Verdict.MEETS

    @property
    def devices(self) -> int:
        return self.layout.devices

    @property
    def needed_mb(self) -> float:
        return sum(self.memory_mb.values())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"devices": self.devices, "needed_mb": self.needed_mb, "verdict": self.verdict.value}


@dataclass(frozen=True)
class TrainingPlan(Rendered):
    """The answer of a search: the best by the goal, the Pareto front, and why the others lost."""

    model: str
    device: str
    tokens: float
    seq_len: int
    batch: int  # sequences of a step
    precision: str
    goal: str
    best: Candidate
    front: tuple[Candidate, ...]
    reasons: tuple[str, ...]  # why the others lost, a sentence for each kind
    considered: int
    notes: tuple[str, ...]
    limits: dict[str, float]  # hours, usd, kwh
    confidence: float = 0.9  # of the intervals, as the law of a step was fitted
    basis: str = "learned"

    def to_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("best", "front")}
        return own | {"best": self.best.to_dict(), "front": [one.to_dict() for one in self.front]}


@dataclass(frozen=True)
class _Job:
    """What is planned."""

    model: LanguageModel
    device: Device
    tokens: float
    seq_len: int
    batch: int
    precision: str
    instance: Instance | None
    limits: dict[str, float | None]


def plan_training(
    model: str, device: str | Device, *, count: int, tokens: float, seq_len: int, batch: int | None = None,
    precision: str = "bf16", goal: str = "time", max_hours: float | None = None, max_usd: float | None = None,
    max_kwh: float | None = None, instance: str | None = None,
) -> TrainingPlan:  # fmt: skip
    """The best way to train a causal language model on `tokens` tokens with up to `count` devices.

    Searched are tensor, pipeline, context, expert and data parallelism, stages of ZeRO, microbatches and recomputed
    activations, of which those are left out that do not fit a device's memory. `batch` is in sequences a step.
    """
    if not isinstance(goal, str) or goal not in GOALS:
        raise ForerunError(f"goal {goal!r} is not known.{did_you_mean(goal, GOALS)} Choose from {', '.join(GOALS)}.")
    if precision not in law.PRECISIONS:
        raise ForerunError(f"precision {precision!r} is not known: choose from {', '.join(law.PRECISIONS)}")
    whole_number("count", count, most=2**17)
    whole_number("seq_len", seq_len)
    number("tokens", tokens, zero=False, most=10**18)
    limits = {"hours": max_hours, "usd": max_usd, "kwh": max_kwh}
    for name, value in limits.items():
        if value is not None:
            number(f"max_{name}", value, zero=False)
    chip = load_device(device)
    if chip.supports("bf16" if precision == "bf16" else "fp8") is False:
        raise ForerunError(f"{chip.id} has no {precision} units")
    numbers = describe(load_graph(Workload(model, dtype="bf16", seq_len=128, task="causal-lm")))
    batch = whole_number("batch", batch) if batch is not None else _usual_batch(seq_len)
    chosen = choose_instance(chip, instance)
    if count > 1:
        link(chip, count, chosen if instance else None)  # a count beyond a machine without a network is one sentence
    job = _Job(numbers, chip, tokens, seq_len, batch, precision, chosen, limits)
    return _planned(job, count, goal, named=instance is not None)


def _usual_batch(seq_len: int) -> int:
    return 1 << max(0, round(STEP_TOKENS / seq_len).bit_length() - 1)


def _planned(job: _Job, count: int, goal: str, named: bool) -> TrainingPlan:
    place = job.instance if named else None
    found, too_large, closest = [], 0, float("inf")
    for run in _runs(job, count):
        memory = law.memory_mb(job.model, job.device, run)
        fitting = law.fits(memory, job.device)
        if fitting is None:
            raise ForerunError(f"the memory of {job.device.id} is not known: whether a layout fits cannot be said")
        if not fitting:
            too_large, closest = too_large + 1, min(closest, sum(memory.values()))
            continue
        found.append(_candidate(job, run, memory, place))
    considered = len(found) + too_large
    if not considered:
        raise ForerunError(
            f"no layout divides a step of {job.batch:,} sequences among {count:,} devices: give another count or batch"
        )
    if not found:
        least = f": at least {closest / 1024:,.0f} GB on each" if too_large else ""
        raise ForerunError(f"no layout of {job.model.name} on up to {count} {job.device.id} fits{least}")
    measure = GOALS[goal]
    if all(getattr(one, measure) is None for one in found):
        lacking = "its price" if measure == "usd" else "its power limit"
        raise ForerunError(f"the goal {goal} needs more than is known of {job.device.id}: {lacking}")
    judged = [replace(one, verdict=_verdict(one, job.limits)) for one in found]
    able = [one for one in judged if one.verdict != DOES_NOT]
    if not able:
        raise ForerunError(_missed(judged, job.limits))
    ranked = sorted(able, key=lambda one: (getattr(one, measure).value, one.needed_mb))
    front = _front(able)
    return TrainingPlan(
        job.model.name, job.device.id, job.tokens, job.seq_len, job.batch, job.precision, goal, ranked[0],
        tuple(sorted(front, key=lambda one: one.hours.value)), tuple(_reasons(ranked, too_large, judged, measure)),
        considered, tuple(_notes(job)), {name: value for name, value in job.limits.items() if value is not None},
    )  # fmt: skip


def _runs(job: _Job, count: int) -> Iterator[law.Run]:
    """Every layout on the whole count, its half, its quarter and so on, that divides model and batch."""
    model, machine = job.model, in_machine(job.device)
    counts = [count]
    while counts[-1] % 2 == 0:
        counts.append(counts[-1] // 2)
    tensor = [tp for tp in _TENSOR if model.heads % tp == 0 and tp <= machine]
    contexts = [cp for cp in _CONTEXT if cp == 1 or job.seq_len >= _LONG]
    for devices in counts:
        for tp in tensor:
            for pp in (n for n in range(1, model.layers + 1) if devices % (tp * n) == 0):
                for cp in (c for c in contexts if (devices // (tp * pp)) % c == 0):
                    dp = devices // (tp * pp * cp)
                    for layout in _layouts(model, tp, pp, cp, dp, machine):
                        yield from _with_batches(job, layout)


def _layouts(model: LanguageModel, tp: int, pp: int, cp: int, dp: int, machine: int) -> Iterator[Layout]:
    for zero in _ZERO:
        if (zero and dp * cp == 1) or (zero == 3 and pp > 1):  # a pipeline would gather weights again and again
            continue
        yield Layout(tp=tp, pp=pp, cp=cp, dp=dp, zero=zero, sp=tp > 1)
        for ep in (e for e in (8, 16, 32, 64) if model.expert_count and e % tp == 0 and e > 1):
            if (tp * dp) % ep == 0 and model.expert_count % ep == 0 and zero < 3:
                yield Layout(tp=tp, pp=pp, cp=cp, dp=dp, ep=ep, zero=zero, sp=tp > 1)


def _with_batches(job: _Job, layout: Layout) -> Iterator[law.Run]:
    for micro in _MICRO_BATCHES:
        if job.batch % (layout.dp * micro) == 0:
            for recomputed in (False, True):
                yield law.Run(
                    layout, micro, job.batch // (layout.dp * micro), job.seq_len, job.precision, recomputed
                )  # fmt: skip


def _candidate(job: _Job, run: law.Run, memory: dict[str, float], place: Instance | None) -> Candidate:
    name = "llm-foundry" if data_parallel_alone(run.layout) and job.precision != "fp4" else "megatron"
    by = law.framework(name)
    done = law.step(law.work(job.model, job.device, run, place), job.precision, by)
    seconds = Estimate(done.seconds, done.seconds * by.errors[0], done.seconds * by.errors[1], "s")
    devices, steps = run.layout.devices, job.tokens / run.tokens
    hours = seconds.scaled(steps / 3600, "h")
    peak = law.peak_tflops(job.device, job.precision) * 1e12
    flops = 6 * (job.model.active + job.model.scores * job.seq_len / 2) * run.tokens
    hourly = None if job.instance is None else job.instance.usd_per_device_hour * devices
    usd = None if hourly is None else hours.scaled(hourly, "USD")
    parts = {part: value / done.seconds for part, value in done.parts.items()}
    return Candidate(
        run.layout, run.micro_batch, run.micro_batches, run.recomputed, name, seconds,
        run.tokens / done.seconds / devices, flops / devices / done.seconds / peak, hours, usd,
        _kwh(job.device, hours, devices, parts), parts, memory, launch_line(job.model, job.device, run, steps),
    )  # fmt: skip


def _kwh(device: Device, hours: Estimate, devices: int, parts: dict[str, float]) -> Estimate | None:
    """The power limit while devices compute, the power of waiting while they do not."""
    waits = waiting_w(device)
    if waits is None or device.tdp_w is None:
        return None
    busy = parts["compute"] + parts["optimizer"]
    return hours.scaled((busy * device.tdp_w + (1 - busy) * waits) * devices / 1e3, "kWh")


def _verdict(one: Candidate, limits: dict[str, float | None]) -> Verdict:
    verdicts = []
    for name, limit in limits.items():
        if limit is not None:
            estimate = getattr(one, name)
            verdicts.append(DOES_NOT if estimate is None else verdict(estimate, limit))
    return worst(verdicts)


def _missed(found: Sequence[Candidate], limits: dict[str, float | None]) -> str:
    """The sentence where no layout meets the limits: the least that each of them can be."""
    words = []
    for name, limit in limits.items():
        known = [getattr(one, name).value for one in found if getattr(one, name) is not None]
        if limit is not None:
            unit = {"hours": "h", "usd": "USD", "kwh": "kWh"}[name]
            words.append(f"{limit:,g} {unit} (at least {min(known):,.4g} {unit})" if known else f"{unit} is not known")
    return f"no layout that fits meets {' and '.join(words)}"


def _front(found: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other matches or beats in time, devices, cost and energy at once."""

    def point(one: Candidate) -> tuple[float, ...]:
        values = (one.hours.value, one.devices, one.usd and one.usd.value, one.kwh and one.kwh.value)
        return tuple(float(f"{value:.3g}") if value is not None else 0.0 for value in values)

    kept: dict[tuple[float, ...], Candidate] = {}
    for one in sorted(found, key=lambda one: (point(one), one.hours.value)):
        here = point(one)
        if not any(all(a <= b for a, b in zip(other, here, strict=True)) for other in kept):
            kept[here] = one
    return list(kept.values())


def _reasons(ranked: Sequence[Candidate], too_large: int, judged: Sequence[Candidate], measure: str) -> Iterator[str]:
    """Why the others lost: memory, limits, and of the best without each kind of parallelism what it would cost."""
    best = ranked[0]
    if too_large:
        yield f"{too_large:,} layouts do not fit a device's memory"
    if beyond := sum(one.verdict == DOES_NOT for one in judged):
        yield f"{beyond:,} layouts fit and miss a limit"

    def shape(one: Candidate) -> tuple[Any, ...]:
        return (one.layout.tp, one.layout.pp, one.layout.zero, one.recomputed)

    seen = {shape(best)}
    for one in ranked:
        if shape(one) in seen or one.devices != best.devices:
            continue
        seen.add(shape(one))
        more = getattr(one, measure).value / getattr(best, measure).value - 1
        lost = max(("bubble", "exchange", "compute"), key=lambda part: one.parts[part] * one.step_s.value
                   - best.parts[part] * best.step_s.value)  # fmt: skip
        why = {"bubble": "the pipeline's bubble", "exchange": "communication", "compute": "compute"}[lost]
        what = {"hours": "time", "usd": "cost", "kwh": "energy"}[measure]
        again = ", activations recomputed" if one.recomputed else ""
        yield f"{one.layout}{again}: {100 * more:.1f} % more {what}, mostly for {why}"
        if len(seen) > 4:
            return


def _notes(job: _Job) -> Iterator[str]:
    yield (
        f"steps of {job.batch:,} sequences ({job.batch * job.seq_len / 2**20:.3g} M tokens); Adam with its states in "
        "fp32, fused kernels, attention without stored scores; data loading keeps up, checkpoints are not counted"
    )
    if job.model.expert_count:
        yield "mixtures of experts are predicted worse than dense models (docs/PARALLEL.md)"
    yield "energy is an upper estimate: the power limit for all compute"
    if job.instance is None:
        yield f"no cloud price is known for {job.device.id}: costs are left out"
    else:
        yield f"price: {price_line(job.instance)}"
