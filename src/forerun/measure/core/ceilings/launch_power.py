"""Launch cost, and the power of a device when idle and under full load."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from ..energy import EnergySteps
from ..host_probe import quick_probe
from ..meters import Meter
from . import bandwidth, peaks
from .effort import Effort, best_ms, calls_in

LAUNCHES, ROUNDS, WAITS = 250, 20, 200
IDLE_S, FULL_S, SETTLE_S = 3.0, 3.0, 1.0
STREAM = 2**30  # bytes: larger than every cache


def launch(meter: Meter, effort: Effort) -> dict[str, Any]:
    """Microseconds per tiny kernel: launched by the host, run on the device, and synchronised one by one."""
    import torch

    with torch.inference_mode():
        a = torch.ones(16, device=meter.device)
        b = torch.ones(16, device=meter.device)
        paced = quick_probe(meter, LAUNCHES, max(3, round(effort.of(ROUNDS))))["launch_us"]
        waits = []
        for _ in range(WAITS):
            meter.sync()
            begin = time.perf_counter()
            a.add_(b)
            meter.sync()
            waits.append(1e6 * (time.perf_counter() - begin))
        out = {"launch_us": paced, "synchronised_us": statistics.median(waits), "kernel_us": None}
        graphs = meter.graphs()
        if graphs is None:
            return {**out, "kernel_reason": meter.why_no_graph}
        replayed = graphs.replay(lambda: [a.add_(b) for _ in range(LAUNCHES)], None, False)
        if replayed["graph_ms"] is None:
            return {**out, "kernel_reason": replayed["graph_ms_reason"]}
        return {**out, "kernel_us": 1e3 * (replayed.get("graph_min_ms") or replayed["graph_ms"]) / LAUNCHES}


def idle(meter: Meter, effort: Effort, settle: bool = False) -> dict[str, Any]:
    """The power of the idle device."""
    if meter.energy_mj() is None:
        return {"power_w": None, "energy_reason": meter.why_no_energy}
    time.sleep(effort.of(SETTLE_S) if settle else 0.0)
    watch = EnergySteps(meter)
    time.sleep(effort.of(IDLE_S))
    watch.end()
    return {**watch.power("while the device rested"), **meter.state()}


def full(meter: Meter, effort: Effort, reached: dict[str, Any]) -> dict[str, Any]:
    """Power under matmuls of the device's fastest dtype, and under streaming from memory.

    `reached` has the matmul rates by dtype, with the shape of the best sustained rate.
    """
    import torch

    if meter.energy_mj() is None:
        return {"power_w": None, "energy_reason": meter.why_no_energy}
    out: dict[str, Any] = {}
    dtype = "fp16" if meter.prefers_half else "fp32"
    shape = reached.get(dtype, {}).get("shape")
    with torch.inference_mode():
        if shape:
            about = {"dtype": dtype, "shape": shape}
            out["matmul"] = {**about, **_under(meter, effort, peaks.matmul(meter, dtype, shape))}
            meter.reset_memory()
        out["streaming"] = _under(meter, effort, bandwidth.scale(bandwidth.numbers(meter, STREAM)))
    return out


def _under(meter: Meter, effort: Effort, call: Callable[[], Any]) -> dict[str, Any]:
    """Average power over a loop of calls, and the clocks in its middle."""
    ms, seconds = best_ms(call, meter, effort.of(0.1)), effort.of(FULL_S)
    meter.loop_ms(call, calls_in(ms, seconds / 4))
    watch = EnergySteps(meter)
    try:
        meter.loop_ms(call, calls_in(ms, seconds))
    finally:
        watch.end()
    for _ in range(calls_in(ms, 0.2)):  # launched without waiting, so that the clocks are read under load
        call()
    state = meter.state()
    meter.sync()
    return {**watch.power(), **state}
