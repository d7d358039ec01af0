"""What a call costs the host: so many microseconds for each kind of launch, each view, each module entered; compiled
code pays the same for every launch; a CUDA graph is launched as a whole.

The costs are those of a reference host (docs/DATASET.md); another host is so many times slower, as a probe of a few
seconds shows (`forerun measure host`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.graph.ir import Graph
from forerun.graph.profile import CLASSES, UNITS, Profile

#: What is counted: ops of each class in the forward pass, and behind it (backward, optimizer); convolutions that launch
#: changes of layout, too (in half precision); views; modules; what a model of Hugging Face does around its layers
#: (masks, caches, outputs); kernels that libraries launch within an op; and any call.
COUNTED = (
    *CLASSES, *(f"{c}:backward" for c in CLASSES), "layouts", "views", "modules", "transformers", "inner", "call",
)  # fmt: skip
_DENSE = [CLASSES.index(c) for c in ("conv", "conv_grouped")]
_HALVES = [UNITS.index(u) for u in ("fp16", "bf16")]


#: Runtimes that launch all kernels of a call at once, and what that takes.
REPLAYED = ("cudagraph", "compile-reduce-overhead")
REPLAY_CALL_US = 20.0
#: Before any row says so: microseconds of compiled code (`compiled_counts`), and around the kernels of a CUDA graph and
#: between them, of one that PyTorch's compiler keeps (`compile-reduce-overhead`) more than of any other.
COMPILED_US, REPLAY_US, COMPILED_REPLAY_US = (100.0, 18.0, 3000.0, 35.0), (20.0, 0.3), (150.0, 2.0)


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
    compiled_us: tuple[float, ...] = COMPILED_US  # of each of `compiled_counts`
    replay_us: tuple[float, ...] = REPLAY_US  # a CUDA graph: around all kernels, and between two of them
    compiled_replay_us: tuple[float, ...] = COMPILED_REPLAY_US  # the same of compiled code

    def host_ms(self, counts: np.ndarray, runtime: str = "eager") -> np.ndarray:
        """What a call costs the reference host."""
        if runtime in REPLAYED:
            return np.full(counts.shape[:-1], REPLAY_CALL_US / 1e3)
        if runtime == "compile":
            return compiled_counts(counts)[..., : len(self.compiled_us)] @ np.array(self.compiled_us) / 1e3
        return counts @ self.cost_us / 1e3

    def latency_ms(
        self, counts: np.ndarray, device_ms: np.ndarray, slowness: np.ndarray | float | None = None,
        runtime: str = "eager",
    ) -> np.ndarray:  # fmt: skip
        """How long a call takes on a host that is so many times slower than the reference; None: it was not
        probed."""
        replayed = {"cudagraph": self.replay_us, "compile-reduce-overhead": self.compiled_replay_us}
        lead_us, gap_us = replayed.get(runtime, (self.lead_us, self.gap_us))
        busy = device_ms + idle_ms(counts, lead_us, gap_us)
        slow = self.default_slowness if slowness is None else slowness
        return smooth_max(busy, slow * self.host_ms(counts, runtime), self.sharpness)

    def scalars(self) -> dict[str, Any]:
        """All but the costs, as plain data."""
        return {name: value for name, value in vars(self).items() if name != "cost_us"}

    @classmethod
    def from_scalars(cls, cost_us: np.ndarray, scalars: Mapping[str, Any]) -> HostCosts:
        several = {name: tuple(map(float, some)) for name, some in scalars.items() if isinstance(some, list | tuple)}
        return cls(cost_us, **{**scalars, **several})


def launch_counts(profile: Profile) -> np.ndarray:
    """How often each of COUNTED happens in one call."""
    graph: Graph = profile.graph
    out = np.zeros(len(COUNTED))
    behind = np.array([op.phase != "forward" for op in graph.ops], dtype=int)
    # A convolution launches the add of its bias itself, and an op the copies of what it cannot read as it lies.
    implied = np.array(["implied" in op.attrs and "generated" not in op.attrs for op in graph.ops], dtype=bool)
    np.add.at(out, profile.classes + behind * len(CLASSES), profile.repeat * ~(profile.biases | implied))
    calls = graph.facts.get("host_calls", {})
    plain = np.array([not op.attrs.get("strided") for op in graph.ops], dtype=bool)  # no channels last yet
    moved = profile.repeat[plain & np.isin(profile.classes, _DENSE) & np.isin(profile.units, _HALVES)].sum()
    beside = (calls.get(name, 0) for name in ("views", "modules", "transformers"))
    inner = profile.inner_launches + profile.repeat[implied].sum()
    out[2 * len(CLASSES) :] = moved, *beside, inner, 1
    return out


def launches(counts: np.ndarray) -> np.ndarray:
    """How many ops a call launches one by one."""
    return counts[..., : 2 * len(CLASSES)].sum(axis=-1)


def compiled_counts(counts: np.ndarray) -> np.ndarray:
    """[..., 4]: what compiled code costs the host by: any call and each launch; in training the step and each module,
    whose gradients and optimizer stay with Python."""
    trains = (counts[..., len(CLASSES) : 2 * len(CLASSES)].sum(axis=-1) > 0).astype(float)
    modules = counts[..., COUNTED.index("modules")]
    return np.stack([np.ones_like(trains), launches(counts), trains, trains * modules], axis=-1)


def idle_ms(counts: np.ndarray, lead_us: float, gap_us: float) -> np.ndarray:
    """How long the device waits in a call that it paces: around all kernels, and between two of them."""
    return (lead_us + gap_us * launches(counts)) / 1e3


def smooth_max(a: np.ndarray, b: np.ndarray, sharpness: float) -> np.ndarray:
    """Near the larger of the two, a little above it where both are close: queue and device never overlap perfectly."""
    top = np.maximum(a, b)
    low = np.minimum(a, b)
    return top * (1 + (low / np.maximum(top, 1e-12)) ** sharpness) ** (1 / sharpness)
