"""The default predictor: physics, what measurements say it misses, and how sure that is.

Device time: every op's roofline times a learned efficiency. Host time: what each launch costs. Latency: near the larger
of the two. Energy: waiting, arithmetic and bytes. Each in an interval calibrated on families that were left out.
"""

from __future__ import annotations

import math
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
from forerun.predictors.host import idle_ms, launch_counts, smooth_max
from forerun.predictors.kernels import runtime
from forerun.predictors.roofline import RooflinePredictor
from forerun.predictors.weights import Weights, load_weights
from forerun.workload import Workload

SHIPPED = Path(__file__).parent / "shipped"
#: What each thing that was not in the training data adds to the error: a standard deviation, in logarithms. That of a
#: device was chosen so that nine of ten published times of models lie inside on GPUs that were left out, whatever sets
#: their pace (docs/SCOREBOARD.md); energy and CPUs borrow it. Of the others nothing was measured.
UNSEEN = {"device": 0.27, "ops": 0.2, "dtype": 0.15}
_FIELDS = (
    "latency_ms", "device_ms", "host_ms", "light_ms", "energy_j", "latency_spread", "device_spread", "energy_spread",
)  # fmt: skip
_LEARNED_KINDS = {"gpu": "gpu", "soc": "gpu", "cpu": "cpu"}


def apart(kinds: Sequence[str]) -> float:
    """What several of UNSEEN add together."""
    return math.hypot(*(UNSEEN[kind] for kind in kinds))


