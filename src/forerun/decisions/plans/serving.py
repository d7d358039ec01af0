"""forerun.plan_serving: which devices, how many, in which layout, to serve a model under a load within limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forerun._util.readable import pretty, short
from forerun.advice.cost import choose_instance
from forerun.advice.limits import pareto_front
from forerun.advice.verdict import DOES_NOT, PROBABLY, Verdict, verdict, worst
from forerun.api.arguments import several, whole_number
from forerun.decisions.plans.serving_answer import Deployment, LeftOut, ServingPlan
from forerun.device import Device, load_device
from forerun.device.cloud import Instance
from forerun.errors import ArgumentError, ForerunError, did_you_mean
from forerun.prediction import Estimate
from forerun.serving.engines import TENSOR_PARALLEL, Replica, impossible, no_room, replica, replica_of
from forerun.serving.forecast import Fleet, forecast
from forerun.serving.launch import launch_line
from forerun.serving.metrics import Limits
from forerun.serving.physics import held, with_run_errors
from forerun.serving.policies import policy_of
from forerun.serving.predicting import (
    Load,
    check_confidence,
    check_dtype,
    cost_per_million,
    limits_of,
    load_of,
)
from forerun.serving.requests import Lengths
from forerun.serving.steady import Curve, Steady, curve

GOALS = ("cost", "energy", "devices")
#: Pipeline stages, token budgets and devices that are tried when none are given.
PIPELINE, BUDGETS, MOST_DEVICES = (1, 2, 4), (2048, 8192), 1024
#: Deployments that are simulated, the draws of each, and the requests.
CONFIRMED, DRAWS, REQUESTS, PART = 3, 8, 400, 120
#: A replica is not planned to be fuller than this: beyond, queues are long and bursts last.
FULLEST = 0.9
#: The 90th percentile of the time to first token, over its mean, as simulations with moderate load have it.
_P90 = 1.6


@dataclass(frozen=True)
class _Candidate:
    """A layout with its closed form."""

    one: Replica
    replicas: int
    steady: Steady
    curve: Curve
    price: Instance | None

    @property
    def devices(self) -> int:
        return self.replicas * self.one.devices

    @property
    def energy_j(self) -> float:
        """Of a request, with what the devices take between iterations."""
        idle_s = (1 - self.steady.busy) / self.steady.rate
        return self.steady.energy_j + self.one.idle_w * self.one.devices * idle_s


def plan_serving(
    model: Any,
    *,
    devices: Sequence[str | Device],
    engine: str = "vllm",
    rate: float | None = None,
    concurrency: int | None = None,
    input: float = 1024,
    output: float = 256,
    input_spread: float = 0.0,
    output_spread: float = 0.0,
    max_ttft_ms: float | None = None,
    max_itl_ms: float | None = None,
    goal: str = "cost",
    dtypes: Sequence[str] | None = None,
    budgets: Sequence[int] | None = None,
    max_devices: int = MOST_DEVICES,
    confidence: float = 0.9,
) -> ServingPlan:
    """The deployment with the least cost, energy or devices that serves `model` under the load within the limits.

    All layouts of all devices are compared by the closed form of their steady state (TP, pipeline stages, experts
    divided, replicas, token budgets, dtypes); the best few are simulated, and their verdicts say whether 90 % of the
    requests meet the limits. Without `dtypes`, the checkpoint's own and FP8 are tried.
    """
    if goal not in GOALS:
        raise ForerunError(
            f"goal {short(goal)} is not known.{did_you_mean(goal, GOALS)} Choose from {', '.join(GOALS)}."
        )
    if rate is None and concurrency is None:
        raise ArgumentError("how much is asked of the engine? give {} or {}", "rate", "concurrency")
    policy_of(engine)
    check_confidence(confidence)
    tried = [whole_number("budgets", budget) for budget in several("budgets", budgets or BUDGETS)]
    for dtype in several("dtypes", dtypes) if dtypes else ():
        check_dtype(dtype)
    chips = [load_device(d) for d in several("devices", devices)]
    lengths = Lengths(input, input_spread), Lengths(output, output_spread)
    load = load_of(rate, concurrency, *lengths, count=REQUESTS if rate is None else None).of(model)
    limits = limits_of(max_ttft_ms, max_itl_ms)
    most = whole_number("max_devices", max_devices, most=MOST_DEVICES)
    left: list[LeftOut] = []
    found: list[_Candidate] = []
    considered = 0
    for chip in dict.fromkeys(chips):
        for one in _layouts(model, chip, engine, dtypes, load, limits, most, left):
            for budget in tried:
                considered += 1
                made = _candidate(one.with_budgets(budget, None), load, limits, most, left)
                found += [made] if made is not None else []
    if not found:
        raise ForerunError(_nothing(left))
    return _answer(found, load, limits, goal, engine, left, considered, confidence, dtypes)


def _layouts(
    model: Any, chip: Device, engine: str, dtypes: Sequence[str] | None, load: Load, limits: Limits, most: int,
    left: list[LeftOut],
) -> Iterator[Replica]:  # fmt: skip
    """Every layout of a device that holds the longest request and could meet the limits."""
    tokens = int((load.requests.inputs + load.requests.outputs).max())
    make = replica if isinstance(model, str) else replica_of
    tried: list[str | None] = list(dtypes) if dtypes else [None, *(["fp8"] if chip.peak("fp8") else [])]
    seen = set()
    experts = False
    for dtype in tried:
        for tp in TENSOR_PARALLEL:
            for pp in PIPELINE:
                for ep in (1, tp) if tp > 1 else (1,):
                    name = _layout_words(dtype, tp, pp, ep)
                    if tp * pp > most or (ep > 1 and not experts):
                        continue
                    try:
                        one = make(model, chip, engine, dtype, tp, ep, pp)
                    except ForerunError as error:
                        left.append(LeftOut(chip.id, name, str(error), possible=False))
                        break
                    if (one.dtype, tp, pp, ep) in seen:
                        continue
                    experts = one.has_experts
                    seen.add((one.dtype, tp, pp, ep))
                    reason = no_room(one, tokens) if one.model.kv_tokens < tokens else None
                    reason = reason or next(impossible(one, limits, load.input.mean), None)
                    if reason is not None:
                        left.append(LeftOut(chip.id, name, reason))
                        continue
                    yield one


def _layout_words(dtype: str | None, tp: int, pp: int, ep: int) -> str:
    words = [dtype or "", f"tp {tp}", f"pp {pp}" if pp > 1 else "", f"ep {ep}" if ep > 1 else ""]
    return " ".join(word for word in words if word)


def _candidate(one: Replica, load: Load, limits: Limits, most: int, left: list[LeftOut]) -> _Candidate | None:
    """The fewest replicas of a layout that meet the limits in closed form."""
    closed = load.requests.concurrency is not None
    policy = policy_of(one.one_stage.engine)
    form = curve(one.model, load.input, load.output, policy=policy, closed=closed)
    asked = float(load.requests.concurrency or load.words["rate"])
    state = form.at_concurrency if closed else form.at_rate
    fits = _most_within(form, state, limits, closed)
    words = f"{_layout_words(one.dtype, one.tp, one.pp, one.ep)}, {one.model.max_tokens:,} tokens"
    if fits is None:
        alone = state(1.0 if closed else 1e-3 * float(form.rate.max()))
        left.append(LeftOut(one.device.id, words, _missed(alone, limits)))
        return None
    replicas = int(np.ceil(asked / fits - 1e-9))
    if replicas * one.devices > most:
        left.append(LeftOut(one.device.id, words, f"needs {replicas * one.devices:,} devices, more than {most:,}"))
        return None
    return _Candidate(one, replicas, state(asked / replicas), form, choose_instance(one.device, None))


def _most_within(form: Curve, state: Any, limits: Limits, closed: bool) -> float | None:
    """The highest rate, or number of clients, of one replica at which the limits are met; None: at none."""
    best = int(form.rate.argmax())
    highest = float(form.clients[best]) if closed else FULLEST * float(form.rate[best])
    lowest = 1.0 if closed else 1e-3 * highest
    if _within(state(highest), limits):
        return highest
    if not _within(state(lowest), limits):
        return None
    for _ in range(24):
        middle = (lowest + highest) / 2
        lowest, highest = (middle, highest) if _within(state(middle), limits) else (lowest, middle)
    return max(1.0, np.floor(lowest + 1e-9)) if closed else lowest


def _within(steady: Steady, limits: Limits) -> bool:
    ttft = limits.ttft_ms is None or (steady.ttft_ms is not None and _P90 * steady.ttft_ms <= limits.ttft_ms)
    return ttft and (limits.itl_ms is None or steady.token_ms <= limits.itl_ms)


def _missed(alone: Steady, limits: Limits) -> str:
    """Why even a single request at a time misses a limit."""
    if limits.itl_ms is not None and alone.token_ms > limits.itl_ms:
        return f"misses ITL of {pretty(limits.itl_ms)} ms: {pretty(alone.token_ms)} ms for a single request"
    return f"misses TTFT of {pretty(limits.ttft_ms or 0.0)} ms: {pretty(alone.ttft_ms or 0.0)} ms without a queue"


def _answer(
    found: list[_Candidate], load: Load, limits: Limits, goal: str, engine: str, left: list[LeftOut], considered: int,
    confidence: float, dtypes: Sequence[str] | None,
) -> ServingPlan:  # fmt: skip
    ranked = sorted(found, key=lambda c: _worth(c, goal))
    confirmed: dict[int, Deployment] = {}
    for candidate in _to_confirm(ranked):
        confirmed[id(candidate)] = _confirmed(candidate, load, limits, confidence)
    all_made = [confirmed.get(id(c)) or _deployment(c, load, limits) for c in ranked]
    order = sorted(range(len(all_made)), key=lambda at: (
        not all_made[at].confirmed, Verdict(all_made[at].verdict).place, _worth(ranked[at], goal)))  # fmt: skip
    made = _with_front([all_made[at] for at in order])
    rows: dict[str, Deployment] = {}
    for one in made:
        rows.setdefault(one.device, one)
    notes = []
    if dtypes is None and any(one.dtype == "fp8" for one in rows.values()):
        notes.append(
            "FP8 was tried beside the checkpoint's own dtype: it changes answers a little (--dtypes excludes it)"
        )
    if goal == "cost" and any(one.usd_per_hour is None for one in made):
        unpriced = ", ".join(dict.fromkeys(one.device for one in made if one.usd_per_hour is None))
        notes.append(f"no price is known for {unpriced}, which therefore rank last")
    if made[0].verdict == DOES_NOT:
        notes.append("in the simulation none of the best meets every limit: allow more time, or more devices")
    return ServingPlan(
        model=ranked[0].one.model.name, engine=engine, goal=goal, load=load.words,
        limits={n: v for n, v in (("ttft_ms", limits.ttft_ms), ("itl_ms", limits.itl_ms)) if v is not None},
        rows=tuple(rows.values()), candidates=tuple(made), front=tuple(one for one in made if one.on_front),
        left_out=tuple(left), notes=tuple(notes), considered=considered, confidence=confidence,
    )  # fmt: skip


def _worth(c: _Candidate, goal: str) -> tuple[float, ...]:
    """What is minimised, and then the others."""
    hourly = c.price.usd_per_device_hour * c.devices if c.price is not None else np.inf
    tokens = c.replicas * c.steady.rate
    cost, energy = hourly / max(tokens, 1e-12), c.energy_j
    first = {"cost": cost, "energy": energy, "devices": float(c.devices)}[goal]
    return (first, cost, float(c.devices), c.steady.token_ms)


def _to_confirm(ranked: list[_Candidate]) -> list[_Candidate]:
    """The best of all, and the best of the next devices."""
    firsts = {c.one.device.id: c for c in reversed(ranked)}
    best = [c for c in ranked if firsts[c.one.device.id] is c]
    return best[:CONFIRMED]


def _confirmed(c: _Candidate, load: Load, limits: Limits, confidence: float) -> Deployment:
    """The deployment simulated; with one replica more, where 90 % of the requests would miss a limit."""
    requests = load.requests
    for replicas in (c.replicas, c.replicas + 1, c.replicas + 2):
        fleet = Fleet(c.one.model, policy_of(c.one.one_stage.engine), replicas)
        count = REQUESTS if load.requests.concurrency is None else max(REQUESTS, 4 * load.requests.concurrency)
        if count > len(requests):
            again = load_of(load.words.get("rate"), load.requests.concurrency, load.input, load.output, count=count)
            requests = again.of(c.one.model.name).requests
        made = forecast(fleet, requests, limits, idle_w=c.one.idle_w, draws=DRAWS, part=PART, confidence=confidence)
        e = held(with_run_errors(made.estimates, c.one, confidence), c.one, fleet.devices, requests)
        checks = [
            (f"TTFT of {pretty(limits.ttft_ms)} ms", e["ttft_ms.p90"], limits.ttft_ms) if limits.ttft_ms else None,
            (f"ITL of {pretty(limits.itl_ms)} ms", e.get("tpot_ms.p90"), limits.itl_ms) if limits.itl_ms else None,
        ]
        told = [
            (words, verdict(value, limit), value) for words, value, limit in filter(None, checks) if value is not None
        ]
        of_all = worst(v for _, v, _ in told)
        if of_all != DOES_NOT:
            break
    reasons = tuple(f"{v} {words}: 90 % of the requests within {pretty(value.value)} ms" for words, v, value in told)
    c = replace(c, replicas=replicas)
    return replace(
        _deployment(c, load, limits), ttft_ms=e["ttft_ms.mean"], itl_ms=e.get("itl_ms.mean") or e["ttft_ms.mean"],
        throughput=e["throughput"], energy_per_token_j=e["energy_per_token_j"], verdict=str(of_all), reasons=reasons,
        cost_per_million_usd=cost_per_million(e["throughput"], c.devices, c.price), confirmed=True,
    )  # fmt: skip


def _deployment(c: _Candidate, load: Load, limits: Limits) -> Deployment:
    """The deployment as the closed form has it, without intervals."""
    s, output = c.steady, load.output.mean
    tokens = s.rate * c.replicas * output
    throughput = _exactly(tokens, "tokens/s")
    return Deployment(
        device=c.one.device.id, devices=c.devices, replicas=c.replicas, tp=c.one.tp, pp=c.one.pp, ep=c.one.ep,
        dtype=c.one.dtype, max_tokens=c.one.model.max_tokens, max_sequences=c.one.model.max_sequences,
        ttft_ms=None if s.ttft_ms is None else _exactly(s.ttft_ms, "ms"), itl_ms=_exactly(s.token_ms, "ms"),
        throughput=throughput, capacity=s.capacity * c.replicas,
        energy_per_token_j=_exactly(c.energy_j / output, "J"),
        usd_per_hour=None if c.price is None else c.price.usd_per_device_hour * c.devices,
        cost_per_million_usd=cost_per_million(throughput, c.devices, c.price),
        verdict=str(PROBABLY), reasons=("by the closed form, not simulated",), confirmed=False,
        measured=not c.one.one_stage.unseen,
        launch=launch_line(c.one, {"replicas": c.replicas}),
    )  # fmt: skip


def _exactly(value: float, unit: str) -> Estimate:
    return Estimate(float(value), float(value), float(value), unit)


def _with_front(made: list[Deployment]) -> list[Deployment]:
    """Marks deployments that no other beats both in cost (devices where no price is known) and in the token gap."""
    priced = [one.cost_per_million_usd for one in made]
    cost = np.array([p.value if p is not None else np.inf for p in priced])
    if not np.isfinite(cost).any():
        cost = np.array([float(one.devices) for one in made])
    front = set(pareto_front(cost, np.array([one.itl_ms.value for one in made])))
    return [replace(one, on_front=at in front) for at, one in enumerate(made)]


def _nothing(left: Sequence[LeftOut]) -> str:
    """The error where no layout is left: the reason of the largest layout of each device."""
    if not left:
        return "no layout of these devices was possible: allow more devices"
    last = {one.device: one for one in sorted(left, key=lambda one: one.possible)}
    reasons = "; ".join(f"{one.device} ({one.layout}): {one.reason}" for one in list(last.values())[:4])
    return f"no layout serves this load within the limits: {reasons}"
