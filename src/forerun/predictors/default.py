"""The default predictor: physics, what measurements say it misses, and how sure that is.

Device time: every op's roofline times a learned efficiency. Host time: what each launch costs. Latency: near the larger
of the two. Energy: waiting, arithmetic and bytes. Each in an interval calibrated on families that were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forerun.device import Device
from forerun.graph.features import VARIANTS
from forerun.graph.profile import CLASSES, UNITS, Profile
from forerun.predictors import energy as energy_law
from forerun.predictors.base import Times
from forerun.predictors.features import op_table
from forerun.predictors.host import launch_counts, launches, smooth_max
from forerun.predictors.kernels import runtime
from forerun.predictors.roofline import RooflinePredictor
from forerun.predictors.specs import op_roofline_s, spec_matrix
from forerun.predictors.weights import Weights, load_weights
from forerun.workload import Workload

SHIPPED = Path(__file__).parent / "shipped"
#: How much wider an interval is, in logarithms, for each thing that was not in the training data.
_UNSEEN = {"device": 1.6, "ops": 1.5, "dtype": 1.3}
_FIELDS = (
    "latency_ms", "device_ms", "host_ms", "light_ms", "energy_j", "latency_spread", "device_spread", "energy_spread",
)  # fmt: skip
_LEARNED_KINDS = {"gpu": "gpu", "soc": "gpu", "cpu": "cpu"}


class DefaultPredictor:
    """Answers for every device whose bandwidth and one peak are known; for kinds without weights, by roofline."""

    basis = "learned"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        weights: Weights | None = None,
        confidence: float = 0.9,
        host_slowness: float = 1.0,
    ) -> None:
        self.folder, self.given = folder or SHIPPED, weights
        self.confidence, self.host_slowness = confidence, host_slowness

    @property
    def weights(self) -> Weights:
        return self.given or load_weights(self.folder)

    @property
    def provenance(self) -> dict[str, Any]:
        """The rows behind the weights, and their dates."""
        return dict(self.weights.provenance)

    def basis_for(self, device: Device) -> str:
        return "learned" if self._network(device) is not None else "roofline"

    def fit(self, dataset: Weights) -> DefaultPredictor:
        """Takes the weights that training made of a data set (`training.default.train`)."""
        self.given = dataset
        return self

    def save(self, folder: Path) -> None:
        self.weights.save(folder)

    @classmethod
    def load(cls, folder: Path) -> DefaultPredictor:
        return cls(folder)

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        parts = [self._one(profile, device, workload) for device in devices]
        return Times(**{name: np.stack([getattr(p, name) for p in parts], axis=1) for name in _FIELDS})

    def op_times_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray:
        """Device time of one launch of every op, at the profile's first batch size."""
        network = self._network(device)
        if network is None:
            return RooflinePredictor().op_times_ms(profile, device, workload)
        batches = len(profile.batches)
        return network.seconds(op_table(profile, device)).reshape(-1, batches)[:, 0] * 1e3

    def unfamiliar(self, profile: Profile, device: Device, workload: Workload) -> list[tuple[str, str]]:
        """(kind, sentence) for everything about a case that no measurement behind the weights shows."""
        seen = self.weights.domain
        found = []
        if self._network(device) is None:
            return [("device", f"nothing like {device.id} ({device.kind}) was measured: roofline only")]
        if device.id not in seen.get("devices", ()):
            what = "only operators were" if device.id in seen.get("operators_of", ()) else "nothing was"
            found.append(("device", f"{what} measured on {device.id}: it is inferred from its spec sheet"))
        pairs = set(zip(profile.classes.tolist(), profile.variants.tolist(), strict=True))
        ops = {f"{CLASSES[c]}/{VARIANTS[v]}" for c, v in pairs}
        strange = sorted(ops - set(seen.get("ops", ())))
        if strange:
            found.append(
                ("ops", f"kinds of op that no measurement shows: {', '.join(s.strip('/') for s in strange[:4])}")
            )
        units = {UNITS[u] for u in np.unique(profile.units)}
        if units - set(seen.get("units", ())):
            found.append(("dtype", f"no measurement in {', '.join(sorted(units - set(seen.get('units', ()))))}"))
        return found

    def _network(self, device: Device) -> Any:
        return self.weights.networks.get(_LEARNED_KINDS.get(device.kind, ""))

    def _one(self, profile: Profile, device: Device, workload: Workload) -> Times:
        """The times on one device, over batch sizes."""
        plain = RooflinePredictor()
        network = self._network(device)
        if network is None:
            told = plain.times(profile, [device], workload)
            return Times(**{k: v[:, 0] for k, v in vars(told).items() if v is not None})
        batches = len(profile.batches)
        run = runtime(device, workload.runtime)
        peaks, bandwidth = spec_matrix([device])
        compute, memory = op_roofline_s(profile, peaks[:, 0], bandwidth[0])
        light = (np.maximum(compute, memory) * profile.repeat[:, None]).sum(axis=0) * 1e3
        sorts, times = profile.alike
        seconds = network.seconds(op_table(profile.only(sorts), device)).reshape(-1, batches)
        device_ms = times @ seconds * 1e3
        on_cpu = device.kind == "cpu"
        if on_cpu:
            host_ms = np.zeros_like(device_ms)
            latency = device_ms
        else:
            counts = launch_counts(profile)
            launching = counts[:-1] @ self.weights.host_us[:-1] * run.host_share
            call_us = self.weights.host_us[-1] if run.host_share else run.call_us
            host_ms = np.full_like(device_ms, self.host_slowness * (launching + call_us) / 1e3)
            busy = device_ms + self.weights.gap_us * launches(counts) / 1e3
            latency = smooth_max(busy, host_ms, self.weights.sharpness)
        widen = 1.0
        for kind, _ in self.unfamiliar(profile, device, workload):
            widen *= _UNSEEN[kind]
        joules = energy_law.energy_j(profile, [device], latency[:, None], self.weights.joules)[:, 0]
        bound = np.where(host_ms > device_ms, "host", "device")
        return Times(
            latency_ms=latency, device_ms=device_ms, host_ms=host_ms, light_ms=light, energy_j=joules,
            latency_spread=self._spread("latency_ms", workload, bound, widen, latency, light, on_cpu),
            device_spread=self._spread("device_ms", workload, bound, widen, device_ms, light, on_cpu),
            energy_spread=self._spread("energy_j", workload, bound, widen, joules, np.zeros_like(joules), on_cpu),
        )  # fmt: skip

    def _spread(
        self, name: str, workload: Workload, bound: np.ndarray, widen: float, value: np.ndarray, least: np.ndarray,
        on_cpu: bool,
    ) -> np.ndarray:  # fmt: skip
        out = np.empty((len(value), 2))
        for i, side in enumerate(bound):
            group = f"cpu/{workload.mode}" if on_cpu else f"{name}/{workload.mode}/{side}"
            low, high = self.weights.calibration.factors(group, self.confidence, widen)
            floor = least[i] / value[i] if value[i] > 0 else 0.0
            out[i] = min(1.0, max(low, floor)), high
        return out
