"""The roofline predictor: physics and a spec sheet, nothing learned.

Per op: the larger of arithmetic over peak and bytes over bandwidth, times what kernels of its class lose against that,
plus a floor per launch. Summed: device time. Launch costs summed: host time. Latency is the larger of the two.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.profile import UNITS, Profile
from forerun.predictors.base import Times
from forerun.predictors.energy import energy_j
from forerun.predictors.kernels import COMPUTE, FLOOR_US, HOST_US, memory_loss, runtime
from forerun.workload import Workload

#: Wider than what our H200 rows need (benchmarks/h200_accuracy.py): other chips and other hosts were not measured.
DEVICE_SPREAD = (0.55, 2.1)
HOST_SPREAD = (0.5, 2.2)


class RooflinePredictor:
    """Answers for every device whose bandwidth and at least one peak are known."""

    basis = "roofline"

    def fit(self, dataset: Any) -> RooflinePredictor:
        """There is nothing to learn."""
        return self

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        peaks, bandwidth = spec_matrix(devices)
        run = [runtime(d, workload.runtime) for d in devices]
        weights = profile.repeat[:, None]
        device_ms = np.empty((len(profile.batches), len(devices)))
        light_ms = np.empty_like(device_ms)
        floor_us = (FLOOR_US[profile.classes] * profile.kernels * profile.repeat).sum()
        for d, device in enumerate(devices):
            compute, memory = op_roofline_s(profile, peaks[:, d], bandwidth[d])
            light_ms[:, d] = (np.maximum(compute, memory) * weights).sum(axis=0) * 1e3
            reached = np.maximum(*with_losses(profile, device, compute, memory))
            device_ms[:, d] = (reached * weights).sum(axis=0) * 1e3 + floor_us * run[d].floor_share / 1e3
        launch_us = (HOST_US[profile.classes] * profile.repeat).sum()
        host_ms = np.broadcast_to(np.array([launch_us * r.host_share + r.call_us for r in run]) / 1e3, device_ms.shape)
        latency_ms = np.maximum(device_ms, host_ms)
        return Times(
            latency_ms=latency_ms,
            device_ms=device_ms,
            host_ms=host_ms,
            light_ms=light_ms,
            energy_j=energy_j(profile, devices, latency_ms, peaks, bandwidth),
            latency_spread=_spread(latency_ms, device_ms, host_ms, light_ms),
            device_spread=_bounded(DEVICE_SPREAD, device_ms, light_ms),
        )

    def op_times_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray:
        """Device time of one launch of every op, at the profile's first batch size."""
        peaks, bandwidth = spec_matrix([device])
        compute, memory = with_losses(profile, device, *op_roofline_s(profile, peaks[:, 0], bandwidth[0]))
        floor = FLOOR_US[profile.classes] * profile.kernels * runtime(device, workload.runtime).floor_share
        return np.maximum(compute, memory)[:, 0] * 1e3 + floor / 1e3


def op_roofline_s(profile: Profile, peaks: np.ndarray, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of one launch of every op [ops, batch sizes] at the speed of light: by arithmetic, by memory."""
    return profile.flops / (peaks[profile.units][:, None] * 1e12), profile.bytes / (bandwidth * 1e9)


def with_losses(
    profile: Profile, device: Device, compute: np.ndarray, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both roofline times with what kernels of each op's class lose against them on this device."""
    return compute * COMPUTE[profile.classes][:, None], memory * memory_loss(device)[profile.classes][:, None]


def _bounded(spread: tuple[float, float], value: np.ndarray, light: np.ndarray) -> np.ndarray:
    """Interval factors, the lower one no lower than the speed of light allows."""
    low = np.maximum(spread[0], np.divide(light, value, out=np.zeros_like(value), where=value > 0))
    return np.stack([np.minimum(low, 1.0), np.full_like(value, spread[1])], axis=-1)


def _spread(latency: np.ndarray, device: np.ndarray, host: np.ndarray, light: np.ndarray) -> np.ndarray:
    host_bound = (host >= device)[..., None]
    return np.where(host_bound, _bounded(HOST_SPREAD, latency, light), _bounded(DEVICE_SPREAD, latency, light))


def spec_matrix(devices: Sequence[Device]) -> tuple[np.ndarray, np.ndarray]:
    return _spec_matrix(tuple(devices))


@functools.lru_cache(maxsize=64)
def _spec_matrix(devices: tuple[Device, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Peaks in TFLOP/s over [UNITS, devices] and bandwidth in GB/s; an unknown peak is that of the next best units."""
    peaks = np.empty((len(UNITS), len(devices)))
    bandwidth = np.empty(len(devices))
    for d, device in enumerate(devices):
        problem = spec_problem(device)
        if problem is not None:
            raise ForerunError(problem)
        bandwidth[d] = device.bandwidth_gbs
        peaks[:, d] = [unit_peak(device, u) for u in UNITS]
    return peaks, bandwidth


def spec_problem(device: Device) -> str | None:
    """What the spec sheet lacks for any prediction, as a sentence, or None."""
    if device.bandwidth_gbs is not None and device.peak_tflops:
        return None
    lacking = "memory bandwidth (bandwidth_gbs)" if device.peak_tflops else "arithmetic peaks (such as fp32_tflops)"
    return f"{device.id} has no known {lacking}; give them in a .yaml with base: {device.id}"


#: Units to use in turn where a device's own peak is not known.
_NEXT_BEST = {
    "fp64": ("fp64", "fp32", "fp16", "bf16"), "fp32": ("fp32", "tf32", "bf16", "fp16"),
    "tf32": ("tf32", "fp32", "bf16", "fp16"), "fp16": ("fp16", "bf16", "fp32"), "bf16": ("bf16", "fp16", "fp32"),
    "fp8": ("fp8", "fp16", "bf16", "fp32"), "vector": ("fp32", "bf16", "fp16"),
}  # fmt: skip


def unit_peak(device: Device, unit: str) -> float:
    """The device's TFLOP/s for a unit, or those of the next best units that are known."""
    known = (device.peak(d) for d in _NEXT_BEST[unit])
    return next((p for p in known if p is not None), None) or max(device.peak_tflops.values())


def substituted(device: Device, unit: str) -> str | None:
    """The units that stand in for an unknown peak, or None when the peak is known."""
    first = next((d for d in _NEXT_BEST[unit] if device.peak(d) is not None), None)
    return None if first in (unit, None) or unit == "vector" else first