class DefaultPredictor:
    """Answers for every device whose bandwidth and one peak are known; for kinds without weights, by roofline."""

    basis = "learned"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        weights: Weights | None = None,
        confidence: float = 0.9,
        host_slowness: float | None = None,
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
        out = Times(**{
            name: np.empty((len(profile.batches), len(devices), *((2,) if name.endswith("spread") else ())))
            for name in _FIELDS
        })  # fmt: skip
        kinds = np.array([_LEARNED_KINDS.get(d.kind, "") for d in devices])
        for kind in np.unique(kinds):
            places = np.flatnonzero(kinds == kind).tolist()
            some = [devices[i] for i in places]
            known = kind in self.weights.networks
            told = (
                self._learned(profile, some, workload) if known else RooflinePredictor().times(profile, some, workload)
            )
            for name in _FIELDS:
                getattr(out, name)[:, places] = getattr(told, name)
        return out

    def op_times_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray:
        """Device time of one launch of every op, at the profile's first batch size."""
        network = self._network(device)
        if network is None:
            return RooflinePredictor().op_times_ms(profile, device, workload)
        batches = len(profile.batches)
        return network.seconds(op_table(profile, [device])).reshape(-1, batches)[:, 0] * 1e3

    def unfamiliar(self, profile: Profile, device: Device, workload: Workload) -> list[tuple[str, str]]:
        """(kind, sentence) for everything about a case that no measurement behind the weights shows."""
        if self._network(device) is None:
            return [("device", f"nothing like {device.id} ({device.kind}) was measured: roofline only")]
        seen = self.weights.domain
        found = []
        if device.id not in seen.get("devices", ()):
            known = [
                ("models_of", "others published times of a few models"),
                ("operators_of", "only operators were measured"),
            ]
            what = next((text for name, text in known if device.id in seen.get(name, ())), "nothing was measured")
            found.append(("device", f"{what} on {device.id}: the rest is inferred from its spec sheet"))
        return found + self._strange(profile)

    def _strange(self, profile: Profile) -> list[tuple[str, str]]:
        """What is unfamiliar about the ops, on whatever device."""
        seen = self.weights.domain
        found = []
        strange = sorted({f"{CLASSES[c]}/{VARIANTS[v]}" for c, v in profile.kinds} - set(seen.get("ops", ())))
        if strange:
            found.append(
                ("ops", f"kinds of op that no measurement shows: {', '.join(s.strip('/') for s in strange[:4])}")
            )
        units = {UNITS[u] for u in profile.units_used}
        if units - set(seen.get("units", ())):
            found.append(("dtype", f"no measurement in {', '.join(sorted(units - set(seen.get('units', ()))))}"))
        return found

    def learned_share(self, profile: Profile, device: Device, workload: Workload) -> float:
        """The share of device time in kinds of op that measurements show; the rest is little more than roofline."""
        if self._network(device) is None:
            return 0.0
        known = set(self.weights.domain.get("ops", ()))
        seen = np.array([
            f"{CLASSES[c]}/{VARIANTS[v]}" in known for c, v in zip(profile.classes, profile.variants, strict=True)
        ])  # fmt: skip
        if seen.all():
            return 1.0
        ms = self.op_times_ms(profile, device, workload) * profile.repeat
        return float(ms[seen].sum() / ms.sum())

    def memory_spread(self, name: str, sort: str, mode: str) -> tuple[float, float]:
        """Interval factors of `memory_mb` or `memory_allocated_mb` on a device whose context is known."""
        return self.weights.calibration.factors(f"{name}/{sort}/{mode}", self.confidence)

    def _network(self, device: Device) -> Any:
        return self.weights.networks.get(_LEARNED_KINDS.get(device.kind, ""))

    def _learned(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        """The times on devices of one kind that has a network, all in one matrix."""
        network, on_cpu = self._network(devices[0]), devices[0].kind == "cpu"
        batches = len(profile.batches)
        sorts, times = profile.distinct_ops
        table = op_table(profile.only(sorts), devices)
        shape = (len(devices), len(times), batches)
        light = _summed(np.maximum(table.compute_s, table.memory_s).reshape(shape), times)
        device_ms = _summed(network.seconds(table).reshape(shape), times)
        if on_cpu:
            host_ms = np.zeros_like(device_ms)
            latency = device_ms
        else:
            counts = launch_counts(profile)
            run = [runtime(d, workload.runtime) for d in devices]
            launching = counts[:-1] @ self.weights.host_us[:-1]
            host_us = np.array([
                launching * r.host_share + (self.weights.host_us[-1] if r.host_share else r.call_us) for r in run
            ])  # fmt: skip
            slowness = self.weights.host_guess if self.host_slowness is None else self.host_slowness
            host_ms = np.broadcast_to(slowness * host_us / 1e3, device_ms.shape)
            busy = device_ms + idle_ms(counts, self.weights.lead_us, self.weights.gap_us)
            latency = smooth_max(busy, host_ms, self.weights.sharpness)
        joules = energy_law.energy_j(profile, devices, latency, device_ms, self.weights.joules)
        known = set(self.weights.domain.get("devices", ()))
        strange = [kind for kind, _ in self._strange(profile)]
        away = np.array([apart([*strange, *(() if d.id in known else ("device",))]) for d in devices])
        hosted = host_ms > device_ms

        def spread(name: str, value: np.ndarray, least: np.ndarray | float) -> np.ndarray:
            out = np.empty((*value.shape, 2))
            for side, mine in (("host", hosted), ("device", ~hosted)):
                group = f"cpu/{workload.mode}" if on_cpu else f"{name}/{workload.mode}/{side}"
                for far in np.unique(away):
                    out[mine & (away == far)] = self.weights.calibration.factors(group, self.confidence, float(far))
            floor = np.divide(least, value, out=np.zeros_like(value), where=value > 0)
            out[..., 0] = np.minimum(np.maximum(out[..., 0], floor), 1.0)
            return out

        return Times(
            latency_ms=latency, device_ms=device_ms, host_ms=host_ms, light_ms=light, energy_j=joules,
            latency_spread=spread("latency_ms", latency, light), device_spread=spread("device_ms", device_ms, light),
            energy_spread=spread("energy_j", joules, 0.0),
        )  # fmt: skip


def _summed(seconds: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Milliseconds [batch sizes, devices] of whole calls, from ops [devices, ops, batch sizes]."""
    return np.einsum("dob,o->bd", seconds, times) * 1e3
