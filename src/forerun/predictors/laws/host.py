"""Host time of a call: a cost in microseconds for each kind of launch, each view, each module entered; compiled code
has one cost for every launch; a CUDA graph is launched as a whole.

The costs are those of a reference host (docs/DATASET.md), times the slowness of the host at hand, which a probe of a
few seconds measures (`forerun measure host`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from forerun.graph.ir import Graph
from forerun.graph.profile import CLASSES, UNITS, Profile
from forerun.runtimes.base import Runtime
from forerun.runtimes.registry import USUAL, of_row

#: What is counted: ops of each class in the forward pass, and behind it (backward, optimizer); convolutions that launch
#: changes of layout, too (in half precision); views; modules; what a model of Hugging Face does around its layers
#: (masks, caches, outputs); kernels that libraries launch within an op; and any call.
COUNTED = (
    *CLASSES, *(f"{c}:backward" for c in CLASSES), "layouts", "views", "modules", "transformers", "inner", "call",
)  # fmt: skip
_DENSE = [CLASSES.index(c) for c in ("conv", "conv_grouped")]
_FP16_UNITS = [UNITS.index(u) for u in ("fp16", "bf16")]


@dataclass(frozen=True)
class HostCosts:
    """Microseconds per counted thing on the reference host, between two kernels, around all of them (before the first
    runs, and until the host sees the end of the last), and how sharply the larger of host and device stands out."""

    cost_us: np.ndarray  # over COUNTED
    gap_us: float
    sharpness: float
    lead_us: float = 0.0
    default_slowness: float = 1.0  # of a host that was not probed: the value that makes errors smallest
    probe_scale: float = 1.0  # of a host that was probed: times what its launches say
    probe_law: tuple[float, float] | None = None  # log slowness = first + second x log(microseconds of a tiny launch)
    #: What rows show of runtimes with costs of their own, by the name they are kept under: `Runtime.host_us`, or
    #: `waits_us` of one that replays. What is missing is as the runtime says.
    own: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def of(self, runtime: Runtime) -> tuple[float, ...] | None:
        """The costs of a runtime with costs of its own; None: it pays for its launches."""
        return self.own.get(runtime.fitted_name, runtime.waits_us if runtime.replays else runtime.host_us)

    def host_ms(self, counts: np.ndarray, runtime: str = USUAL) -> np.ndarray:
        """Host time of a call on the reference host."""
        run = of_row(runtime)
        if run.replays:
            return np.full(counts.shape[:-1], run.launch.call_us / 1e3)
        if (each := self.of(run)) is not None:
            return compiled_counts(counts)[..., : len(each)] @ np.array(each) / 1e3
        return counts @ self.cost_us / 1e3

    def latency_ms(
        self, counts: np.ndarray, device_ms: np.ndarray, slowness: np.ndarray | float | None = None,
        runtime: str = USUAL,
    ) -> np.ndarray:  # fmt: skip
        """Latency of a call on a host that is `slowness` times slower than the reference; None: it was not probed."""
        slow = self.default_slowness if slowness is None else slowness
        busy = device_ms + self.idle_ms(counts, slow, runtime)
        return smooth_max(busy, slow * self.host_ms(counts, runtime), self.sharpness)

    def idle_ms(self, counts: np.ndarray, slowness: np.ndarray | float = 1.0, runtime: str = USUAL) -> np.ndarray:
        """Idle time of the device beside its kernels: around all of them, and between two. Where a runtime's own Python
        runs around a replay, a slow host takes longer."""
        run = of_row(runtime)
        waits = (self.of(run) if run.replays else None) or (self.lead_us, self.gap_us)
        waited: np.ndarray = compiled_counts(counts)[..., : len(waits)] @ np.array(waits) / 1e3
        return waited * slowness if run.waits_for_host else waited

    def slowness_of_launch(self, launch_us: float) -> float | None:
        """Times slower than the reference host where a tiny launch takes so many microseconds; None: never fitted."""
        if self.probe_law is None:
            return None
        return float(self.probe_scale * np.exp(self.probe_law[0] + self.probe_law[1] * np.log(launch_us)))

    def scalars(self) -> dict[str, Any]:
        """All but the costs of launches, as plain data."""
        plain = {name: value for name, value in vars(self).items() if name not in ("cost_us", "own")}
        return plain | dict(self.own)

    @classmethod
    def from_scalars(cls, cost_us: np.ndarray, scalars: Mapping[str, Any]) -> HostCosts:
        values: dict[str, Any] = {
            name: tuple(map(float, value)) if isinstance(value, list | tuple) else value
            for name, value in scalars.items()
        }
        plain = {f.name for f in fields(cls)}
        return cls(
            cost_us, **{n: v for n, v in values.items() if n in plain},
            own={n: v for n, v in values.items() if n not in plain},
        )  # fmt: skip


def launch_counts(profile: Profile) -> np.ndarray:
    """How often each of COUNTED happens in one call."""
    return profile.once(("launch_counts",), lambda: _counted(profile)).copy()


def _counted(profile: Profile) -> np.ndarray:
    graph: Graph = profile.graph
    out = np.zeros(len(COUNTED))
    behind = np.array([op.phase != "forward" for op in graph.ops], dtype=int)
    # A convolution launches the add of its bias itself, and an op the copies of what it cannot read as it lies.
    implied = np.array(["implied" in op.attrs and "generated" not in op.attrs for op in graph.ops], dtype=bool)
    np.add.at(out, profile.classes + behind * len(CLASSES), profile.repeat * ~(profile.biases | implied))
    calls = graph.facts.get("host_calls", {})
    plain = np.array([not op.attrs.get("strided") for op in graph.ops], dtype=bool)  # no channels last yet
    moved = profile.repeat[plain & np.isin(profile.classes, _DENSE) & np.isin(profile.units, _FP16_UNITS)].sum()
    beside = (calls.get(name, 0) for name in ("views", "modules", "transformers"))
    inner = profile.inner_launches + profile.repeat[implied].sum()
    out[2 * len(CLASSES) :] = moved, *beside, inner, 1
    return out


def launches(counts: np.ndarray) -> np.ndarray:
    """How many ops a call launches one by one."""
    return counts[..., : 2 * len(CLASSES)].sum(axis=-1)


def compiled_counts(counts: np.ndarray) -> np.ndarray:
    """[..., 4]: the counts that host time of compiled code depends on: calls and launches; in training also steps and
    modules, whose gradients and optimizer are run by Python."""
    trains = (counts[..., len(CLASSES) : 2 * len(CLASSES)].sum(axis=-1) > 0).astype(float)
    modules = counts[..., COUNTED.index("modules")]
    return np.stack([np.ones_like(trains), launches(counts), trains, trains * modules], axis=-1)


def idle_ms(counts: np.ndarray, lead_us: float, gap_us: float) -> np.ndarray:
    """Idle time of the device in a device-bound call: around all kernels, and between two of them."""
    return (lead_us + gap_us * launches(counts)) / 1e3


def smooth_max(a: np.ndarray, b: np.ndarray, sharpness: float) -> np.ndarray:
    """Near the larger of the two, a little above it where both are close: queue and device never overlap perfectly."""
    top = np.maximum(a, b)
    low = np.minimum(a, b)
    return top * (1 + (low / np.maximum(top, 1e-12)) ** sharpness) ** (1 / sharpness)
