"""The roofline predictor: physics and a spec sheet, nothing learned.

Per op: the larger of arithmetic over peak and bytes over bandwidth, times what kernels of its class lose against that,
plus a floor per launch. Summed: device time. Launch costs summed: host time. Latency is the larger of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from forerun.device import Device
from forerun.graph.profile import Profile
from forerun.predictors.base import Times
from forerun.predictors.energy import energy_j
from forerun.predictors.kernels import COMPUTE, FLOOR_US, HOST_US, memory_loss, runtime
from forerun.predictors.specs import op_roofline_s
from forerun.workload import Workload

#: Wider than what our H200 rows need: other chips and other hosts were not measured.
DEVICE_SPREAD = (0.55, 2.1)
HOST_SPREAD = (0.5, 2.2)
#: Energy follows time, and power at partial load differs from chip to chip.
ENERGY_SPREAD = (0.5, 2.2)


class RooflinePredictor:
    """Answers for every device whose bandwidth and at least one peak are known."""

    basis = "roofline"

    def fit(self, dataset: Any) -> RooflinePredictor:
        """There is nothing to learn."""
        return self

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        run = [runtime(d, workload.runtime) for d in devices]
        weights = profile.repeat[:, None]
        compute, memory, kernels = op_roofline_s(profile, devices)
        floor_us = kernels @ (FLOOR_US[profile.classes] * profile.repeat)
        light_ms = (np.maximum(compute, memory) * weights).sum(axis=1).T * 1e3
        reached = np.maximum(*with_losses(profile, devices, compute, memory))
        floors_ms = floor_us * np.array([r.floor_share for r in run]) / 1e3
        device_ms = (reached * weights).sum(axis=1).T * 1e3 + floors_ms
        launch_us = (HOST_US[profile.classes] * profile.repeat * ~profile.biases).sum()
        host_ms = np.broadcast_to(np.array([launch_us * r.host_share + r.call_us for r in run]) / 1e3, device_ms.shape)
        latency_ms = np.maximum(device_ms, host_ms)
        return Times(
            latency_ms=latency_ms,
            device_ms=device_ms,
            host_ms=host_ms,
            light_ms=light_ms,
            energy_j=energy_j(profile, devices, latency_ms, device_ms),
            latency_spread=_spread(latency_ms, device_ms, host_ms, light_ms),
            device_spread=_bounded(DEVICE_SPREAD, device_ms, light_ms),
            energy_spread=np.broadcast_to(np.array(ENERGY_SPREAD), (*device_ms.shape, 2)),
        )

    def op_times_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray:
        """Device time of one launch of every op, at the profile's first batch size."""
        light_compute, light_memory, kernels = op_roofline_s(profile, [device])
        compute, memory = with_losses(profile, [device], light_compute, light_memory)
        floor = FLOOR_US[profile.classes] * kernels[0] * runtime(device, workload.runtime).floor_share
        return np.maximum(compute, memory)[0, :, 0] * 1e3 + floor / 1e3


def with_losses(
    profile: Profile, devices: Sequence[Device], compute: np.ndarray, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both roofline times with what kernels of each op's class lose against them on each device."""
    losses = np.stack([memory_loss(d) for d in devices])
    return compute * COMPUTE[profile.classes][:, None], memory * losses[:, profile.classes, None]


def _bounded(spread: tuple[float, float], value: np.ndarray, light: np.ndarray) -> np.ndarray:
    """Interval factors, the lower one no lower than the speed of light allows."""
    low = np.maximum(spread[0], np.divide(light, value, out=np.zeros_like(value), where=value > 0))
    return np.stack([np.minimum(low, 1.0), np.full_like(value, spread[1])], axis=-1)


def _spread(latency: np.ndarray, device: np.ndarray, host: np.ndarray, light: np.ndarray) -> np.ndarray:
    host_bound = (host >= device)[..., None]
    return np.where(host_bound, _bounded(HOST_SPREAD, latency, light), _bounded(DEVICE_SPREAD, latency, light))
