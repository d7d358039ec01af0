"""The law of cards that nobody measured (`laws/other_cards.py`) on the ops of a workload, and of many cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.device import Device
from forerun.predictors.laws import other_cards
from forerun.predictors.laws.features import OpTable
from forerun.workload import Workload

if TYPE_CHECKING:
    from forerun.predictors.cases import Cases


def factors(
    table: OpTable, devices: Sequence[Device], workload: Workload, domain: Mapping[str, Any]
) -> np.ndarray | float:
    """By what the time of every op of a table of devices is multiplied, for lack of measurements."""
    if workload.mode != "training":
        return 1.0
    law, each = other_cards.current(), len(table.classes) // len(devices)
    cache, plain = (np.repeat(ends, each) for ends in law.of_devices(devices, domain))
    cache = cache * other_cards.halved(workload.dtype, workload.amp)
    return law.factors(table, cache, plain) if cache.any() or plain.any() else 1.0


def factors_of_cases(cases: Cases, domain: Mapping[str, Any]) -> np.ndarray:
    """The same of every op of a table of cases."""
    law, known = other_cards.current(), {d.id: d for d in cases.devices}
    found = dict(zip(known, zip(*law.of_devices(list(known.values()), domain), strict=True), strict=True))
    trains = (cases.rows["mode"] == "training").to_numpy() if "mode" in cases.rows else np.zeros(len(cases), bool)
    cache, plain = (np.array([found[d.id][at] for d in cases.devices])[cases.case] for at in range(2))
    if not trains.any() or not (cache.any() or plain.any()):
        return np.ones(len(cases.case))
    unknown = [None] * len(cases)
    numbers = zip(cases.rows.get("dtype", unknown), cases.rows.get("amp", unknown), strict=True)
    cache = cache * np.array([other_cards.halved(*each) for each in numbers])[cases.case]
    return np.where(trains[cases.case], law.factors(cases.ops, cache, plain), 1.0)
