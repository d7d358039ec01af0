"""Fits the corrections of a device to its cases, and judges them by models held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun._util.documents import read_yaml
from forerun.device import Device
from forerun.device.adapted import Adaptation
from forerun.errors import ForerunError
from forerun.predictors.base import Predictor
from forerun.predictors.laws import adaptation as law
from forerun.predictors.laws.adaptation import PARTS, Calls, Posterior, Prior
from forerun.predictors.laws.bounds import least_ms
from forerun.training.adapting.rows import Measured

#: The spread between devices that are known, by kind of device (benchmarks/adaptation/prior.py).
PRIORS = Path(law.__file__).with_suffix(".yaml")
#: Times are in another unit where they are this many times longer or shorter than predicted.
WRONG_UNIT = 150.0
#: A row contradicts the others where they expect another time by so many deviations, and by so much.
CONTRADICTS, BY = 3.5, np.log(1.3)
_NORMAL_90 = 1.645


@dataclass(frozen=True)
class Score:
    """Errors of predictions of rows whose models were held out."""

    mape: float  # per cent
    within_10: float  # per cent
    tau: float  # Kendall's; nan of fewer than three
    coverage: float  # per cent of 90 % intervals; nan where there are none


@dataclass(frozen=True)
class Fitted:
    """Corrections of a device, or of a kind of network on any device, and how good they are."""

    adaptation: Adaptation
    before: Score
    after: Score
    named: tuple[str, ...]  # rows that contradict each other or the spec sheet
    corrections: dict[str, tuple[float, float]]  # the factor of a part's time, and its deviation in logarithms
    power: dict[str, float]
    device: Device | None = None  # with its corrections; None: a kind of network


def prior_for(device: Device | None) -> Prior:
    """The spread between known devices of this kind, or between kinds of network."""
    return Prior.of(read_yaml(PRIORS)["priors"]["networks" if device is None else device.traits.part])


def adapt(device: Device, cases: Sequence[Measured], predictor: Predictor) -> Fitted:
    """Corrections of a device from its cases."""
    device = replace(device, adaptation=None)
    kept, posterior, scores, named = _time(
        [replace(case, device=device) for case in cases], prior_for(device), predictor
    )
    posterior, power = _with_power(posterior, kept, device, predictor)
    made = _adaptation(posterior, kept, predictor, power)
    device = replace(_with_context(device, kept), adaptation=made)
    return Fitted(made, *scores, named, _factors(posterior), power, device)


def adapt_networks(cases: Sequence[Measured], predictor: Predictor) -> Fitted:
    """Corrections of a kind of network from cases on known devices."""
    plain = [replace(case, device=replace(case.device, adaptation=None)) for case in cases]
    kept, posterior, scores, named = _time(plain, prior_for(None), predictor)
    return Fitted(_adaptation(posterior, kept, predictor, {}), *scores, named, _factors(posterior), {})


def _adaptation(
    posterior: Posterior, kept: Sequence[Measured], predictor: Predictor, power: dict[str, float]
) -> Adaptation:
    summary = {"corrections": _readable(posterior), "power": power}
    return law.to_adaptation(posterior, len(kept), predictor.stamp, summary)


def _time(
    cases: Sequence[Measured], prior: Prior, predictor: Predictor
) -> tuple[list[Measured], Posterior, tuple[Score, Score], tuple[str, ...]]:
    """The cases that count, corrections of their times, errors before and after, and cases to be named."""
    if len({str(case.row["model"]) for case in cases}) < 2:
        only = cases[0].row["model"] if cases else "none"
        raise ForerunError(
            f"all rows are of one model ({only}): whether it or the device is slow shows with a second one alone"
        )
    calls = law.join_calls([calls_of_case(case, predictor) for case in cases])
    measured = np.array([case.values["latency_ms"] for case in cases])
    off = np.log(measured / calls.latency_ms(np.zeros(len(PARTS))))
    check_unit(off)
    apart = np.abs(off - np.median(off)) > np.log(WRONG_UNIT)
    named = [
        f"{cases[place].words}: {measured[place]:.4g} ms looks like another unit; it was left out"
        for place in np.flatnonzero(apart).tolist()
    ]
    kept = [case for case, wrong in zip(cases, apart, strict=True) if not wrong]
    calls, measured, off = calls.take(~apart), measured[~apart], off[~apart]
    named += [line for case, time in zip(kept, measured, strict=True) if (line := _impossible(case, float(time)))]
    models = np.unique([str(case.row["model"]) for case in kept], return_inverse=True)[1]
    posterior, after = fitted(calls, measured, prior, models)
    residual, expected = law.leave_one_out(posterior)
    for place in np.flatnonzero((np.abs(residual) > CONTRADICTS * expected) & (np.abs(residual) > BY)):
        others = measured[place] / np.exp(residual[place])
        named.append(f"{kept[place].words}: {measured[place]:.4g} ms, where the other rows say {others:.4g} ms")
    before = score(measured, measured / np.exp(off), None)
    return kept, posterior, (before, after), tuple(named)


def _impossible(case: Measured, time: float) -> str | None:
    """A sentence where a time is less than the spec sheet allows."""
    least = float(least_ms(case.question.columns, [case.device], whole_programs=True)[0, 0])
    if time >= 0.95 * least:
        return None
    return (
        f"{case.words}: {time:.4g} ms is less than the {least:.4g} ms that the spec sheet allows: a peak or the "
        "bandwidth is too low in it, or something else was timed"
    )


def check_unit(off: np.ndarray) -> None:
    """Refuses times that are all in another unit than milliseconds."""
    median = float(np.exp(np.median(off)))
    if 1 / WRONG_UNIT < median < WRONG_UNIT:
        return
    unit = "microseconds" if median > 1 else "seconds"
    times = f"{median:,.0f} times longer" if median > 1 else f"{1 / median:,.0f} times shorter"
    raise ForerunError(f"these times are {times} than predicted: latency_ms is in milliseconds, and looks like {unit}")


def fitted(calls: Calls, measured: np.ndarray, prior: Prior, models: np.ndarray) -> tuple[Posterior, Score]:
    """The corrections, with intervals recalibrated, and their errors with each model held out; where they make held-out
    errors larger than none would, they are shrunken further."""
    rounding = rounding_of(measured)
    before = np.abs(np.log(measured / calls.latency_ms(np.zeros(len(PARTS)))))
    for strength in (1.0, 0.3, 0.1, 0.01):
        posterior = law.fit_noise(calls, measured, prior.shrunken(strength), rounding)
        residual, expected = law.held_out(posterior, models)
        if np.abs(residual).mean() <= before.mean():
            break
    posterior = replace(posterior, scale=law.calibrated_scale(residual, expected))
    return posterior, score(measured, measured / np.exp(residual), posterior.scale * expected)


def rounding_of(measured: np.ndarray) -> np.ndarray:
    """The deviation, in logarithms, of times that are given in whole milliseconds."""
    whole = len(measured) > 4 and bool((measured == np.round(measured)).all()) and float(measured.max()) < 1000
    return np.full(len(measured), 12**-0.5) / measured * whole


def score(measured: np.ndarray, predicted: np.ndarray, deviation: np.ndarray | None) -> Score:
    error = np.abs(predicted / measured - 1)
    inside = np.nan
    if deviation is not None:
        inside = 100 * float((np.abs(np.log(measured / predicted)) <= _NORMAL_90 * deviation).mean())
    return Score(100 * float(error.mean()), 100 * float((error <= 0.1).mean()), kendall(predicted, measured), inside)


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's tau-b."""
    if len(a) < 3:
        return float("nan")
    first, second = (np.sign(np.subtract.outer(each, each)) for each in (a, b))
    ties = np.sqrt(float((first != 0).sum()) * float((second != 0).sum()))
    return float((first * second).sum() / ties) if ties else float("nan")


