"""What a call costs the host: so many microseconds for each kind of launch, each view, each module entered.

The costs are those of a reference host (docs/DATASET.md); another host is so many times slower, which a probe of a few
seconds tells (`forerun measure host`).
"""

from __future__ import annotations

import numpy as np

from forerun.graph.ir import Graph
from forerun.graph.profile import CLASSES, Profile

#: What is counted: ops of each class in the forward pass, and behind it (backward, optimizer); views; modules.
COUNTED = (*CLASSES, *(f"{c}:backward" for c in CLASSES), "views", "modules", "call")


def launch_counts(profile: Profile) -> np.ndarray:
    """How often each of COUNTED happens in one call."""
    graph: Graph = profile.graph
    out = np.zeros(len(COUNTED))
    behind = np.array([op.phase != "forward" for op in graph.ops], dtype=int)
    np.add.at(out, profile.classes + behind * len(CLASSES), profile.repeat)
    calls = graph.facts.get("host_calls", {})
    out[-3:] = calls.get("views", 0), calls.get("modules", 0), 1
    return out


def launches(counts: np.ndarray) -> np.ndarray:
    """How many ops of a call reach the device."""
    return counts[..., : 2 * len(CLASSES)].sum(axis=-1)


def smooth_max(a: np.ndarray, b: np.ndarray, sharpness: float) -> np.ndarray:
    """Near the larger of the two, a little above it where both are alike: queue and device never overlap perfectly."""
    top = np.maximum(a, b)
    low = np.minimum(a, b)
    return top * (1 + (low / np.maximum(top, 1e-12)) ** sharpness) ** (1 / sharpness)
