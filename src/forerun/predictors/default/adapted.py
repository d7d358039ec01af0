"""The default predictor on an adapted device: its times, energy and intervals with the device's corrections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from forerun.device import Device
from forerun.device.together import together
from forerun.graph.profile import Profile
from forerun.prediction import deviations
from forerun.predictors.base import Times
from forerun.predictors.laws import energy as energy_law
from forerun.predictors.laws.adaptation import HOST, PARTS, Calls, Posterior, posterior_of
from forerun.workload import Workload

if TYPE_CHECKING:
    from forerun.predictors.default.predictor import DefaultPredictor


def problem(predictor: DefaultPredictor, device: Device) -> str | None:
    """Why corrections do not apply: they belong to the weights that they were fitted with."""
    if device.adaptation is None or device.adaptation.predictor == predictor.stamp:
        return None
    return (
        f"{device.id} was adapted with other weights of the predictor {predictor.name} ({device.adaptation.predictor}, "
        f"these are {predictor.stamp}): adapt it again with its rows"
    )


def correct(
    predictor: DefaultPredictor, times: Times, profile: Profile, devices: Sequence[Device], workload: Workload
) -> Times:
    """The times [batch sizes, devices], those of adapted devices with their corrections, in place."""
    for place in _adapted(devices):
        calls, given = predictor.calls(profile, devices[place], workload), predictor.host_slowness is not None
        found = _corrected(
            times.of_device(place), calls, profile, devices[place], workload, predictor.weights.joules,
            host_is_given=given,
        )  # fmt: skip
        for f in fields(Times):
            if (value := getattr(times, f.name)) is not None:
                value[:, place] = getattr(found, f.name)[:, 0]
    return times


def narrow(
    predictor: DefaultPredictor, spread: np.ndarray, target: str, profile: Profile, devices: Sequence[Device],
    workload: Workload,
) -> np.ndarray:  # fmt: skip
    """Interval factors [batch sizes, devices, 2], those of adapted devices as their rows say, in place."""
    for place in _adapted(devices):
        beyond = predictor.ood_sigma(profile, [devices[place]], workload)[0]
        calls, given = predictor.calls(profile, devices[place], workload), predictor.host_slowness is not None
        found = _factors(target, calls, devices[place], beyond, predictor.confidence, host_is_given=given)
        if found is not None:
            spread[:, place] = found
    return spread


def _adapted(devices: Sequence[Device]) -> list[int]:
    """The places of adapted devices."""
    them = together(devices)
    return them.once("adapted", lambda: [place for place, one in enumerate(them) if one.adaptation is not None])


def _corrected(
    times: Times, calls: Calls, profile: Profile, device: Device, workload: Workload, joules: np.ndarray, *,
    host_is_given: bool,
) -> Times:  # fmt: skip
    """The times of one device [batch sizes, 1]. A host that the user names takes the place of that of the rows."""
    posterior = _posterior(device, host_is_given)
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
    power = _power_factors(posterior.power)
    energy_j = energy_law.energy_j(profile, [device], latency_ms, device_ms, joules * power, workload.runtime)
    return replace(times, latency_ms=latency_ms, device_ms=device_ms, host_ms=host_ms, energy_j=energy_j)


def _factors(
    target: str, calls: Calls, device: Device, beyond: np.ndarray | float, confidence: float, *, host_is_given: bool
) -> np.ndarray | None:  # fmt: skip
    """[batch sizes, 2] of the interval of a target; None where the rows say nothing of it."""
    posterior = _posterior(device, host_is_given)
    if target == "energy_j":
        if posterior.power_deviation is None:
            return None
        sigma = np.hypot(posterior.power_deviation, posterior.deviation(calls))
    else:
        sigma = posterior.deviation(calls, device_only=target == "device_ms")
    ends = deviations(confidence) * np.hypot(sigma, beyond)
    return np.exp(np.stack([-ends, ends], axis=-1))


def _power_factors(power: np.ndarray) -> np.ndarray:
    """Factors over the terms of energy, from the corrections of static and of dynamic power."""
    out: np.ndarray = np.exp(np.array([power[0 if term == "waiting" else 1] for term in energy_law.TERMS]))
    return out


def _posterior(device: Device, host_is_given: bool) -> Posterior:
    assert device.adaptation is not None
    found = posterior_of(device.adaptation)
    if not host_is_given:
        return found
    without = found.corrections.copy()
    without[HOST:] = 0.0
    return replace(found, corrections=without)
