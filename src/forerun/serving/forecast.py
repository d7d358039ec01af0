"""A simulation with its intervals: the same requests again with each of several draws of what is uncertain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from forerun.prediction import Estimate
from forerun.serving.iteration import IterationModel
from forerun.serving.metrics import DEFINITIONS, PARTS, Limits, Window, measured, steady_window, whole_window
from forerun.serving.policies import VLLM, Policy
from forerun.serving.requests import Requests
from forerun.serving.simulator import Disaggregated, Simulated, simulate

#: Draws, and requests of each: a part of the load shows how far a draw moves the numbers.
DRAWS, REQUESTS = 16, 300

_UNITS = {
    "throughput": "tokens/s", "throughput_per_device": "tokens/s", "requests_per_s": "requests/s",
    "goodput": "requests/s", "energy_per_token_j": "J", "energy_per_request_j": "J", "power_w": "W",
} | {f"{name}.{part}": "ms" for name in DEFINITIONS for part in PARTS}  # fmt: skip


@dataclass(frozen=True)
class Fleet:
    """Replicas of an engine: what simulates them, with one iteration model or another."""

    model: IterationModel
    policy: Policy = VLLM
    replicas: int = 1
    router: str = "round-robin"
    disaggregated: Disaggregated | None = None
    share_prefixes: bool = True

    @property
    def devices(self) -> int:
        before = self.disaggregated
        return self.replicas * self.model.devices + (before.replicas * before.model.devices if before else 0)

    def run(self, requests: Requests) -> Simulated:
        return simulate(
            self.model, requests, policy=self.policy, replicas=self.replicas, router=self.router,
            disaggregated=self.disaggregated, share_prefixes=self.share_prefixes,
        )  # fmt: skip

    def drawn(self, seed: int) -> Fleet:
        """The same with a draw of what is uncertain: one for all replicas, which are alike."""
        before = self.disaggregated
        if before is not None:
            before = replace(before, model=before.model.drawn(np.random.default_rng(seed)))
        return replace(self, model=self.model.drawn(np.random.default_rng(seed)), disaggregated=before)


@dataclass(frozen=True)
class Forecast:
    """The numbers of a simulation by their names (serving/metrics.py), with their intervals where they have one."""

    simulated: Simulated
    numbers: dict[str, float]
    estimates: dict[str, Estimate]


def forecast(
    fleet: Fleet,
    requests: Requests,
    limits: Limits,
    *,
    whole: bool = False,
    idle_w: float = 0.0,
    draws: int = DRAWS,
    part: int = REQUESTS,
    confidence: float = 0.9,
    seed: int = 0,
) -> Forecast:
    """Simulates; `whole` counts all requests, else those of the steady state. Each draw has `part` of the requests."""
    window: Callable[[Simulated], Window] = whole_window if whole else steady_window
    simulated = fleet.run(requests)
    numbers = measured(simulated, window(simulated), limits, idle_w=idle_w)
    clients = requests.concurrency or 0
    # Several times as many as are in the engine at once: else a draw moves the ramp, and not what is steady.
    at_once = clients or (requests.rate or 0.0) * numbers["e2e_ms.mean"] / 1e3
    few = requests.taken(slice(0, max(part, int(min(at_once * (4 if clients else 2.5), 2000)))))
    first = fleet.run(few)
    base = measured(first, window(first), limits, idle_w=idle_w)
    moved = []
    for at in range(draws):
        again = fleet.drawn(seed * 1000 + at).run(few)
        moved.append(measured(again, window(again), limits, idle_w=idle_w))
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    estimates = {
        name: _estimate(numbers[name], [m[name] for m in moved], base[name], z, unit)
        for name, unit in _UNITS.items() if name in numbers and np.isfinite(numbers[name])
    }  # fmt: skip
    return Forecast(simulated, numbers, estimates)


def _estimate(value: float, drawn: list[float], base: float, z: float, unit: str) -> Estimate:
    """The value, and an interval from how far draws move it: the spread of the logarithms."""
    if value == 0 or base == 0:
        return Estimate(value, value, max(value, *drawn, value), unit)
    ratios = np.log(np.maximum([d / base for d in drawn], 1e-6))
    middle, spread = float(ratios.mean()), float(ratios.std(ddof=1)) if len(drawn) > 1 else 0.0
    low, high = float(np.exp(min(0.0, middle - z * spread))), float(np.exp(max(0.0, middle + z * spread)))
    return Estimate(value, value * low, value * high, unit)
