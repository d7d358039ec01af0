"""The bounds of physics, which every prediction of every predictor keeps, in one place.

- time: no call is faster than its roofline, neither the estimate nor the lower end of its interval;
- energy: no device draws more than its power limit for as long as the call takes, nor does the upper end over the
  upper end of the time;
- memory: a call needs at least the tensors that live at once; the lower end at least those that live throughout.

A learned predictor may violate them outside its training data. `hold` clips its predictions to the bound and records
that it did. Every prediction is made through `ask` (answers.py, tables.py, population.py, explanation.py), so that the
bounds hold for predictors of other packages too; `evaluate.check.check_predictor` says which predictors violate them by
themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.device import Device
from forerun.device.together import together
from forerun.graph.ir import Graph, GraphKey
from forerun.graph.memory import lasting_mb, peak_allocated_mb
from forerun.graph.profile import Profile
from forerun.prediction import Estimate, deviations
from forerun.predictors.base import Predictor, Times
from forerun.predictors.laws.energy import back_to_back_ms
from forerun.predictors.laws.specs import op_roofline_s, power_limits
from forerun.predictors.laws.spreads import not_above, not_below, wider
from forerun.workload import Workload

#: What can be held to a bound, in the order of the last axis of `Times.held`.
HELD = ("latency_ms", "device_ms", "energy_j", "memory_mb", "memory_allocated_mb")
#: How sharply the larger of host and device sets a latency; about that of the fitted law (predictors/laws/host.py).
_SHARPNESS = 5.0
#: Sums over the same operators in another order differ by less than this.
ROUNDING = 1e-9
_WHY = {
    "latency_ms": "latency is held to the roofline, the least time that the peaks of {device} allow",
    "device_ms": "device time is held to the roofline, the least time that the peaks of {device} allow",
    "energy_j": "energy is held to the power limit of {device}, {limit:,.0f} W for as long as the call takes",
    "memory_mb": "memory is held to the tensors that live at once",
    "memory_allocated_mb": "memory of tensors is held to those that live at once",
}


@dataclass(frozen=True)
class Answers:
    """Predictions for one graph within the bounds of physics, over [batch sizes, devices]."""

    predictor: Predictor
    profile: Profile
    devices: Sequence[Device]
    workload: Workload
    times: Times

    def spread(self, target: str) -> np.ndarray:
        """The interval of a target: (low, high) as factors on the value, last axis."""
        if target not in self._spreads:
            self._spreads[target] = self._spread(target)
        return self._spreads[target]

    @functools.cached_property
    def _spreads(self) -> dict[str, np.ndarray]:
        return {}

    def _spread(self, target: str) -> np.ndarray:
        value = getattr(self.times, target)
        bounded = self.predictor.spread(target, self.times, self.profile, self.devices, self.workload).copy()
        if target == "latency_ms" and self.predictor.host_deviation:
            deviation = self.predictor.host_deviation * host_share(self.times)
            bounded = wider(bounded, deviation * deviations(self.predictor.confidence))
        if target == "energy_j":
            return not_above(bounded, value, self._most_j_at_high_end())
        return not_below(bounded, value, least_ms(self.profile, self.devices, whole_programs=True))

    def of_device(self, place: int) -> Answers:
        """The predictions for one device."""
        return replace(self, devices=together([self.devices[place]]), times=self.times.of_device(place))

    def notes(self) -> Iterator[str]:
        """One sentence for each quantity on the first device that was clipped to its bound."""
        if self.times.held is None:
            return
        device = self.devices[0]
        for name, held in zip(HELD, np.atleast_1d(self.times.held[:, 0].any(axis=0)), strict=True):
            if held:
                why = _WHY[name].format(device=device.id, limit=device.tdp_w or 0.0)
                yield f"{why}: {self.predictor.name} predicted beyond it, so the case is out of its range"

    def _most_j_at_high_end(self) -> np.ndarray:
        """The most energy over the upper ends of latency and device time."""
        ends = []
        for name in ("latency_ms", "device_ms"):
            value = getattr(self.times, name)
            ends.append(value if np.isnan(value).all() else value * self.spread(name)[..., 1])
        return most_j(ends[0], ends[1], self.devices, self.workload.runtime)


def host_share(times: Times) -> np.ndarray:
    """How much of a change of the host's speed the latency follows: 1 where the host sets it, 0 where the device does,
    or where the two are not told apart."""
    host, device = (np.nan_to_num(each) ** _SHARPNESS for each in (times.host_ms, times.device_ms))
    return np.asarray(np.divide(host, host + device, out=np.zeros_like(host), where=host + device > 0))


def ask(predictor: Predictor, profile: Profile, devices: Sequence[Device], workload: Workload) -> Answers:
    """The predictor's predictions, clipped to the bounds of physics."""
    devices = together(devices)
    times = hold(predictor.times(profile, devices, workload), profile, devices, workload)
    return Answers(predictor, profile, devices, workload, times)


