"""Energy of a call: idle and working power over time, plus energy per operation and byte, capped at the power limit.

One law for every predictor: terms in joules (the energy at the power limit), times a factor each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.device import Device
from forerun.graph.profile import UNITS, Profile
from forerun.predictors.laws.specs import on_host, power_limits, power_slowdown, roofline_ms, spec_matrix
from forerun.runtimes.registry import USUAL, replays

#: The terms that have a factor: the power limit over the whole call, then each kind of arithmetic and the bytes at the
#: energy per operation or byte that the power limit allows at full rate, then the power limit over the time that
#: kernels work.
TERMS = ("waiting", "fp64", "fp32", "tf32", "half", "fp8", "vector", "bytes", "working")
_TERM_OF_UNIT = {"fp64": 1, "fp32": 2, "tf32": 3, "fp16": 4, "bf16": 4, "fp8": 5, "vector": 6, "int8": 4}
#: A single call waits for its own end. In a loop, over which energy is measured, the next one starts sooner: by these
#: microseconds in the median of our H200 rows (median of latency_ms - loop_ms), on which predictors are evaluated too.
SYNCHRONISED_US = 156.0
#: Seconds of a kernel in which it starts and ends, most of a GPU idle: CUDA graphs of small kernels keep an H200 busy
#: throughout and draw half of what large ones do.
START_S = 1e-6
#: Interval factors for 90 % of power at the same time: power at partial load differs from chip to chip.
POWER_SPREAD = (0.5, 2.0)
# Of a trial fit to calls on an H200; those of the shipped weights lie within a quarter of them. 119 W of waiting and
# 287 W more while a kernel works, half-precision tensor work 0.79 J per TFLOP, TF32 convolutions 1.5, plain fp32 5.7,
# elementwise work 16, 0.05 J per GB moved. Divided by what the power limit buys at the rate it allows (700 W / 819
# TFLOP/s = 0.85 J, and so on), they carry over to other chips.
FACTORS = np.array([0.17, 0.75, 0.43, 0.9, 0.92, 0.985, 1.55, 0.34, 0.41])


def factors_of(device: Device, fitted: np.ndarray) -> np.ndarray:
    """Fitted factors for a device: that of waiting follows the device's own waiting power where it was measured
    (`static_w`), as the fitted one stands to that of the H200, which it was fitted on."""
    out = fitted.copy()
    if device.tdp_w is not None and "static_w" in device.calibrated:
        out[0] *= device.calibrated["static_w"] / device.tdp_w / FACTORS[0]
    return out


def plain_factors(device: Device) -> np.ndarray:
    """FACTORS, with the power of waiting where it was measured."""
    return factors_of(device, FACTORS)


def waiting_w(device: Device) -> float | None:
    """The power of a device that waits for work, in watts; None where its power limit is not known."""
    return None if device.tdp_w is None else float(plain_factors(device)[0] * device.tdp_w)


def energy_j(
    profile: Profile, devices: Sequence[Device], latency_ms: np.ndarray, device_ms: np.ndarray,
    factors: np.ndarray | None = None, runtime: str = USUAL,
) -> np.ndarray:  # fmt: skip
    """Joules per call over [batch sizes, devices]; nan where the device's power limit is not known."""
    used = np.stack([factors_of(d, FACTORS if factors is None else factors) for d in devices])
    in_loop_s = back_to_back_ms(latency_ms, device_ms, devices, runtime) / 1e3
    return energy_of_terms(energy_terms(profile, devices), used, in_loop_s, device_ms / 1e3)


def back_to_back_ms(
    latency_ms: np.ndarray | float, device_ms: np.ndarray | float, devices: Sequence[Device], runtime: str | np.ndarray
) -> np.ndarray:
    """Time of a call in a loop that does not wait for each call to end, over [..., devices]: as long as the device
    needs, and never less than half the latency; on a CPU the latency. CUDA graphs follow each other without a gap. The
    runtime is that of all calls, or of each along the devices."""
    waits = np.where(on_host(devices), 0.0, np.where(replays(runtime), np.inf, SYNCHRONISED_US / 1e3))
    return np.clip(latency_ms - waits, np.clip(device_ms, latency_ms / 2, latency_ms), latency_ms)


def power_edges(watts: float, device: Device, spread: tuple[float, float]) -> tuple[float, float]:
    """The ends of an interval of power: between the device's idle power and its limit."""
    least = min(watts, max(watts * spread[0], device.idle_w or 0))
    return least, max(watts, min(device.tdp_w or watts, watts * spread[1]))


def energy_terms(profile: Profile, devices: Sequence[Device]) -> np.ndarray:
    """[batch sizes, devices, TERMS] of a call that lasts one second and keeps the device busy throughout; nan where a
    power limit is not known."""
    peaks, bandwidth = spec_matrix(devices)
    limit = power_limits(devices)
    slowdown = power_slowdown(devices)
    flops, moved = profile.work
    out = np.zeros((len(profile.batches), len(devices), len(TERMS)))
    out[..., 0] = limit
    for u, unit in enumerate(UNITS):
        if flops[u].any():
            out[..., _TERM_OF_UNIT[unit]] += np.outer(flops[u], limit * slowdown[u] / (peaks[u] * 1e12))
    out[..., -2] = np.outer(moved, limit / (bandwidth * 1e9))
    out[..., -1] = limit * _working_share(profile, devices)
    return out


def _working_share(profile: Profile, devices: Sequence[Device]) -> np.ndarray:
    """[batch sizes, devices]: the share of its busy time in which a device does more than start kernels and end them,
    by the roofline."""
    working = roofline_ms(profile, devices) / 1e3
    starts = np.where(on_host(devices), 0.0, START_S * (profile.kernels @ profile.repeat))
    return working / np.maximum(working + starts, 1e-15)


def terms_over_time(terms: np.ndarray, seconds: np.ndarray, busy_s: np.ndarray) -> np.ndarray:
    """Terms of calls of `seconds`, with the device busy for `busy_s` of them: the first and the last grow with time."""
    busy = np.minimum(busy_s, seconds)
    waiting, working = terms[..., :1] * seconds[..., None], terms[..., -1:] * busy[..., None]
    return np.concatenate([waiting, terms[..., 1:-1], working], axis=-1)


def energy_of_terms(terms: np.ndarray, factors: np.ndarray, seconds: np.ndarray, busy_s: np.ndarray) -> np.ndarray:
    """Joules of calls, never over the power limit."""
    return np.minimum((terms_over_time(terms, seconds, busy_s) * factors).sum(axis=-1), terms[..., 0] * seconds)
