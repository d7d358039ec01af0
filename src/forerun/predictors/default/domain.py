"""Where a question lies outside the training data of the default predictor, and how much wider its intervals are."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.device import Device
from forerun.graph.profile import CLASSES, UNITS, Profile
from forerun.graph.variants import VARIANTS
from forerun.predictors.base import OutOfDistribution
from forerun.predictors.default.weights import Weights
from forerun.predictors.laws.conformal import power_deviation
from forerun.predictors.laws.specs import slowest_unit
from forerun.runtimes.registry import BUILT_IN, of_row
from forerun.workload import Workload

#: Slowdowns at the power limit up to this are among those of the cards that intervals are calibrated on.
POWER_SHOWN = 1.6


def domain_of(weights: Weights, workload: Workload) -> Mapping[str, Any]:
    """The domain of the training data, under the runtime of the workload where that has rows of its own."""
    domain, part = weights.domain, of_row(workload.runtime).part
    return domain if part is None else domain.get(part, {})


def unseen_device(weights: Weights, device: Device, workload: Workload) -> list[OutOfDistribution]:
    """The respects in which a device is outside the training data."""
    seen = domain_of(weights, workload)
    found = []
    if device.adaptation is None and device.id not in seen.get("devices", ()):
        known = [
            ("models_of", "others published times of a few models"),
            ("operators_of", "only operators were measured"),
        ]
        what = next((text for name, text in known if device.id in seen.get(name, ())), "nothing was measured")
        reason = f"{what} on {device.id}: the rest is inferred from its spec sheet"
        found.append(OutOfDistribution("device", reason))
    if device.generation_note:
        found.append(OutOfDistribution("generation", device.generation_note))
    return found


def unseen_ops(weights: Weights, profile: Profile, workload: Workload) -> list[OutOfDistribution]:
    """The respects in which ops and runtime are outside the training data, on any device."""
    seen, run = domain_of(weights, workload), of_row(workload.runtime)
    found = []
    shown = weights.domain.get("runtimes", BUILT_IN)  # older weights do not say: they saw those of forerun
    if run.name not in shown and run.column_of_eager is None:
        found.append(
            OutOfDistribution("runtime", f"nothing was measured under runtime {run.name}: its costs are assumed")
        )
    kinds = sorted({f"{CLASSES[c]}/{VARIANTS[v]}" for c, v in profile.kinds} - set(seen.get("ops", ())))
    if kinds:
        names = ", ".join(kind.strip("/") for kind in kinds[:4])
        found.append(OutOfDistribution("ops", f"kinds of op that no measurement shows: {names}"))
    used = {UNITS[u] for u in profile.units_used}
    if run.part is not None:  # its rows are of CPUs, which have no TF32
        used = {"fp32" if unit == "tf32" else unit for unit in used}
    units = used - set(seen.get("units", ()))
    if units:
        found.append(OutOfDistribution("dtype", f"no measurement in {', '.join(sorted(units))}"))
    elif "fp8" in {UNITS[u] for u in profile.units_used}:
        # Of fp8, matmuls alone were measured: neither whole models nor the casts around the matmuls.
        reason = "no model was measured in fp8, single matmuls alone: the rest is extrapolated"
        casts = "casts to fp8, which no measurement shows"
        found += [OutOfDistribution("dtype", reason), OutOfDistribution("ops", casts)]
    return found


def sigma(
    weights: Weights, profile: Profile, devices: Sequence[Device], workload: Workload, of_cards: bool = False
) -> np.ndarray:
    """How much wider intervals are for what was not measured, over devices; without the device itself where the errors
    are `of_cards`, which were held out too, nor the slowdown at the power limit as far as these have it."""
    known = set(domain_of(weights, workload).get("devices", ()))
    unseen = [found.what for found in unseen_ops(weights, profile, workload)]
    deviation = functools.cache(weights.calibration.deviation)
    seen = np.array([d.id in known or d.adaptation is not None for d in devices])
    wider = np.array([
        deviation((*unseen, *(() if of_cards or own else ("device",)), *(("generation",) if d.generation_note else ())))
        for d, own in zip(devices, seen, strict=True)
    ])  # fmt: skip
    slower = slowest_unit(devices, profile.units_used)
    if of_cards:
        slower = np.maximum(slower / POWER_SHOWN, 1.0)
    found: np.ndarray = np.hypot(wider, ~seen * power_deviation(slower))
    return found
