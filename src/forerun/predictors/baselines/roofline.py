"""The roofline predictor: physics, a spec sheet, and efficiencies that were fitted on one H200 (kernels.py).

Per op: the larger of arithmetic over peak and bytes over bandwidth, times what kernels of its class lose against that,
plus a floor per launch. Summed: device time. Launch costs summed: host time. Latency is the larger of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from forerun.device import Device, load_device
from forerun.graph.profile import CLASSES, Profile
from forerun.predictors.base import Predictor, Times
from forerun.predictors.laws.conformal import at_confidence
from forerun.predictors.laws.energy import back_to_back_ms, energy_j, energy_of_terms, plain_factors
from forerun.predictors.laws.host import COUNTED
from forerun.predictors.laws.kernels import COMPUTE, FLOOR_US, HOST_US, INNER_US, launch_costs, memory_loss
from forerun.predictors.laws.specs import op_roofline_s, roofline_ms
from forerun.predictors.laws.spreads import not_below
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from forerun.predictors.cases import Cases, TrainingCases

#: Interval factors for 90 %. Wider than our H200 rows need, since other chips and other hosts were not measured.
DEVICE_SPREAD = (0.55, 2.1)
HOST_SPREAD = (0.5, 2.2)
#: Energy follows time, and power at partial load differs from chip to chip.
ENERGY_SPREAD = (0.5, 2.2)


class RooflinePredictor(Predictor):
    """Predicts every device whose bandwidth and at least one peak are known."""

    name = "roofline"
    basis = "roofline"
    supports = frozenset({"confidence", "host", "runtime"})
    needs_fit = False
    calibrates = False

    def fit(self, cases: TrainingCases) -> Self:
        """There is nothing to learn."""
        return self

    def calibrate(self, held_out: pd.DataFrame, unseen_devices: pd.DataFrame | None = None) -> Self:
        """Its intervals are constants."""
        return self

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        run = [launch_costs(d, workload.runtime) for d in devices]
        weights = profile.repeat[:, None]
        compute, memory, kernels = op_roofline_s(profile, devices)
        floor_us = kernels @ (FLOOR_US[profile.classes] * profile.repeat)
        reached = np.maximum(*with_losses(profile, devices, compute, memory))
        floors_ms = floor_us * np.array([r.floor_share for r in run]) / 1e3
        device_ms = (reached * weights).sum(axis=1).T * 1e3 + floors_ms
        launch_us = HOST_US[profile.classes] @ (profile.repeat * ~profile.biases) + INNER_US * profile.inner_launches
        slowness = 1.0 if self.host_slowness is None else self.host_slowness
        host_us = slowness * np.array([launch_us * r.host_share + r.call_us for r in run])
        host_ms = np.broadcast_to(host_us / 1e3, device_ms.shape)
        latency_ms = np.maximum(device_ms, host_ms)
        return Times(
            latency_ms=latency_ms, device_ms=device_ms, host_ms=host_ms, roofline_ms=roofline_ms(profile, devices),
            energy_j=energy_j(profile, devices, latency_ms, device_ms, runtime=workload.runtime),
        )  # fmt: skip

    def spread(
        self, target: str, times: Times, profile: Profile, devices: Sequence[Device], workload: Workload
    ) -> np.ndarray:
        device, host, energy = (at_confidence(s, self.confidence) for s in (DEVICE_SPREAD, HOST_SPREAD, ENERGY_SPREAD))
        value = getattr(times, target)
        if target == "energy_j":
            return np.broadcast_to(np.array(energy), (*value.shape, 2))
        host_bound = (times.host_ms >= times.device_ms) & (target == "latency_ms")
        # Programs that are compiled as a whole move fewer bytes than the sum of their ops, so the roofline is no bound.
        least = np.where([d.traits.whole_programs for d in devices], 0.0, times.roofline_ms)
        return not_below(np.where(host_bound[..., None], np.array(host), np.array(device)), value, least)

    def op_times_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray:
        """Device time of one launch of every op, at the profile's first batch size."""
        least_compute, least_memory, kernels = op_roofline_s(profile, [device])
        compute, memory = with_losses(profile, [device], least_compute, least_memory)
        floor = FLOOR_US[profile.classes] * kernels[0] * launch_costs(device, workload.runtime).floor_share
        return np.maximum(compute, memory)[0, :, 0] * 1e3 + floor / 1e3

    def predict_cases(self, cases: Cases, host_slowness: np.ndarray | None = None) -> pd.DataFrame:
        """The same law over the operators of all cases at once."""
        import pandas as pd

        rows, ops = cases.rows, cases.ops
        names, place = np.unique(rows["device"].to_numpy(dtype=str), return_inverse=True)
        known = {name: load_device(name) for name in names}
        devices = [known[name] for name in rows["device"]]
        loss = np.stack([memory_loss(known[name]) for name in names])[place[cases.case], ops.classes]
        run = [launch_costs(d, r) for d, r in zip(devices, rows["runtime"], strict=True)]
        floor_share, host_share, call_us = np.array([(r.floor_share, r.host_share, r.call_us) for r in run]).T
        reached = cases.sum(np.maximum(ops.compute_s * COMPUTE[ops.classes], ops.memory_s * loss)) * 1e3
        device_ms = reached + cases.sum(FLOOR_US[ops.classes] * ops.launches) * floor_share / 1e3
        both_phases = cases.launches[:, : 2 * len(CLASSES)].reshape(-1, 2, len(CLASSES)).sum(axis=1)
        launch_us = both_phases @ HOST_US + INNER_US * cases.launches[:, COUNTED.index("inner")]
        slowness = 1.0 if host_slowness is None else host_slowness
        host_ms = (launch_us * host_share + call_us) / 1e3 * slowness
        latency_ms = np.maximum(device_ms, host_ms)
        factors = np.stack([plain_factors(d) for d in devices])
        seconds = back_to_back_ms(latency_ms, device_ms, devices, rows["runtime"].to_numpy(dtype=str)) / 1e3
        return pd.DataFrame({
            "predicted_latency_ms": latency_ms, "predicted_device_ms": device_ms, "predicted_host_ms": host_ms,
            "predicted_energy_j": energy_of_terms(cases.joules, factors, seconds, device_ms / 1e3),
        })  # fmt: skip


def with_losses(
    profile: Profile, devices: Sequence[Device], compute: np.ndarray, memory: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both roofline times multiplied by the losses of each op's kernel class on each device."""
    losses = np.stack([memory_loss(d) for d in devices])
    return compute * COMPUTE[profile.classes][:, None], memory * losses[:, profile.classes, None]
