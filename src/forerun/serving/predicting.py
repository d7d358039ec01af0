"""forerun.serving: a model in a serving engine under a load, simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun._util.readable import short
from forerun.advice.cost import choose_instance, price_line
from forerun.advice.verdict import verdict
from forerun.api.arguments import number, whole_number
from forerun.device import Device, load_device
from forerun.device.cloud import Instance
from forerun.errors import ArgumentError, ForerunError
from forerun.prediction import CONFIDENCES, Estimate
from forerun.serving.answer import Quantiles, ServingPrediction
from forerun.serving.context import context_tokens
from forerun.serving.engines import Replica, check_limits, no_room, replica_of, smallest
from forerun.serving.forecast import DRAWS, Fleet, Forecast, forecast
from forerun.serving.launch import bench_line, checkpoint_note, launch_line
from forerun.serving.metrics import DEFINITIONS, Limits, timeline
from forerun.serving.physics import held, with_run_errors
from forerun.serving.policies import STATIC, policy_of
from forerun.serving.requests import Lengths, Requests, drawn
from forerun.serving.simulator import Disaggregated
from forerun.serving.steady import curve
from forerun.serving.trace import MOST_ROWS, read_trace

#: Requests of a load that is drawn: at least so many for each client of a closed loop, and so many seconds of a rate.
REQUESTS, PER_CLIENT, SECONDS, MOST = 1000, 8, 60, 20_000
#: Requests per second: one in thirty years.
SLOWEST_RATE = 1e-9
#: Devices of a service at most: each of its replicas is simulated.
MOST_DEVICES = 4096
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Load:
    """What is asked of the engine, and how it is told to people."""

    requests: Requests
    input: Lengths
    output: Lengths
    words: dict[str, Any]
    whole: bool  # all requests count: those of a trace as it was recorded

    def of(self, model: Any) -> Load:
        """The load as the model can take it: drawn lengths end at its context; longer requests are refused."""
        most, longest = context_tokens(model), int((self.requests.inputs + self.requests.outputs).max())
        if most is None or longest <= most:
            return self
        if "trace" in self.words or self.input.mean + self.output.mean > most:
            named = model if isinstance(model, str) else "the model"
            raise ForerunError(f"{named} takes {most:,} tokens at most, and one request has {longest:,}")
        return replace(self, requests=self.requests.within(most))


def serving(
    model: Any,
    device: str | Path | Device | dict[str, Any],
    *,
    engine: str = "vllm",
    tp: int | None = None,
    pp: int = 1,
    ep: int = 1,
    count: int | None = None,
    dtype: str | None = None,
    rate: float | None = None,
    concurrency: int | None = None,
    input: float = 1024,
    output: float = 256,
    input_spread: float = 0.0,
    output_spread: float = 0.0,
    cv: float = 1.0,
    prefix: int = 0,
    trace: str | Path | Requests | None = None,
    requests: int | None = None,
    max_tokens: int | None = None,
    max_sequences: int | None = None,
    max_ttft_ms: float | None = None,
    max_itl_ms: float | None = None,
    static: bool = False,
    disaggregate: str | None = None,
    router: str = "round-robin",
    instance: str | None = None,
    confidence: float = 0.9,
    seed: int = 0,
) -> ServingPrediction:
    """What clients of `model` see in a serving engine on `count` devices, and what it costs.

    The load is a `rate` of requests per second, a `concurrency` of clients that each send their next request after the
    answer to the last, or a `trace` (a file of arrival seconds, input tokens, output tokens), whose lengths a rate or a
    concurrency may be given beside. `input` and `output` are mean tokens, their spreads the standard deviation over the
    mean (log-normal), `cv` the coefficient of variation of the gaps between arrivals (1: Poisson), `prefix` the tokens
    that all prompts begin with. Each replica has `tp x pp` devices, by default the fewest that hold it; the others are
    more replicas. `static` runs the same with static batching. `disaggregate="2:1"` gives two replicas that only
    compute prompts and one that only decodes. `max_ttft_ms` and `max_itl_ms` are the service level that goodput counts.
    """
    check_confidence(confidence)
    check_dtype(dtype)
    chip = load_device(device)
    load = load_of(rate, concurrency, Lengths(input, input_spread), Lengths(output, output_spread), cv=cv,
                   prefix=prefix, trace=trace, count=requests, seed=seed).of(model)  # fmt: skip
    limits = limits_of(max_ttft_ms, max_itl_ms)
    most = int((load.requests.inputs + load.requests.outputs).max())
    counts = None if count is None else whole_number("count", count, most=MOST_DEVICES)
    one = _one(model, chip, engine, dtype, (tp, pp, ep), counts, most)
    one = one.with_budgets(
        *(None if n is None else whole_number(name, n) for name, n in
          (("max_tokens", max_tokens), ("max_sequences", max_sequences)))
    )  # fmt: skip
    check_limits(one, limits, float(np.median(load.requests.inputs)))
    price = choose_instance(chip, instance)
    fleet, layout = _fleet(one, engine, counts, static, disaggregate, router, price)
    made = forecast(fleet, load.requests, limits, whole=load.whole, idle_w=one.idle_w, draws=DRAWS,
                    confidence=confidence, seed=seed)  # fmt: skip
    return _answer(one, fleet, layout, load, limits, made, price, confidence)


def check_confidence(confidence: Any) -> None:
    """Refuses what is no coverage of an interval."""
    known = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not known or not CONFIDENCES[0] <= confidence <= CONFIDENCES[1]:
        raise ForerunError("confidence must be from {} to {}, got {}".format(*CONFIDENCES, short(confidence)))


def check_dtype(dtype: Any) -> None:
    """Refuses what is no name; whether a name is known, its workload says."""
    if dtype is not None and not (isinstance(dtype, str) and dtype):
        raise ForerunError(f"dtype is a name, such as bf16 or fp8, got {short(dtype)}")


def limits_of(max_ttft_ms: float | None, max_itl_ms: float | None) -> Limits:
    """The service level from arguments."""
    given = (("max_ttft_ms", max_ttft_ms), ("max_itl_ms", max_itl_ms))
    return Limits(*(None if value is None else number(name, value, zero=False) for name, value in given))


def load_of(
    rate: float | None,
    concurrency: int | None,
    input: Lengths,
    output: Lengths,
    *,
    cv: float = 1.0,
    prefix: int = 0,
    trace: str | Path | Requests | None = None,
    count: int | None = None,
    seed: int = 0,
) -> Load:
    """The requests that the arguments describe."""
    if rate is not None and concurrency is not None:
        raise ArgumentError("give {} or {}, not both", "rate", "concurrency")
    if rate is None and concurrency is None and trace is None:
        raise ArgumentError("how much is asked of the engine? give {}, {} or {}", "rate", "concurrency", "trace")
    rate = None if rate is None else number("rate", rate, zero=False)
    if rate is not None and rate < SLOWEST_RATE:
        raise ArgumentError("{} must be at least {least} requests per second, got {got}", "rate", least=SLOWEST_RATE,
                            got=rate)  # fmt: skip
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ArgumentError("{} must be a whole number of 0 or more, got {got}", "seed", got=short(seed))
    clients = None if concurrency is None else whole_number("concurrency", concurrency, most=100_000)
    cv = number("cv", cv, most=100)
    for name, lengths in (("input", input), ("output", output)):
        number(name, lengths.mean, zero=False, most=2**24)
        number(f"{name}_spread", lengths.spread, most=100)
    arriving: dict[str, Any] = {"rate": rate, "concurrency": clients}
    words = {name: value for name, value in arriving.items() if value is not None}
    count = None if count is None else whole_number("requests", count, most=MOST_ROWS)
    if words and rate is not None and cv != 1:
        words["cv"] = cv
    if trace is not None:
        found = trace if isinstance(trace, Requests) else read_trace(trace)
        found = found.taken(slice(0, count)) if count is not None else found
        if words:
            found = found.arriving(np.random.default_rng(seed), rate=rate, cv=cv, concurrency=clients)
        input, output = (
            Lengths(float(tokens.mean()), float(tokens.std() / tokens.mean()))
            for tokens in (found.inputs, found.outputs)
        )
        words |= {"trace": "requests" if isinstance(trace, Requests) else Path(trace).name}
        return Load(found, input, output, words | _lengths(input, output), whole=not (rate or clients))
    wanted = SECONDS * (rate or 0.0) if clients is None else PER_CLIENT * clients
    number_of = int(min(max(REQUESTS, wanted), MOST))
    number_of = number_of if count is None else count
    prefix = 0 if prefix == 0 else whole_number("prefix", prefix, most=2**24)
    made = drawn(number_of, input, output, **arriving, cv=cv, prefix=prefix, seed=seed)
    return Load(made, input, output, words | _lengths(input, output) | ({"prefix": prefix} if prefix else {}), False)


def _lengths(input: Lengths, output: Lengths) -> dict[str, Any]:
    words: dict[str, Any] = {"input": input.mean, "output": output.mean}
    spreads = {"input_spread": input.spread, "output_spread": output.spread}
    return words | {name: value for name, value in spreads.items() if value}


def _one(
    model: Any, chip: Device, engine: str, dtype: str | None, sizes: tuple[int | None, int, int], count: int | None,
    tokens: int,
) -> Replica:  # fmt: skip
    """One replica that holds the longest request."""
    policy_of(engine)
    tp, pp, ep = sizes[0], *(whole_number(name, n, most=1024) for name, n in zip(("pp", "ep"), sizes[1:], strict=True))
    if tp is None and pp == ep == 1:
        return smallest(model, chip, engine, dtype, tokens, count)[0]
    tp = 1 if tp is None else whole_number("tp", tp, most=1024)
    if count is not None and count % (tp * pp):
        raise ArgumentError(
            "{} must be a multiple of the {size} devices of a replica, got {got}", "count", size=tp * pp, got=count
        )
    one = replica_of(model, chip, engine, dtype, tp, ep, pp)
    if one.model.kv_tokens < tokens:
        raise ForerunError(no_room(one, tokens))
    return one


def _fleet(
    one: Replica, engine: str, count: int | None, static: bool, disaggregate: str | None, router: str,
    instance: Instance | None,
) -> tuple[Fleet, dict[str, int]]:  # fmt: skip
    policy = STATIC if static else policy_of(engine)
    layout = {"tp": one.tp, **{name: n for name, n in (("pp", one.pp), ("ep", one.ep)) if n > 1}}
    if disaggregate is None:
        replicas = max(1, (count or one.devices) // one.devices)
        return Fleet(one.model, policy, replicas, router), layout | {"replicas": replicas}
    if static:
        raise ArgumentError("{} batches prompts with their answers: leave out {}", "static", "disaggregate")
    prefill, decode = _pools(disaggregate)
    devices = (prefill + decode) * one.devices
    if count is not None and count != devices:
        raise ArgumentError(
            "{} of {count} devices do not make {pools} replicas of {tp}", "count", count=count, pools=disaggregate,
            tp=one.devices,
        )  # fmt: skip
    before = Disaggregated(one.model, prefill, lambda tokens: one.transfer_s(tokens, devices, instance))
    return (
        Fleet(one.model, policy, decode, router, before),
        layout | {"replicas": decode, "prefill_replicas": prefill},
    )


def _pools(text: str) -> tuple[int, int]:
    """'2:1' as numbers of replicas that compute prompts, and that decode."""
    parts = str(text).split(":")
    if len(parts) != 2 or not all(part.strip().isdecimal() and 0 < int(part) <= 4096 for part in parts):
        raise ArgumentError(
            "{} takes replicas that compute prompts and replicas that decode, such as 2:1, got {got}", "disaggregate",
            got=short(text),
        )  # fmt: skip
    return int(parts[0]), int(parts[1])


def _answer(
    one: Replica, fleet: Fleet, layout: dict[str, int], load: Load, limits: Limits, made: Forecast,
    price: Instance | None, confidence: float,
) -> ServingPrediction:  # fmt: skip
    estimates, numbers = with_run_errors(made.estimates, one, confidence), made.numbers
    e = held(estimates, one, fleet.devices, load.requests)
    capacity = None
    if not fleet.policy.static and fleet.disaggregated is None:
        cached = numbers.get("prefix_hits", 0.0) * load.input.mean
        form = curve(one.model, load.input, load.output, policy=fleet.policy, cached=cached)
        most = float(form.rate.max()) * fleet.replicas
        ratio = e["itl_ms.mean"] if "itl_ms.mean" in e else e["ttft_ms.mean"]
        capacity = Estimate(most, most * ratio.value / ratio.high, most * ratio.value / ratio.low, "requests/s")
    unknown, assumptions = {}, {}
    if price is None:
        unknown["cost_per_million_usd"] = f"no price of {one.device.id} is known"
    else:
        assumptions["cost_per_million_usd"] = price_line(price)
    runs = not fleet.policy.static and fleet.disaggregated is None  # the command below is of what was simulated
    names = ("busy", "kv_use", "in_engine", "waiting", "prefix_hits", "good_share")
    return ServingPrediction(
        model=one.model.name, device=one.device.id, devices=fleet.devices, engine=one.one_stage.engine,
        policy=fleet.policy.name, dtype=one.dtype, layout=layout, load=load.words,
        **{name: _quantiles(e, name) for name in DEFINITIONS},  # type: ignore[arg-type]
        throughput=e["throughput"], throughput_per_device=e["throughput_per_device"],
        requests_per_s=e["requests_per_s"], goodput=e.get("goodput"), energy_per_token_j=e.get("energy_per_token_j"),
        energy_per_request_j=e.get("energy_per_request_j"), power_w=e.get("power_w"),
        cost_per_million_usd=cost_per_million(e["throughput"], fleet.devices, price), capacity=capacity,
        limits={n: v for n, v in (("ttft_ms", limits.ttft_ms), ("itl_ms", limits.itl_ms)) if v is not None},
        verdicts=_verdicts(e, limits), means={name: numbers[name] for name in names if name in numbers},
        kv_tokens=one.model.kv_tokens,
        budgets={"max_tokens": one.model.max_tokens, "max_sequences": one.model.max_sequences},
        preemptions=made.simulated.preemptions, requests=len(load.requests), timeline=timeline(made.simulated),
        assumptions=assumptions, unknown=unknown,
        notes=(*_notes(one, load, numbers, capacity), *_launch_notes(one, fleet)),
        launch=launch_line(one, layout) if runs else None,
        check=bench_line(one, load.words, len(load.requests)) if runs else None, confidence=confidence,
    )  # fmt: skip


def _quantiles(estimates: Mapping[str, Estimate], name: str) -> Quantiles | None:
    parts = ("mean", "p50", "p90", "p99")
    if any(f"{name}.{part}" not in estimates for part in parts):
        return None
    return Quantiles(*(estimates[f"{name}.{part}"] for part in parts))


def cost_per_million(throughput: Estimate, devices: int, price: Instance | None) -> Estimate | None:
    """US dollars per million output tokens."""
    if price is None or throughput.value <= 0:
        return None
    usd_per_s = price.usd_per_device_hour * devices / SECONDS_PER_HOUR
    value, low, high = (usd_per_s / rate * 1e6 for rate in (throughput.value, throughput.high, throughput.low))
    return Estimate(value, low, high, "USD")


def _verdicts(estimates: Mapping[str, Estimate], limits: Limits) -> dict[str, str]:
    """Whether 90 % of the requests and of the gaps are within each limit."""
    asked = (("ttft_ms", limits.ttft_ms, "ttft_ms.p90"), ("itl_ms", limits.itl_ms, "tpot_ms.p90"))
    return {
        name: str(verdict(estimates[column], limit))
        for name, limit, column in asked if limit is not None and column in estimates
    }  # fmt: skip


def _notes(one: Replica, load: Load, numbers: Mapping[str, float], capacity: Estimate | None) -> tuple[str, ...]:
    notes = []
    rate = load.words.get("rate") or (load.requests.rate if load.whole else None)
    if capacity is not None and rate is not None and rate > capacity.value:
        notes.append(
            f"{rate:.3g} requests/s are more than the {capacity.value:.3g} that it can answer: the queue grows as long "
            "as they keep coming, and TTFT is that of the simulated ones only"
        )
    if one.one_stage.unseen:
        notes.append(f"nothing was measured on {one.device.id} in an engine: its spec sheet is all that is known")
    if numbers.get("prefix_hits"):
        notes.append(f"{100 * numbers['prefix_hits']:.0f} % of the prompt tokens were in the prefix cache")
    return tuple(notes)


def _launch_notes(one: Replica, fleet: Fleet) -> tuple[str, ...]:
    """What the engine's command leaves to the user."""
    if fleet.policy.static:
        return ("static batching is for comparison: no engine runs it, so there is no command",)
    if fleet.disaggregated is not None:
        return (
            "prefill and decode replicas are started one by one, with a connector for their caches and a router: see "
            "the engine's guide to disaggregated prefill",
        )
    note = checkpoint_note(one.one_stage.engine, one.dtype)
    return () if note is None else (note,)
