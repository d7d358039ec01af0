"""The contract every predictor keeps, and the place where predictors are found.

A predictor is an estimator: its constructor stores parameters and computes nothing; `fit(dataset)` returns itself;
`times` answers for one graph at any number of batch sizes on any number of devices at once. Predictors register under
the entry point group `forerun.predictors`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol

import numpy as np

from forerun.device import Device
from forerun.errors import ForerunError, did_you_mean
from forerun.graph.profile import Profile
from forerun.workload import Workload


@dataclass(frozen=True)
class Times:
    """Milliseconds over [batch sizes, devices], and the joules that go with them."""

    latency_ms: np.ndarray
    device_ms: np.ndarray
    host_ms: np.ndarray
    light_ms: np.ndarray  # no kernel can be faster than this: the plain roofline
    energy_j: np.ndarray  # nan where the device's power is not known
    latency_spread: np.ndarray  # (low, high) as factors on latency_ms, last axis of length 2
    device_spread: np.ndarray
    energy_spread: np.ndarray


class Predictor(Protocol):
    """What the rest of forerun asks of a predictor."""

    basis: str

    def fit(self, dataset: Any) -> Predictor: ...

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times: ...

    def op_times_ms(self, profile: Profile, device: Device, workload: Workload) -> np.ndarray: ...


@functools.cache
def predictors() -> dict[str, Any]:
    """Every registered predictor class by name."""
    return {p.name: p for p in entry_points(group="forerun.predictors")}


def load_predictor(name: str | Predictor, **settings: Any) -> Predictor:
    """A predictor by name ('default' is the best one shipped), or the object given.

    `settings` that a predictor has no use for (confidence, host) are left out.
    """
    if not isinstance(name, str):
        return name
    known = predictors()
    if name not in known:
        hint = did_you_mean(name, known) or f" Known: {', '.join(sorted(known))}."
        raise ForerunError(f"no predictor is called {name!r}.{hint}")
    kind = known[name].load()
    taken = inspect.signature(kind).parameters
    return kind(**{key: value for key, value in settings.items() if key in taken})
