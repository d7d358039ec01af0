"""Candidates in order: verdict first, then measured generations before others, then the goal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.advice.limits import Limit, Measure, best_place, binding, pareto_front
from forerun.advice.verdict import DOES_NOT, MEETS, PROBABLY, Verdict, held_back
from forerun.decisions.recommend.infeasible import setting, why_not
from forerun.decisions.recommend.offers import Excluded, Offer
from forerun.decisions.recommend.recommendation import Choice
from forerun.prediction import Estimate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Ranked:
    """The ranked candidates."""

    rows: tuple[Choice, ...]
    candidates: tuple[Choice, ...]
    latency_cost_front: tuple[Choice, ...]
    energy_throughput_front: tuple[Choice, ...]
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]


def ranked(
    table: pd.DataFrame, offers: Sequence[Offer], limits: Sequence[Limit], goal: Measure, items: str, confidence: float
) -> Ranked:
    """Every offer at its best batch and dtype, in order; the fronts are over all batches and dtypes."""
    verdicts = [limit.verdicts(table) for limit in limits]
    overall = np.max([table["runs"].to_numpy(), *verdicts], axis=0)
    unshown = ~table["shown"].to_numpy(dtype=bool)
    overall = np.where(unshown & (overall == MEETS.place), PROBABLY.place, overall)
    value = table[goal.column].to_numpy(dtype=float)
    overall = np.where(np.isnan(value), DOES_NOT.place, overall)
    score = -value if goal.more_is_better else value
    t = table.assign(verdict=overall, score=score, unshown=unshown, place=np.arange(len(table)))
    order = ["verdict", "unshown", "score", "count", "usd_per_hour", "latency_ms", "batch"]
    keeping = t[t["verdict"] < DOES_NOT.place].sort_values(order, kind="stable")
    fronts = [_front(keeping, *pair) for pair in (("latency_ms", "usd_per_million"), ("energy_j", "throughput"))]

    def choice(row: Any) -> Choice:
        at = int(row["place"])
        chosen = _choice(row, offers[int(row["offer"])], items)
        offer = offers[int(row["offer"])]
        least = (PROBABLY if row["unshown"] else MEETS).place
        sentences = tuple(
            limit.sentence(Verdict.at(max(int(v[at]), least)), row, items, confidence) + offer.supposed(limit.measure)
            for limit, v in zip(limits, verdicts, strict=True)
        )
        unsure = () if row["runs"] == MEETS.place else (_unsure(offer),)
        on = [at in front for front in fronts]
        return replace(
            chosen,
            reasons=sentences + unsure + _basis(row),
            on_latency_cost_front=on[0],
            on_energy_throughput_front=on[1],
        )

    firsts = keeping.drop_duplicates("offer").to_dict("records")
    listed = tuple(choice(row) for row in firsts)
    by_place = {
        int(row["place"]): row
        for row in keeping[keeping["place"].isin([p for f in fronts for p in f])].to_dict("records")
    }
    firsts_of = {(c.device.partition("/")[0], c.cloud): c for c in reversed(listed)}
    rows = tuple(c for c in listed if firsts_of[c.device.partition("/")[0], c.cloud] is c)
    drawn = [tuple(choice(by_place[p]) for p in front) for front in fronts]
    rest = t[~t["offer"].isin(keeping["offer"].unique())]
    excluded = tuple(
        Excluded(offer.device.id, offer.instance_id, offer.count, why_not(part, limits, items))
        for offer, part in _by_offer(rest, offers)
    )
    notes = _held_back(keeping, goal, items) + _nearest_shown(t, keeping, limits, items)
    return Ranked(rows, listed, drawn[0], drawn[1], excluded, notes)


def _by_offer(rows: pd.DataFrame, offers: Sequence[Offer]) -> Iterator[tuple[Offer, dict[str, np.ndarray]]]:
    """Every offer with its columns; a frame for each would take ten times as long."""
    if rows.empty:
        return
    rows = rows.sort_values("offer", kind="stable")
    columns = {str(name): rows[name].to_numpy() for name in rows}
    places, starts = np.unique(columns["offer"], return_index=True)
    for place, start, end in zip(places, starts, [*starts[1:], len(rows)], strict=True):
        yield offers[int(place)], {name: values[start:end] for name, values in columns.items()}


def _front(rows: pd.DataFrame, first: str, second: str) -> list[int]:
    """Places on the Pareto front, of measured generations where there are any: peaks alone are too optimistic."""
    subset = rows if rows["unshown"].all() else rows[~rows["unshown"]]
    subset = subset[subset["verdict"] == subset["verdict"].min()] if len(subset) else subset
    x, y = subset[first].to_numpy(dtype=float), subset[second].to_numpy(dtype=float)
    return [int(subset["place"].iloc[p]) for p in pareto_front(x, -y if second == "throughput" else y)]


def _unsure(offer: Offer) -> str:
    """Why a feasible case may not fit."""
    if offer.device.memory_mb is None:
        return f"whether it fits is unknown, as the memory of {offer.device.id} is"
    return "probably fits: the upper end of its memory does not"


def _basis(row: Any) -> tuple[str, ...]:
    if not row["unshown"]:
        return ()
    what = "its kind" if row["basis"] == "roofline" else "its generation"
    return (f"no device of {what} was measured: at best probably",)


def _held_back(rows: pd.DataFrame, goal: Measure, items: str) -> tuple[str, ...]:
    """A note where a candidate of an unmeasured generation would come first by the goal alone."""
    best = rows.loc[rows["score"].idxmin()] if len(rows) else None
    if best is None or not best["unshown"] or rows["unshown"].iloc[0]:
        return ()
    first = rows.iloc[0]
    first_text, other = (goal.text(float(row[goal.column]), items) for row in (first, best))
    if first_text == other:
        return ()
    return (held_back(best["device"], first["device"], goal.words, other, first_text),)


def _nearest_shown(t: pd.DataFrame, keeping: pd.DataFrame, limits: Sequence[Limit], items: str) -> tuple[str, ...]:
    """A note where no device of a measured generation is within the limits: how near one comes to the limiting one."""
    shown = t[~t["unshown"] & (t["runs"] < DOES_NOT.place)]
    if keeping.empty or not keeping["unshown"].all() or shown.empty:
        return ()
    limiting = binding(limits, [limit.verdicts(shown) for limit in limits])
    if len(limiting) != 1:
        return ()
    limit = limits[limiting[0]]
    row = shown.iloc[best_place(shown[limit.measure.column].to_numpy(), limit.measure)]
    miss = limit.miss(float(row[limit.measure.column]), items)
    return (
        f"no device of a measured generation meets {limit.text(items)}: {row['device']} comes nearest with {miss} "
        f"({setting(row)}{', host-bound' if row['bound'] == 'host' else ''})",
    )


def _choice(row: Any, offer: Offer, items: str) -> Choice:
    def estimate(name: str, unit: str) -> Estimate | None:
        value, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
        return None if np.isnan(value) else Estimate(value, low, high, unit)

    latency, throughput, memory = (
        estimate("latency_ms", "ms"),
        estimate("throughput", f"{items}/s"),
        estimate("memory_mb", "MB"),
    )
    assert latency is not None
    assert throughput is not None
    assert memory is not None
    price = float(row["usd_per_hour"])
    i = offer.instance
    return Choice(
        device=offer.device.id, count=offer.count, instance=offer.instance_id, instances=offer.instances,
        cloud=i.cloud if i else None,
        price_region=i.region if i else None, grid=offer.grid.id, share=offer.share, batch=int(row["batch"]),
        dtype=str(row["dtype"]), runtime=str(row["runtime"]), latency_ms=latency, throughput=throughput,
        memory_mb=memory,
        usd_per_hour=None if np.isnan(price) else price,
        usd_per_million=estimate("usd_per_million", "USD"), energy_j=estimate("energy_j", "J"),
        carbon_g=estimate("carbon_g", "g"), verdict=Verdict.at(int(row["verdict"])), reasons=(),
        basis=str(row["basis"]), generation_measured=not row["unshown"],
    )  # fmt: skip
