"""Intervals of the default predictor: quantiles of held-out errors, by group, wider out of distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.device import Device
from forerun.graph.profile import Profile
from forerun.prediction import deviations
from forerun.predictors.base import Times
from forerun.predictors.default import domain
from forerun.predictors.default.weights import Weights, network_name
from forerun.predictors.laws import energy, many_cores, other_cards
from forerun.predictors.laws.conformal import at_confidence
from forerun.predictors.laws.spreads import not_below
from forerun.runtimes.registry import USUAL, of_row
from forerun.workload import Workload


def learned(
    weights: Weights, target: str, times: Times, profile: Profile, devices: Sequence[Device], workload: Workload,
    wider: np.ndarray, confidence: float,
) -> np.ndarray:  # fmt: skip
    """(low, high) of a target over [batch sizes, devices] as factors; `wider` is the deviation, over devices, of what
    is out of distribution."""
    on_cpu, value = devices[0].traits.is_host, getattr(times, target)
    calibration, host_bound = weights.calibration, times.host_ms > times.device_ms
    assert times.disagreement is not None
    out = np.empty((*value.shape, 2))
    for side, selected in (("host", host_bound), ("device", ~host_bound)):
        group = (
            f"{network_name(devices[0].kind, workload.runtime)}/{workload.mode}"
            if on_cpu
            else f"{target}/{of_row(workload.runtime).calibration_group(workload.mode, target)}/{side}"
        )
        beyond = np.broadcast_to(wider, value.shape)[selected]
        edges = calibration.intervals(group, confidence, beyond, times.disagreement[selected])
        out[selected] = np.stack(edges, axis=-1)
        cards = _of_other_cards(weights, target, side, profile, devices, workload, confidence)
        if cards is not None:
            new, ends, others = cards
            here = selected & new
            beyond = np.broadcast_to(others, value.shape)[here]
            low, high = calibration.intervals(group, confidence, beyond, times.disagreement[here])
            more = beyond * deviations(confidence)
            low = np.minimum(low, np.exp(-np.hypot(np.log(ends[0]), more)))
            high = np.maximum(high, np.exp(np.hypot(np.log(ends[1]), more)))
            out[here] = np.stack((low, high), axis=-1)
    if on_cpu and target == "energy_j":
        out = _with_power(out, times, devices, confidence)
    return not_below(out, value, np.zeros_like(value) if target == "energy_j" else times.roofline_ms)


def _of_other_cards(
    weights: Weights, target: str, side: str, profile: Profile, devices: Sequence[Device], workload: Workload,
    confidence: float,
) -> tuple[np.ndarray, tuple[float, float], np.ndarray] | None:  # fmt: skip
    """For times that the device sets: on which devices nobody measured models, the interval of errors on held-out
    cards, and the deviation, over devices, of all else that is out of distribution. None where no card says."""
    ends = other_cards.current().intervals.get(workload.mode)
    if ends is None or of_row(workload.runtime).name != USUAL or devices[0].traits.is_host:
        return None
    if target not in ("device_ms", "latency_ms") or (target == "latency_ms" and side == "host"):
        return None
    new = np.array([other_cards.current().unmeasured(one, weights.domain) for one in devices])
    others = domain.sigma(weights, profile, devices, workload, of_cards=True)
    return new, at_confidence(ends, confidence), others


def _with_power(out: np.ndarray, times: Times, devices: Sequence[Device], confidence: float) -> np.ndarray:
    """Intervals of a CPU's energy: those of its time, with the doubt about its power, which nobody measured."""
    watts = times.energy_j / np.maximum(times.latency_ms, 1e-12) * 1e3
    power = many_cores.power_factors(devices, watts, at_confidence(energy.POWER_SPREAD, confidence))
    logs = np.hypot(np.log(out), np.log(power))
    return np.exp(np.stack((-logs[..., 0], logs[..., 1]), axis=-1))
