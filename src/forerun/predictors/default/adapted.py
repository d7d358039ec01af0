"""The default predictor on an adapted device: its times, energy and intervals with the device's corrections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import ClassVar, Protocol

import numpy as np

from forerun.device import Device
from forerun.device.adapted import Adaptation
from forerun.device.together import together
from forerun.graph.profile import Profile
from forerun.prediction import deviations
from forerun.predictors.base import Times
from forerun.predictors.default.weights import Weights
from forerun.predictors.laws import energy as energy_law
from forerun.predictors.laws.adaptation import (
    GROUP_OF_CLASS,
    HALF_UNITS,
    HOST,
    PARTS,
    RESOURCES,
    Calls,
    Posterior,
    posterior_of,
)
from forerun.workload import Workload


class Corrected(Protocol):
    """What corrections need of the default predictor."""

    name: ClassVar[str]
    confidence: float
    host_slowness: float | None
    corrections: Adaptation | None  # for a kind of network, on every device

    @property
    def stamp(self) -> str: ...

    @property
    def weights(self) -> Weights: ...

    def calls(self, profile: Profile, device: Device, workload: Workload) -> Calls: ...

    def ood_sigma(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> np.ndarray: ...


def problem(predictor: Corrected, device: Device) -> str | None:
    """Why corrections do not apply: they belong to the weights that they were fitted with."""
    for what, found in ((device.id, device.adaptation), ("this kind of network", predictor.corrections)):
        if found is not None and found.predictor != predictor.stamp:
            return (
                f"{what} was adapted with other weights of the predictor {predictor.name} ({found.predictor}, these "
                f"are {predictor.stamp}): adapt it again with its rows"
            )
    return None


def correct(
    predictor: Corrected, times: Times, profile: Profile, devices: Sequence[Device], workload: Workload
) -> Times:
    """The times [batch sizes, devices], corrected in place where the device or the kind of network is adapted."""
    for place, found in _adapted(predictor, devices):
        device, calls = devices[place], predictor.calls(profile, devices[place], workload)
        now, joules = times.of_device(place), predictor.weights.joules
        for one in found:
            posterior = _posterior(one, predictor.host_slowness is not None)
            joules = joules * _power_factors(posterior.power)
            now = _corrected(now, calls, posterior, profile, device, workload, joules)
        for f in fields(Times):
            if (value := getattr(times, f.name)) is not None:
                value[:, place] = getattr(now, f.name)[:, 0]
    return times


def narrow(
    predictor: Corrected, spread: np.ndarray, target: str, profile: Profile, devices: Sequence[Device],
    workload: Workload,
) -> np.ndarray:  # fmt: skip
    """Interval factors [batch sizes, devices, 2], as the rows of a device or kind of network say, in place."""
    for place, found in _adapted(predictor, devices):
        calls = predictor.calls(profile, devices[place], workload)
        sigma = predictor.ood_sigma(profile, [devices[place]], workload)[0]
        for one in found:
            more = _deviation(target, calls, _posterior(one, predictor.host_slowness is not None))
            if more is None:
                break
            sigma = np.hypot(sigma, more)
        else:
            ends = deviations(predictor.confidence) * sigma
            spread[:, place] = np.exp(np.stack([-ends, ends], axis=-1))
    return spread


def _adapted(predictor: Corrected, devices: Sequence[Device]) -> list[tuple[int, list[Adaptation]]]:
    """The corrections that apply on each device, by its place; those of a device come first."""
    them = together(devices)
    own = them.once("adapted", lambda: [place for place, one in enumerate(them) if one.adaptation is not None])
    places = own if predictor.corrections is None else range(len(them))
    each = ((place, (them[place].adaptation, predictor.corrections)) for place in places)
    return [(place, [one for one in both if one is not None]) for place, both in each]


def _corrected(
    times: Times, calls: Calls, posterior: Posterior, profile: Profile, device: Device, workload: Workload,
    joules: np.ndarray,
) -> Times:  # fmt: skip
    """The times of one device [batch sizes, 1] with corrections."""
    none, each = np.zeros(len(PARTS)), np.exp(posterior.particular(calls))
    latency = calls.latency_ms(posterior.corrections) / calls.latency_ms(none) * each
    busy = calls.device_ms(posterior.corrections) / calls.device_ms(none) * each
    before = calls.host_ms.sum(axis=1)
    host = np.divide(
        calls.host_ms @ np.exp(posterior.corrections[HOST:]), before, out=np.ones_like(before), where=before > 0
    )
    latency_ms, device_ms, host_ms = (
        value * by[:, None]
        for value, by in ((times.latency_ms, latency), (times.device_ms, busy), (times.host_ms, host))
    )
    if device.traits.is_host:
        device_ms = latency_ms
    energy_j = energy_law.energy_j(profile, [device], latency_ms, device_ms, joules, workload.runtime)
    return replace(times, latency_ms=latency_ms, device_ms=device_ms, host_ms=host_ms, energy_j=energy_j)


def op_factors(
    predictor: Corrected, parts: Sequence[np.ndarray], profile: Profile, device: Device, workload: Workload
) -> np.ndarray | float:
    """[ops, batch sizes]: how many times longer each op takes by the corrections; `parts` are its seconds of
    arithmetic, of memory and of launches."""
    arithmetic, memory, launching = parts
    half, whole, by = HALF_UNITS[profile.units][:, None], sum(parts), np.ones(())
    for _, found in _adapted(predictor, [device]):
        for one in found:
            posterior = posterior_of(one)
            times = np.exp(posterior.corrections[:HOST]).reshape(-1, len(RESOURCES))[GROUP_OF_CLASS[profile.classes]]
            plain, halved, moved, launched = (times[:, place, None] for place in range(len(RESOURCES)))
            after = arithmetic * np.where(half, halved, plain) + memory * moved + launching * launched
            by = by * after / np.maximum(whole, 1e-30)
            by = by * np.exp(posterior.particular(predictor.calls(profile, device, workload)))
    return by


def _deviation(target: str, calls: Calls, posterior: Posterior) -> np.ndarray | None:
    """[batch sizes] in logarithms; None where the rows say nothing of the target."""
    if target != "energy_j":
        return posterior.deviation(calls, device_only=target == "device_ms")
    if posterior.power_deviation is None:
        return None
    return np.hypot(posterior.power_deviation, posterior.deviation(calls))


def _power_factors(power: np.ndarray) -> np.ndarray:
    """Factors over the terms of energy, from the corrections of static and of dynamic power."""
    out: np.ndarray = np.exp(np.array([power[0 if term == "waiting" else 1] for term in energy_law.TERMS]))
    return out


def _posterior(adaptation: Adaptation, host_is_given: bool) -> Posterior:
    """Its corrections; a host that the user names takes the place of that of the rows."""
    found = posterior_of(adaptation)
    if not host_is_given:
        return found
    without = found.corrections.copy()
    without[HOST:] = 0.0
    return replace(found, corrections=without)
