"""Why a candidate, or every candidate, is infeasible: the limiting constraint, and the nearest feasible value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun._util.readable import pretty
from forerun.advice.limits import Limit, Measure, best_place, binding
from forerun.advice.verdict import DOES_NOT
from forerun.decisions.recommend.offers import Excluded, Offer, Wanted
from forerun.errors import ForerunError
from forerun.runtimes.registry import USUAL

if TYPE_CHECKING:
    import pandas as pd


def nothing_is_offered(want: Wanted, excluded: Sequence[Excluded]) -> ForerunError:
    """The error where there is no candidate at all, before anything is predicted."""
    words = []
    if want.devices:
        words.append(f"the devices {', '.join(d.id for d in want.devices)}")
    if want.vendors:
        words.append(f"the vendors {', '.join(want.vendors)}")
    if want.clouds:
        words.append(f"the clouds {', '.join(want.clouds)}")
    if want.regions:
        words.append(f"the regions {', '.join(want.region_words)}")
    if want.gpus:
        words.append(f"{' or '.join(map(str, want.gpus))} devices")
    wanted = " with ".join(words) or "the catalogue"
    reason = f": {excluded[0].device} {excluded[0].reason}" if excluded else ""
    return ForerunError(f"nothing is offered for {wanted}{reason}")


def why_not(part: Mapping[str, np.ndarray], limits: Sequence[Limit], items: str) -> str:
    """Why one offer is infeasible at every batch and dtype; `part` has its columns of the table."""
    able = ~np.array([isinstance(e, str) for e in part["error"]])
    if not able.any():
        return str(part["error"][0])
    fitting = able & (part["runs"] < DOES_NOT.place)
    if not fitting.any():
        return f"does not fit: {_size(_rows(part, able))}"
    return _missed(_rows(part, fitting), limits, items) or "its goal is unknown"


def _rows(columns: Mapping[str, np.ndarray], chosen: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[chosen] for name, values in columns.items()}


def _missed(fitting: Mapping[str, np.ndarray], limits: Sequence[Limit], items: str) -> str:
    limiting = binding(limits, [limit.verdicts(fitting) for limit in limits])
    if not limiting:
        return ""
    if len(limiting) > 1:
        return f"does not meet {' and '.join(limits[i].text(items) for i in limiting)} together"
    limit = limits[limiting[0]]
    at = best_place(fitting[limit.measure.column], limit.measure)
    miss = limit.miss(float(fitting[limit.measure.column][at]), items)
    return f"does not meet {limit.text(items)}: {miss} at {setting({name: v[at] for name, v in fitting.items()})}"


def nothing_keeps(table: pd.DataFrame, offers: Sequence[Offer], limits: Sequence[Limit], items: str) -> ForerunError:
    """The error where no candidate is within all limits: the limiting constraint, and what is nearest."""
    able = _able(table)
    if able.empty:
        return ForerunError(f"no candidate can run it: {table['error'].iloc[0]}")
    fitting = able[able["runs"] < DOES_NOT.place]
    if fitting.empty:
        return ForerunError(_too_large(able, offers))
    verdicts = [limit.verdicts(fitting) for limit in limits]
    limiting = binding(limits, verdicts)
    if not limiting:
        return ForerunError("the quantity to rank by is unknown for every candidate")
    if len(limiting) == 1:
        limit = limits[limiting[0]]
        return ForerunError(f"no candidate meets {limit.text(items)}: {_nearest(fitting, limit, offers, items)}")
    parts = []
    for i in limiting:
        others = np.logical_and.reduce([verdicts[k] < DOES_NOT.place for k in limiting if k != i])
        rest = " and ".join(limits[k].text(items) for k in limiting if k != i)
        parts.append(f"within {rest}, {_nearest(fitting[others], limits[i], offers, items)}")
    wanted = " and ".join(limits[i].text(items) for i in limiting)
    return ForerunError(f"no candidate meets {wanted} together: {'; '.join(parts)}")


def _nearest(rows: pd.DataFrame, limit: Limit, offers: Sequence[Offer], items: str) -> str:
    """'the least latency is 3.2 ms (h200, batch 1, fp16)'."""
    m = limit.measure
    first = rows.iloc[best_place(rows[m.column].to_numpy(), m)]
    if np.isnan(float(first[m.column])):
        return f"the {m.words} of all of them is unknown"
    shown = rows[rows["shown"] & rows[m.column].notna()]
    row = first if shown.empty else shown.iloc[best_place(shown[m.column].to_numpy(), m)]
    peaks = "" if row["shown"] else ", from its peaks alone"
    best = "highest" if m.more_is_better else "least"
    supposed = offers[int(row["offer"])].supposed(m)
    text = f"the {best} {m.words} is {m.text(float(row[m.column]), items)} ({_where(row, offers, m)}{peaks}){supposed}"
    if row["shown"] and not first["shown"] and (better := m.text(float(first[m.column]), items)):
        text += f"; from its peaks alone {first['device']} has {better}"
    return text


def setting(row: Any) -> str:
    """'batch 8, fp16': how a candidate runs."""
    runtime = "" if row["runtime"] == USUAL else f", {row['runtime']}"
    return f"batch {row['batch']}, {row['dtype']}{runtime}"


def _where(row: pd.Series, offers: Sequence[Offer], measure: Measure) -> str:
    """'8 x l4 on g6.48xlarge, batch 1, fp16'."""
    offer = offers[int(row["offer"])]
    many = f"{offer.count} x " if offer.count > 1 else ""
    where = f" on {offer.instance.id}" if offer.instance and measure.column.startswith("usd") else ""
    return f"{many}{row['device']}{where}, {setting(row)}"


def _able(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a prediction, whether they fit or not."""
    return rows[~rows["error"].map(lambda e: isinstance(e, str))]


def _too_large(able: pd.DataFrame, offers: Sequence[Offer]) -> str:
    """The memory needed on the largest device, and that device's."""
    devices = {offer.device.id: offer.device.usable_mb or 0.0 for offer in offers}
    most = max(able["device"].unique(), key=lambda name: devices[name])
    needs = _size(able[able["device"] == most])
    have = f"{pretty(devices[most] / 1024)} GB usable"
    return f"no candidate is large enough: {needs}, and {most}, the largest, has {have}"


def _size(rows: Any) -> str:
    """'it needs at least 812 GB (batch 1, fp16)'."""
    needed = np.asarray(rows["memory_mb"], dtype=float)
    at = int(np.nanargmin(needed))
    row = {name: np.asarray(rows[name])[at] for name in ("batch", "dtype", "runtime", "memory_mb")}
    return f"it needs at least {pretty(float(row['memory_mb']) / 1024)} GB ({setting(row)})"
