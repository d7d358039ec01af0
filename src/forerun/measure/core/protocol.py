"""The timing protocol: the only place that defines how a call is measured. Any change is a new PROTOCOL_VERSION.

Eager PyTorch with its default TF32 setting. Up to 5 warm-up calls (0.5 s in total, at least 2), 30 timed calls, each
synchronised (fewer if a call is slow: 0.4 s in total, at least 5), an unsynchronised loop of 0.5 s (1 s on repeats) for
energy, memory in three ways, CUDA-graph replay, and the host's speed before and after. `latency_ms` is the mean wall
time of one synchronised call. Kernel times come from the profiler, in a separate process, since all launches after a
profiler session are slower.

A fit of a tabular model is timed at least once, and up to 10 times within a second in all; each starts from nothing, so
none warms up the next, and energy is measured over them.

A whole generation takes as long as many calls: 2 warm-ups, then 3 to 8 timed ones (0.6 s in total), over which energy
is measured too, then the first token alone, 3 to 5 times.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .energy import EnergySteps
from .errors import CacheHeldTwiceError, CapturePoisonedError, TooSlowError
from .host_probe import quick_probe
from .meters import Meter

PROTOCOL_VERSION = 2
WARMUP_CALLS, WARMUP_S, WARMUP_MIN = 5, 0.5, 2
TIMED_CALLS, TIMED_S, TIMED_MIN = 30, 0.4, 5
LOOP_S, REPEAT_LOOP_S = 0.5, 1.0
SLOW_CALL_S = 1.0  # longer calls are not measured: such a case would take as long as ten others
SLOW_GENERATION_S = 5.0
ONCE = (1, 1, 0.0)  # calls at most, at least, and the seconds for those between
FITS = (10, 1, 1.0)
GENERATIONS, FIRST_TOKENS = (8, 3, 0.6), (5, 3, 0.1)
GRAPH_LATENCY_MS, GRAPH_DECODE_MS = 60.0, 30.0  # no graph above this: launches are hidden, or the cache is large


@dataclass
class Call:
    """One measurable call. `restore` undoes its effect (a grown KV cache) without device work."""

    call: Callable[[], Any]
    restore: Callable[[], None] | None = None
    # Starts only after memory was read, since holding a KV cache's tensors would double the cache.
    hold: Callable[[], None] | None = None
    capturable: bool = True
    why_not_capturable: str = ""
    # Check first whether the call synchronises, since a broken capture disturbs the process. Hugging Face models
    # synchronise only outside a capture, so the check would be wrong for them.
    ask_before_capture: bool = True
    graph_limit_ms: float = GRAPH_LATENCY_MS
    limit_s: float = SLOW_CALL_S


@dataclass
class Fit(Call):
    """A whole fit of an estimator, which starts from nothing."""


@dataclass
class Generation(Call):
    """A whole generation of `new_tokens` tokens, which `call` makes."""

    first_token: Callable[[], Any] = lambda: None  # a generation of one token
    # The milliseconds of some decode steps without the generating loop, given what synchronises.
    bare_steps: Callable[[Callable[[], None]], list[float]] | None = None
    new_tokens: int = 1


def measure(case: Call, meter: Meter, repeat: int = 0, deadline: float | None = None) -> dict[str, Any]:
    """All results of one case except its kernels. Raises what the call raises. `spent_s` is the time of each part."""
    if isinstance(case, Generation):
        return _generation(case, meter)
    if isinstance(case, Fit):
        return _fit(case, meter)
    spent: dict[str, float] = {}
    at = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal at
        spent[name], at = time.perf_counter() - at, time.perf_counter()

    meter.reset_memory()
    results: dict[str, Any] = {"before_mb": meter.allocated_mb()}
    warmups, results["first_call_ms"] = _warm_up(case, meter)
    results["memory"] = meter.memory()
    lap("warm_up")
    if case.hold is not None:
        _hold(case, meter)
        lap("hold")
    gc.collect(0)
    gc.disable()
    try:
        results["host_probe_before"] = quick_probe(meter)
        results.update(_timed(case, meter))
        results["warmup_calls"] = warmups
        lap("timed")
        results.update(_loop(case, meter, results["latency_ms"] / 1e3, REPEAT_LOOP_S if repeat else LOOP_S))
        results.update(meter.state())
        results["host_probe_after"] = quick_probe(meter)
        lap("loop")
        results.update(_graph(case, meter, results["latency_ms"], deadline))
        lap("graph")
    finally:
        gc.enable()
    return {**results, "spent_s": spent}


def _hold(case: Call, meter: Meter) -> None:
    """Makes each call start from the same cache, which is held in addition to the one that the call makes."""
    assert case.hold is not None
    try:
        case.hold()
        case.call()
        meter.sync()
    except Exception as error:
        if "out of memory" not in str(error).lower():
            raise
        raise CacheHeldTwiceError("timing holds the KV cache twice, which does not fit; the call itself ran") from None


def _graph(case: Call, meter: Meter, latency_ms: float, deadline: float | None) -> dict[str, Any]:
    reason, graphs = "", meter.graphs()
    if graphs is None:
        return {"graph_ms": None, "graph_ms_reason": meter.why_no_graph}
    if not case.capturable:
        reason = case.why_not_capturable
    elif latency_ms > case.graph_limit_ms:
        reason = f"not captured: a call takes over {case.graph_limit_ms:.0f} ms"
    elif deadline is not None and time.perf_counter() > deadline:
        reason = "no time left for this case"
    if reason:
        return {"graph_ms": None, "graph_ms_reason": reason}
    try:
        return graphs.replay(case.call, case.restore, case.ask_before_capture)
    except CapturePoisonedError as error:
        return {"graph_ms": None, "graph_ms_reason": str(error), "poisoned": True}


def _warm_up(case: Call, meter: Meter) -> tuple[int, float]:
    """The number of warm-up calls, and the milliseconds of the first one."""
    first = 0.0
    begin = time.perf_counter()
    done = 0
    while done < WARMUP_CALLS and (done < WARMUP_MIN or time.perf_counter() - begin < WARMUP_S):
        at = time.perf_counter()
        case.call()
        meter.sync()
        done += 1
        took = time.perf_counter() - at
        first = first or 1e3 * took
        if done == WARMUP_MIN and took > case.limit_s:
            raise TooSlowError(f"one call takes {took:.2f} s, over the limit of {case.limit_s} s")
    return done, first


def _timed(case: Call, meter: Meter) -> dict[str, Any]:
    """Times of individual calls, by the wall clock and by device events."""
    wall: list[float] = []
    pairs = [(meter.timer(), meter.timer()) for _ in range(TIMED_CALLS)]
    events = [(start, end) for start, end in pairs if start is not None and end is not None]
    total = 0.0
    while len(wall) < TIMED_CALLS and (len(wall) < TIMED_MIN or total < TIMED_S):
        if case.restore is not None:
            case.restore()
        pair = events[len(wall)] if events else None
        meter.sync()
        begin = time.perf_counter()
        if pair is not None:
            pair[0].record()
        case.call()
        if pair is not None:
            pair[1].record()
        meter.sync()
        wall.append(1e3 * (time.perf_counter() - begin))
        total += wall[-1] / 1e3
    spread = summary(wall)
    device = [start.elapsed_time(end) for start, end in events[: len(wall)]]
    return {
        "latency_ms": spread["mean"],
        "wall_ms": spread,
        "event_ms": summary(device) if device else None,
        "timed_calls": len(wall),
    }


def _loop(case: Call, meter: Meter, call_s: float, loop_s: float) -> dict[str, Any]:
    """Back-to-back calls without synchronisation; energy between two counter steps, so their size does not matter."""
    watch = EnergySteps(meter)
    begin = time.perf_counter()
    calls, elapsed = 0, 0.0
    chunk = max(1, round(loop_s / call_s))
    try:
        while elapsed < loop_s:
            for _ in range(chunk):
                if case.restore is not None:
                    case.restore()
                case.call()
            meter.sync()
            calls += chunk
            elapsed = time.perf_counter() - begin
            chunk = max(1, int(1.02 * (loop_s - elapsed) * calls / elapsed) + 1)
    finally:
        watch.end()
    out: dict[str, Any] = {"loop_ms": 1e3 * elapsed / calls, "loop_calls": calls, "loop_s": elapsed}
    measured = watch.power()
    power = measured["power_w"]
    return {**out, "energy_j": None if power is None else power * elapsed / calls, **measured}


def _fit(case: Fit, meter: Meter) -> dict[str, Any]:
    """All results of a fit: the first one is the one whose memory is read."""
    meter.reset_memory()
    results: dict[str, Any] = {"before_mb": meter.allocated_mb(), "host_probe_before": quick_probe(meter)}
    at = time.perf_counter()
    watch = EnergySteps(meter)
    try:
        wall = _synchronised(case.call, meter, ONCE)
        results["memory"] = meter.memory()
        most, least, seconds = FITS
        wall += _synchronised(case.call, meter, (most - 1, least - 1, seconds - (time.perf_counter() - at)))
    finally:
        watch.end()
    elapsed = time.perf_counter() - at
    results |= {**meter.state(), "host_probe_after": quick_probe(meter)}
    spread, energy = summary(wall), watch.power("while it was timed")
    power = energy["power_w"]
    return {
        **results, "first_call_ms": wall[0], "latency_ms": spread["mean"], "wall_ms": spread, "event_ms": None,
        "timed_calls": len(wall), "warmup_calls": 0, "loop_ms": 1e3 * elapsed / len(wall), "loop_calls": len(wall),
        "loop_s": elapsed, "energy_j": None if power is None else power * elapsed / len(wall), **energy,
        "graph_ms": None, "graph_ms_reason": "a fit is not captured", "spent_s": {"timed": elapsed},
    }  # fmt: skip


def _generation(case: Generation, meter: Meter) -> dict[str, Any]:
    """All results of a whole generation except its kernels: the whole, its first token, and each token after that."""
    begin = time.perf_counter()
    meter.reset_memory()
    results: dict[str, Any] = {"before_mb": meter.allocated_mb()}
    (results["first_call_ms"],) = _synchronised(case.call, meter, ONCE)
    results["memory"] = meter.memory()
    (results["second_call_ms"],) = _synchronised(case.call, meter, ONCE)
    if results["second_call_ms"] > 1e3 * case.limit_s:
        raise TooSlowError(f"a generation takes {results['second_call_ms'] / 1e3:.2f} s, the limit is {case.limit_s} s")
    results["warmup_calls"] = 2
    spent = {"warm_up": time.perf_counter() - begin}
    gc.collect(0)
    gc.disable()
    try:
        results["host_probe_before"] = quick_probe(meter)
        watch = EnergySteps(meter)
        at = time.perf_counter()
        try:
            wall = _synchronised(case.call, meter, GENERATIONS)
        finally:
            watch.end()
        elapsed = time.perf_counter() - at
        results.update(meter.state())
        spent["timed"] = time.perf_counter() - at
        case.first_token()
        first = _synchronised(case.first_token, meter, FIRST_TOKENS)
        results.update(_bare(case, meter))
        results["host_probe_after"] = quick_probe(meter)
    finally:
        gc.enable()
    spread, first_ms = summary(wall), sum(first) / len(first)
    energy = watch.power("while it was timed")
    power = energy["power_w"]
    return {
        **results, "latency_ms": spread["mean"], "wall_ms": spread, "event_ms": None, "timed_calls": len(wall),
        "tokens": case.new_tokens, "first_token_ms": first_ms, "first_token_calls": len(first),
        "token_ms": (spread["mean"] - first_ms) / (case.new_tokens - 1) if case.new_tokens > 1 else None,
        "loop_ms": 1e3 * elapsed / len(wall), "loop_calls": len(wall), "loop_s": elapsed,
        "energy_j": None if power is None else power * elapsed / len(wall), **energy,
        "graph_ms": None, "graph_ms_reason": case.why_not_capturable,
        "spent_s": {**spent, "first_token": time.perf_counter() - at - elapsed},
    }  # fmt: skip


def _synchronised(call: Callable[[], Any], meter: Meter, counts: tuple[int, int, float]) -> list[float]:
    """The milliseconds of each of several calls: at most the first count, and between the second and it within so many
    seconds."""
    most, least, seconds = counts
    taken: list[float] = []
    begin = time.perf_counter()
    while len(taken) < most and (len(taken) < least or time.perf_counter() - begin < seconds):
        meter.sync()
        at = time.perf_counter()
        call()
        meter.sync()
        taken.append(1e3 * (time.perf_counter() - at))
    return taken


def _bare(case: Generation, meter: Meter) -> dict[str, Any]:
    """Steps of the model without the loop, which show what the loop costs; None where a cache is of another kind."""
    if case.bare_steps is None:
        return {"bare_token_ms": None, "bare_token_reason": "an encoder-decoder has no bare steps"}
    try:
        case.bare_steps(meter.sync)
        taken = case.bare_steps(meter.sync)
    except Exception as error:
        if meter.is_broken_by(error):
            raise
        return {"bare_token_ms": None, "bare_token_reason": f"{type(error).__name__}: {error}"[:200]}
    return {"bare_token_ms": sum(taken) / len(taken)}


def summary(values: list[float]) -> dict[str, float]:
    """Mean, median, min, p90 and p99 (nearest rank)."""
    ordered = sorted(values)
    n = len(ordered)

    def rank(q: float) -> float:
        return ordered[min(n - 1, int(q * n))]

    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return {"mean": sum(ordered) / n, "median": median, "min": ordered[0], "p90": rank(0.9), "p99": rank(0.99)}