def hold(times: Times, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
    """The times, clipped to their bounds, with `held` True where they were; NaN stays NaN."""
    least = least_ms(profile, devices)
    bounded = {name: _at_least(getattr(times, name), least) for name in ("latency_ms", "device_ms")}
    most = most_j(bounded["latency_ms"], bounded["device_ms"], devices, workload.runtime)
    bounded["energy_j"] = np.where(times.energy_j > most * (1 + ROUNDING), most, times.energy_j)
    if not profile.of_members:
        for name in ("memory_mb", "memory_allocated_mb"):
            if getattr(times, name) is not None:
                live = peak_allocated_mb(profile.graph, profile.batches)[:, None]
                bounded[name] = _at_least(getattr(times, name), live)
    held = np.zeros((*least.shape, len(HELD)), dtype=bool) if times.held is None else times.held.copy()
    for at, name in enumerate(HELD):
        if name in bounded:
            before = getattr(times, name)
            held[..., at] |= (bounded[name] != before) & ~np.isnan(before)
    return replace(times, **bounded, held=held)


def least_ms(profile: Profile, devices: Sequence[Device], whole_programs: bool = False) -> np.ndarray:
    """The least time of a call over [batch sizes, devices]: the roofline of its ops. What is compiled as a whole moves
    less than the sum of its ops: with `whole_programs`, arithmetic alone bounds the devices that compile so."""
    compiles = [whole_programs and d.traits.whole_programs for d in devices]

    def least() -> np.ndarray:
        compute, memory, _ = op_roofline_s(profile.distinct, devices)
        if any(compiles):
            memory = np.where(np.array(compiles)[:, None, None], 0.0, memory)
        total: np.ndarray = np.einsum("dob,o->bd", np.maximum(compute, memory), profile.distinct_ops[1]) * 1e3
        return total

    return profile.once(("least_ms", any(compiles), together(devices)), least)


def most_j(
    latency_ms: np.ndarray, device_ms: np.ndarray, devices: Sequence[Device], runtime: str
) -> np.ndarray:  # fmt: skip
    """The most energy of calls over [..., devices]: the power limit for as long as a call takes in the loop that energy
    is measured over, or by itself where the device time is not known; infinite where the limit is not known."""
    known = power_limits(devices)
    limit = np.where(np.isnan(known), np.inf, known)
    in_loop = back_to_back_ms(latency_ms, np.where(np.isnan(device_ms), latency_ms, device_ms), devices, runtime)
    with np.errstate(invalid="ignore"):  # no limit on what takes no time
        return limit * in_loop / 1e3


def hold_energy(
    energy: Estimate, latency: Estimate, device_ms: Estimate | None, device: Device, runtime: str
) -> Estimate:
    """Predicted energy clipped to the power limit over measured times, which may be shorter than the predicted ones."""

    def most(end: str) -> float:
        busy = np.nan if device_ms is None else getattr(device_ms, end)
        return float(most_j(np.array([getattr(latency, end)]), np.array([busy]), [device], runtime)[0])

    value = min(energy.value, most("value"))
    return Estimate(value, min(energy.low, value), max(value, min(energy.high, most("high"))), energy.unit)


def hold_memory(needed: tuple[float, float], value: float, graph: Graph) -> tuple[float, float]:
    """An interval of memory, its lower end at least the tensors that live throughout the call."""
    return min(value, max(needed[0], throughout_mb(graph))), max(value, needed[1])


def throughout_mb(graph: Graph) -> float:
    """Tensors that are there before the call and after it: weights, caches, the state of an optimizer."""
    return _throughout_mb(GraphKey(graph))


@functools.lru_cache(maxsize=32)
def _throughout_mb(key: GraphKey) -> float:
    return lasting_mb(key.graph)


def _at_least(value: np.ndarray, least: np.ndarray) -> np.ndarray:
    return np.where(value < least * (1 - ROUNDING), least, value)
