"""A whole generation as a question: one prefill, the steps after it, and the loop of transformers between them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forerun.advice.fit import fit
from forerun.api.questions import Question, problem, profiled
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.kinds import CONTRACTIONS
from forerun.prediction import Fit
from forerun.predictors.base import Predictor, Times
from forerun.predictors.laws import generation as law
from forerun.predictors.laws.bounds import Answers, throughout_mb
from forerun.predictors.laws.energy import back_to_back_ms, waiting_w
from forerun.predictors.laws.memory import MemoryEstimate, available_mb, estimates
from forerun.predictors.laws.spreads import not_above, not_below
from forerun.runtimes.registry import USUAL
from forerun.workload import BEAMS, GENERATION, Workload

_TASK = "seq2seq"


@dataclass(frozen=True)
class Part:
    """Calls of one kind in a generation: the prefill, or steps at one length of the cache."""

    question: Question
    calls: float


@dataclass(frozen=True, kw_only=True)
class GenerationQuestion(Question):
    """The calls of a generation; graph and columns are those of its last step."""

    parts: tuple[Part, ...]
    loop: law.Loop
    fitted: law.GenerationLaw

    @property
    def mode(self) -> str:
        return "generate"

    @property
    def work(self) -> tuple[float, float, float]:
        each = np.array([part.question.work for part in self.parts])
        flops, macs, moved = np.array([part.calls for part in self.parts]) @ each
        return float(flops), float(macs), float(moved)

    def items(self, workload: Workload) -> tuple[int, str]:
        return workload.batch * self.loop.tokens, "tokens"

    def ask(self, predictor: Predictor, devices: Sequence[Device]) -> GenerationAnswers:
        each = tuple(part.question.ask(predictor, devices) for part in self.parts)
        return GenerationAnswers(predictor, self, tuple(devices), each)

    def latency_on_hosts_ms(
        self, times: Times, device: Device, predictor: Predictor, slowness: Sequence[float]
    ) -> list[float]:
        on_hosts = (predictor.with_settings(confidence=predictor.confidence, host_slowness=slow) for slow in slowness)
        return [float(self.ask(one, [device]).times.latency_ms[0, 0]) for one in on_hosts]

    def memories(self, devices: Sequence[Device]) -> list[MemoryEstimate]:
        return self.memories_from(devices, *self.memories_of_calls(devices))

    def memories_of_calls(self, devices: Sequence[Device]) -> tuple[list[MemoryEstimate], list[MemoryEstimate]]:
        """Simulated memory of the prefill and of the last step."""
        first, last = (estimates(part.question.graph, devices) for part in (self.parts[0], self.parts[-1]))
        return first, last

    def memories_from(
        self, devices: Sequence[Device], first: Sequence[MemoryEstimate], last: Sequence[MemoryEstimate]
    ) -> list[MemoryEstimate]:
        """Memory of the whole from that of its prefill and of its last step on each device."""
        throughout, out = throughout_mb(self.graph), []
        powers = (self.fitted.powers(target, devices).tolist() for target in ("memory_allocated_mb", "memory_mb"))
        for device, prompt, step, *power in zip(devices, first, last, *powers, strict=True):
            larger = max((prompt, step), key=lambda one: one.allocated_mb)
            lasting = throughout + step.parts_mb.get("workspace", 0.0)
            allocated = self.fitted.allocated_mb(self.loop, larger.allocated_mb, lasting)
            calls_mb = max(prompt.reserved_mb, step.reserved_mb)
            parts = dict(larger.parts_mb)
            if allocated > larger.allocated_mb:
                parts["activation"] = parts.get("activation", 0.0) + allocated - larger.allocated_mb
            context = larger.context_mb + self.fitted.process_mb.get(device.traits.part, 0.0)
            available, least = available_mb(device), max(calls_mb, allocated) + context
            out.append(replace(
                larger, allocated_mb=allocated, reserved_mb=self.fitted.reserved_mb(self.loop, calls_mb, allocated),
                context_mb=context, parts_mb=parts, fits=None if available is None else least <= available,
                powers=tuple(power),
            ))  # fmt: skip
        return out

    def fit(self, device: Device, memory: MemoryEstimate) -> Fit | None:
        """The verdict on the whole; the largest batch is the smaller one of prompt and last step."""
        each = [
            fit(part.question.graph, part.question.scalable, device, memory) for part in (self.parts[0], self.parts[-1])
        ]
        known = [one for one in each if one is not None and one.largest_batch is not None]
        if each[0] is None or not known or self.scalable is None:
            return each[0] and replace(each[0], largest_batch=None, reason="beams share their prompt")
        return min(known, key=lambda one: one.largest_batch or 0)


@dataclass(frozen=True)
class GenerationAnswers:
    """Predictions of a generation from those of its calls."""

    predictor: Predictor
    question: GenerationQuestion
    devices: tuple[Device, ...]
    each: tuple[Answers, ...]

    @functools.cached_property
    def times(self) -> Times:
        """The sums over all calls, and what the loop adds to time and energy."""
        loop, fitted = self.question.loop, self.question.fitted
        latency = self._sum("latency_ms") + self._added(loop)
        in_loop = (
            part.calls * back_to_back_ms(one.latency_ms, _known(one.device_ms), self.devices, USUAL)
            for part, one in ((part, answers.times) for part, answers in self._pairs())
        )
        waits = latency - sum(in_loop)
        watts = np.array([np.nan if (w := waiting_w(device)) is None else w for device in self.devices])
        return Times(
            latency_ms=latency,
            device_ms=self._sum("device_ms") + fitted.device_ms(loop, self.devices),
            host_ms=self._sum("host_ms") + self._added(loop, moving=False),
            roofline_ms=self._sum("roofline_ms"),
            energy_j=self._sum("energy_j") + fitted.waiting * watts * waits / 1e3,
        )

    @functools.cached_property
    def first_token_ms(self) -> np.ndarray:
        """The time of a generation of one token."""
        alone = replace(self.question.loop, tokens=1)
        first = self.each[0].times.latency_ms + self._added(alone)
        return np.minimum(first, self.times.latency_ms)

    def spread(self, target: str) -> np.ndarray:
        """The interval of a target, (low, high) as factors, last axis: those of the calls at once, to a power that was
        fitted to whole generations; what the loop adds is as uncertain as the steps."""
        value, steps = getattr(self.times, target), self.each[-1].spread(target)
        known = sum((part.calls * getattr(a.times, target))[..., None] * a.spread(target) for part, a in self._pairs())
        rest = (value - self._sum(target))[..., None] * steps
        with np.errstate(invalid="ignore", divide="ignore"):
            factors = np.nan_to_num((known + rest) / value[..., None], nan=1.0)
        out: np.ndarray = np.maximum(factors, 1e-9) ** self._powers(target)
        if target == "energy_j":
            limit = np.array([np.inf if d.tdp_w is None else d.tdp_w for d in self.devices])
            longest = self.times.latency_ms * self.spread("latency_ms")[..., 1]
            return not_above(out, value, limit * longest / 1e3)
        return not_below(out, value, self.times.roofline_ms)

    def first_token_spread(self) -> np.ndarray:
        """The interval of the time to the first token, as factors."""
        out: np.ndarray = self.each[0].spread("latency_ms") ** self._powers("first_token_ms")
        return not_below(out, self.first_token_ms, self.each[0].times.roofline_ms)

    def token_spread(self) -> np.ndarray:
        """The interval of the time of each further token, as factors: that of the whole, to a power of its own."""
        out: np.ndarray = self.spread("latency_ms") ** (self._powers("token_ms") / self._powers("latency_ms"))
        return out

    def _powers(self, target: str) -> np.ndarray:
        """Over [devices, ends]."""
        return self.question.fitted.powers(target, self.devices)[:, None]

    def of_device(self, place: int) -> GenerationAnswers:
        each = tuple(one.of_device(place) for one in self.each)
        return replace(self, devices=(self.devices[place],), each=each)

    def notes(self) -> Iterator[str]:
        """One sentence for each quantity of any call that was clipped to its bound."""
        yield from dict.fromkeys(note for one in self.each for note in one.notes())

    def _pairs(self) -> Iterator[tuple[Part, Answers]]:
        return zip(self.question.parts, self.each, strict=True)

    def _sum(self, target: str) -> np.ndarray:
        total: np.ndarray = sum(part.calls * getattr(a.times, target) for part, a in self._pairs())
        return total

    def _added(self, loop: law.Loop, *, moving: bool = True) -> np.ndarray:
        """What the loop adds to the latency of a generation, in milliseconds over [batch sizes, devices]."""
        fitted = self.question.fitted
        added = fitted.host_ms(loop, self.devices, self.predictor.assumed_slowness)
        return (added + moving * fitted.moving_ms(loop, self.devices))[None, :]


def question_of(workload: Workload) -> Question:
    """The workload ready for a predictor, whether it is one call or a whole generation."""
    return generation(workload) if workload.mode == "generate" else profiled(workload)


def problem_of(workload: Workload, device: Device, predictor: Predictor) -> str | None:
    """Why this question has no answer, as a sentence, or None; a generation has one where its calls have."""
    if workload.mode != "generate":
        return problem(workload, device, predictor)
    reasons = (problem(_call(workload, mode), device, predictor) for mode in ("prefill", "decode"))
    return next((reason for reason in reasons if reason is not None), None)


def generation(workload: Workload, fitted: law.GenerationLaw | None = None) -> GenerationQuestion:
    """The calls of a generation: the prefill, then steps at the shortest and the longest cache, which stand for those
    between, as their time grows linearly with the length."""
    tokens = workload.new_tokens or 1
    beams = BEAMS if workload.decoding == "beam" else 1
    prefill = _profiled(_call(workload, "prefill"))
    encodes = prefill.graph.facts.get("task") == _TASK
    length = int(workload.seq_len or prefill.graph.facts.get("seq_len") or 1)
    _check_positions(prefill.graph, length, tokens, encodes)
    if beams > 1 and not encodes:  # the encoder reads each prompt once
        prefill = _profiled(_call(workload, "prefill", batch=workload.batch * beams))
    parts = [Part(prefill, 1.0)]
    for cached, calls in _steps(0 if encodes else length, tokens, workload.cache == "static"):
        more: dict[str, Any] = {"batch": workload.batch * beams}
        if encodes:  # the decoder starts from one token; the cache of the prompt does not grow
            more["input_shape"] = {"input_ids": (length,), "decoder_input_ids": (max(1, cached),)}
        else:
            more["seq_len"] = cached
        parts.append(Part(_profiled(_call(workload, "decode", **more)), calls))
    last = parts[-1].question
    return GenerationQuestion(
        last.graph, None if beams > 1 else last.scalable, last.columns, last.workload, parts=tuple(parts),
        loop=_loop(workload, last.graph, beams, encodes), fitted=fitted or law.shipped(),
    )  # fmt: skip


def _steps(length: int, tokens: int, static: bool) -> list[tuple[int, float]]:
    """Lengths of the cache before a step, and how many steps each stands for."""
    if tokens == 1:
        return []
    first, last, count = max(1, length), max(1, length + tokens - 2), tokens - 1
    if static or first == last:
        return [(last, float(count))]
    return [(first, count / 2), (last, count / 2)]


def _call(workload: Workload, mode: str, **more: Any) -> Workload:
    """One call of a generation as a workload of its own."""
    return replace(workload, **{**dict.fromkeys(GENERATION), "mode": mode, **more})


def _profiled(call: Workload) -> Question:
    try:
        return profiled(call)
    except ForerunError as error:
        raise ForerunError(f"mode generate reads a prompt and then decodes: {error}") from error


def _check_positions(graph: Graph, length: int, tokens: int, encodes: bool) -> None:
    limit = graph.facts.get("context_limit")
    needed = tokens if encodes else length + tokens
    if limit is not None and needed > limit:
        prompt = "" if encodes else f"a prompt of {length:,} and "
        raise ForerunError(f"{prompt}{tokens:,} new tokens need {needed:,} positions; {graph.name} has {limit:,}")


def _loop(workload: Workload, last: Graph, beams: int, encodes: bool) -> law.Loop:
    caches = [s for s in last.storages if s.role == "cache"]
    heads = [op for op in last.ops if op.kind in CONTRACTIONS]
    vocabulary = last.tensors[heads[-1].outputs[0]].shape[-1] if heads else 0
    return law.Loop(
        tokens=workload.new_tokens or 1, layers=sum(s.repeat for s in caches) // 2, sequences=workload.batch * beams,
        vocabulary=int(vocabulary), cache_bytes=float(sum(s.bytes * s.repeat for s in caches)),
        decoding=workload.decoding or "greedy", padded=workload.prompt == "padded",
        static=workload.cache == "static", encodes=encodes,
    )  # fmt: skip


def _known(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values, nan=0.0)
