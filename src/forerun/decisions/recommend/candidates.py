"""The table of candidates: every offer at every batch and dtype, with its memory, cost and throughput."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from forerun.advice.cost import usd_per_ms
from forerun.advice.data_parallel import gradient_mb, scaled
from forerun.advice.job import with_waits
from forerun.advice.limits import Limit
from forerun.advice.verdict import DOES_NOT, MEETS, PROBABLY
from forerun.decisions.recommend.offers import Offer
from forerun.device import Device
from forerun.device.carbon import carbon_g
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.prediction import Estimate
from forerun.predictors.base import Predictor
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

#: Ends of an interval, as columns of a table name them.
ENDS = ("", "_low", "_high")


def candidates(
    predictions: pd.DataFrame, offers: Sequence[Offer], graph: Graph, workload: Workload, predictor: Predictor
) -> pd.DataFrame:
    """One row for each offer and each prediction on its device; `offer` is the index of the offer, `runs` whether it
    can run and fits.

    Calls of inference run side by side on all devices of an offer; training steps are shared between them.
    """
    import pandas as pd

    listed = pd.DataFrame(
        {"offer": np.arange(len(offers)), "device": [o.device.id for o in offers], "count": [o.count for o in offers],
         "usd_per_hour": [o.usd_per_hour for o in offers],
         "usd_per_ms": [usd_per_ms(o.usd_per_hour * o.share) for o in offers],
         "unused_w": [o.unused_w for o in offers], "carbon_per_j": [carbon_g(1.0, o.grid) for o in offers],
         "shown": [predictor.generation_measured(o.device) for o in offers]}
    )  # fmt: skip
    for name in ("latency_ms", "throughput", "energy_j", "basis", "bound", "error", "surely_fits"):
        if name not in predictions:  # nothing fits anywhere
            predictions = predictions.assign(**{name: np.nan})
    t = predictions.rename(columns={"energy_low_j": "energy_j_low", "energy_high_j": "energy_j_high"})
    for name in ("latency", "memory"):
        unit = "ms" if name == "latency" else "mb"
        t = t.rename(columns={f"{name}_{end}_{unit}": f"{name}_{unit}_{end}" for end in ("low", "high")})
    t = t.merge(listed, on="device", how="inner")
    t = t.reindex(columns=list(dict.fromkeys([*t.columns, *_needed()])))
    items = np.round(t["throughput"] * t["latency_ms"] / 1e3)
    if workload.mode == "training":
        t = _shared_steps(t, offers, graph)
    handled = t["count"] * items
    t["throughput"], t["throughput_low"], t["throughput_high"] = (
        1e3 * handled / t[f"latency_ms{end}"] for end in ("", "_high", "_low")
    )
    for end in ENDS:
        ms = t[f"latency_ms{end}"]
        t[f"usd_per_million{end}"] = t["usd_per_ms"] * ms * 1e6 / handled
        t[f"energy_j{end}"] = (t[f"energy_j{end}"] + t["unused_w"] * ms / 1e3) / items
        t[f"carbon_g{end}"] = t[f"energy_j{end}"] * 1e6 * t["carbon_per_j"]
        if end:
            t[f"usd_per_hour{end}"] = t["usd_per_hour"]
    return t.assign(runs=_runs(t))


def kept_by_the_host(table: pd.DataFrame, offers: Sequence[Offer], limits: Sequence[Limit]) -> list[Device]:
    """GPUs of measured generations that miss the latency limit because they are host-bound, where no measured one is
    within all limits."""
    latency = [limit for limit in limits if limit.measure.column == "latency_ms"]
    shown = table[table["shown"] & (table["runs"] < DOES_NOT.place)]
    if not latency or shown.empty:
        return []
    keeps = np.logical_and.reduce([limit.verdicts(shown) < DOES_NOT.place for limit in limits])
    waits = shown["bound"].eq("host") & (latency[0].verdicts(shown) == DOES_NOT.place)
    if keeps.any():
        return []
    devices = (offers[int(place)].device for place in shown.loc[waits, "offer"].unique())
    return list(dict.fromkeys(d for d in devices if d.traits.is_board))


def _runs(t: pd.DataFrame) -> np.ndarray:
    """MEETS where a case can run and surely fits, PROBABLY where its memory is uncertain or unknown, else DOES_NOT."""
    fails = t["error"].map(lambda e: isinstance(e, str)) | t["latency_ms"].isna() | t["fits"].eq(False)
    return np.select([fails, t["surely_fits"].eq(True)], [DOES_NOT.place, MEETS.place], PROBABLY.place)


def _needed() -> list[str]:
    return [f"{name}{end}" for name in ("latency_ms", "memory_mb", "energy_j") for end in ENDS]


def _shared_steps(t: pd.DataFrame, offers: Sequence[Offer], graph: Graph) -> pd.DataFrame:
    """Training steps on several devices: the gradients are summed after each (advice/data_parallel.py), and devices
    wait for the sum (advice/job.py)."""
    steps, energies = (
        t[[f"{name}{end}" for end in ENDS]].to_numpy(dtype=float, copy=True) for name in ("latency_ms", "energy_j")
    )
    errors = t["error"].to_numpy(dtype=object).copy()
    for at, (offer, count, dtype) in enumerate(zip(t["offer"], t["count"], t["dtype"], strict=True)):
        if count == 1:
            continue
        value, low, high = map(float, steps[at])  # NaN where it does not fit
        alone = Estimate(value, low, high, "ms")
        try:
            device, instance = offers[offer].device, offers[offer].instance
            own = instance if instance is not None and instance.device_id == device.id else None
            step = scaled(alone, gradient_mb(graph.parameters, dtype), device, int(count), own).step_ms
        except ForerunError as error:
            errors[at] = str(error)
            continue
        value, low, high = map(float, energies[at])
        energy = with_waits(Estimate(value, low, high, "J"), alone, step, offers[offer].device)
        steps[at], energies[at] = (step.value, step.low, step.high), (energy.value, energy.low, energy.high)
    columns = {"latency_ms": steps, "energy_j": energies}
    return t.assign(
        **{f"{name}{end}": ends[:, i] for name, ends in columns.items() for i, end in enumerate(ENDS)}, error=errors
    )