def calls_of_case(case: Measured, predictor: Predictor) -> Calls:
    """The parts of a measured call."""
    calls = predictor.calls(case.question.columns, case.device, case.workload)
    if calls is None:
        raise ForerunError(f"the predictor {predictor.name} has no parts to correct")
    return calls


def _with_power(
    posterior: Posterior, cases: Sequence[Measured], device: Device, predictor: Predictor
) -> tuple[Posterior, dict[str, float]]:
    """With corrections of power where rows have energy."""
    known = [case for case in cases if case.values.get("energy_j", 0) > 0]
    if not known or device.tdp_w is None:
        return posterior, {}

    def joules(static: float) -> np.ndarray:
        trial = replace(posterior, power=np.array([static, 0.0]))
        adapted = replace(device, adaptation=law.to_adaptation(trial, len(cases), predictor.stamp, {}))
        each = [predictor.times(case.question.columns, [adapted], case.workload).energy_j[0, 0] for case in known]
        return np.array(each)

    dynamic = joules(-30.0)
    power, left = law.fit_power(joules(0.0) - dynamic, dynamic, np.array([case.values["energy_j"] for case in known]))
    words = {"static": round(float(np.exp(power[0])), 3), "dynamic": round(float(np.exp(power[1])), 3)}
    return replace(posterior, power=power, power_deviation=left), words


def _with_context(device: Device, cases: Sequence[Measured]) -> Device:
    """With the memory of the runtime's context, where rows have memory and nobody measured it: shrunken to the usual
    one as if that were one more row."""
    if "context_mb" in device.calibrated:
        return device
    beside = [
        case.values["memory_mb"] - case.question.memories([device])[0].reserved_mb
        for case in cases
        if case.values.get("memory_mb", 0) > 0
    ]
    if not beside:
        return device
    value = (float(np.median(beside)) * len(beside) + device.traits.context_mb) / (len(beside) + 1)
    return replace(device, calibrated={**device.calibrated, "context_mb": round(max(value, 1.0), 1)})


def _factors(posterior: Posterior) -> dict[str, tuple[float, float]]:
    deviations = np.sqrt(np.diag(posterior.covariance))
    there = posterior.slopes.max(axis=0) > 0.01  # what no row has is as the others say
    return {
        name: (float(np.exp(each)), float(deviation))
        for name, each, deviation, known in zip(PARTS, posterior.corrections, deviations, there, strict=True)
        if known
    }


def _readable(posterior: Posterior) -> dict[str, Any]:
    return {
        name: {"times": round(factor, 3), "deviation": round(deviation, 3)}
        for name, (factor, deviation) in _factors(posterior).items()
    }
