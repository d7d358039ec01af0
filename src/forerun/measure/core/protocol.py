"""The timing protocol: the one place that says how a call is measured. Any change to it is a new PROTOCOL_VERSION.

Eager PyTorch, TF32 as PyTorch sets it. Up to 5 warm-up calls, 30 timed calls synchronised one by one (fewer when a call
is slow: 0.6 s of them, never under 5), a free-running loop of 0.5 s (1 s on repeats) for energy, memory three ways,
kernel times from the profiler, CUDA-graph replay. `latency_ms` is the mean wall time of one synchronised call.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import CapturePoisonedError, TooSlowError
from .kernels import graph_replay, kernel_times, timer
from .meters import Meter

PROTOCOL_VERSION = 1
WARMUP_CALLS, WARMUP_S, WARMUP_MIN = 5, 1.0, 2
TIMED_CALLS, TIMED_S, TIMED_MIN = 30, 0.6, 5
LOOP_S, REPEAT_LOOP_S = 0.5, 1.0
SLOW_CALL_S = 1.0  # a call beyond this is not measured: one such case would cost as much as ten others
GRAPH_LATENCY_MS = 120.0  # above it the launches are hidden anyway
TICK_WAIT_S = 0.12  # how long to wait for the energy counter's next step, at each end of the loop


@dataclass
class Call:
    """One measurable call. `restore` undoes its effect (a grown KV cache) and costs nothing on the device."""

    call: Callable[[], Any]
    restore: Callable[[], None] | None = None
    # What only starts after memory was read: holding a KV cache's tensors would double the cache.
    hold: Callable[[], None] | None = None
    capturable: bool = True
    why_not_capturable: str = ""
    # Ask first whether the call synchronises, since a broken capture disturbs the process. Hugging Face models
    # synchronise outside a capture only, so for them the question gives the wrong answer.
    ask_before_capture: bool = True


def measure(case: Call, meter: Meter, repeat: int = 0, deadline: float | None = None) -> dict[str, Any]:
    """All the results of one case. Raises what the call raises."""
    meter.reset_memory()
    results: dict[str, Any] = {"before_mb": meter.allocated_mb()}
    warmups = _warm_up(case, meter)
    results["memory"] = meter.memory()
    if case.hold is not None:
        case.hold()
        case.call()
        meter.sync()
    gc.collect(0)
    gc.disable()
    try:
        results.update(_timed(case, meter))
        results["warmup_calls"] = warmups
        results.update(_loop(case, meter, results["latency_ms"] / 1e3, REPEAT_LOOP_S if repeat else LOOP_S))
        results.update(meter.state())
        if meter.kind != "cuda":
            results.update(kernel_ms=None, kernel_ms_reason=meter.why_no_kernels)
            results.update(graph_ms=None, graph_ms_reason=meter.why_no_graph)
            return results
        results.update(kernel_times(case.call, case.restore, calls=1 if results["latency_ms"] > 60 else 2))
        if deadline is not None and time.perf_counter() > deadline:
            results.update(graph_ms=None, graph_ms_reason="no time left for this case")
        elif results["latency_ms"] > GRAPH_LATENCY_MS:
            results.update(graph_ms=None, graph_ms_reason=f"not asked of calls over {GRAPH_LATENCY_MS:.0f} ms")
        elif not case.capturable:
            results.update(graph_ms=None, graph_ms_reason=case.why_not_capturable)
        else:
            try:
                results.update(graph_replay(case.call, case.restore, case.ask_before_capture))
            except CapturePoisonedError as error:
                results.update(graph_ms=None, graph_ms_reason=str(error), poisoned=True)
    finally:
        gc.enable()
    return results


def _warm_up(case: Call, meter: Meter) -> int:
    begin = time.perf_counter()
    done = 0
    while done < WARMUP_CALLS and (done < WARMUP_MIN or time.perf_counter() - begin < WARMUP_S):
        at = time.perf_counter()
        case.call()
        meter.sync()
        done += 1
        took = time.perf_counter() - at
        if done == WARMUP_MIN and took > SLOW_CALL_S:
            raise TooSlowError(f"one call takes {took:.2f} s, over the limit of {SLOW_CALL_S} s")
    return done


def _timed(case: Call, meter: Meter) -> dict[str, Any]:
    """Calls timed one by one, by the wall clock and by the device's events."""
    wall: list[float] = []
    events: list[tuple[Any, Any]] = []
    if meter.kind == "cuda":
        events = [(timer(), timer()) for _ in range(TIMED_CALLS)]
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
    """Calls one after another without waiting; energy between two steps of the counter, so its step does not matter."""

    def run(calls: int) -> None:
        for _ in range(calls):
            if case.restore is not None:
                case.restore()
            case.call()
        meter.sync()

    few = max(1, int(0.005 / call_s))
    first, has_energy = _next_step(meter, lambda: run(few))
    begin = time.perf_counter()
    calls, elapsed = 0, 0.0
    chunk = max(1, round(loop_s / call_s))
    while elapsed < loop_s:
        run(chunk)
        calls += chunk
        elapsed = time.perf_counter() - begin
        chunk = max(1, int(1.05 * (loop_s - elapsed) * calls / elapsed))
    each_s = elapsed / calls
    out: dict[str, Any] = {"loop_ms": 1e3 * each_s, "loop_calls": calls, "loop_s": elapsed}
    if not has_energy:
        return {**out, "energy_j": None, "power_w": None, "energy_reason": meter.why_no_energy}
    last, _ = _next_step(meter, lambda: run(few))
    joules, seconds = (last[0] - first[0]) / 1e3, last[1] - first[1]
    if joules <= 0:
        return {**out, "energy_j": None, "power_w": None, "energy_reason": "the energy counter did not move"}
    power = joules / seconds
    return {**out, "energy_j": power * each_s, "power_w": power, "energy_window_s": seconds}


def _next_step(meter: Meter, work: Callable[[], None]) -> tuple[tuple[float, float], bool]:
    """Works on until the energy counter steps: (millijoules, time) at that moment, and whether there is a counter."""
    before = meter.energy_mj()
    if before is None:
        return (0.0, time.perf_counter()), False
    until = time.perf_counter() + TICK_WAIT_S
    while True:
        work()
        now, at = meter.energy_mj(), time.perf_counter()
        if now is None or now != before or at > until:
            return (now if now is not None else before, at), True


def summary(values: list[float]) -> dict[str, float]:
    """Mean, median, min, p90 and p99 (nearest rank)."""
    ordered = sorted(values)
    n = len(ordered)

    def rank(q: float) -> float:
        return ordered[min(n - 1, int(q * n))]

    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return {"mean": sum(ordered) / n, "median": median, "min": ordered[0], "p90": rank(0.9), "p99": rank(0.99)}
