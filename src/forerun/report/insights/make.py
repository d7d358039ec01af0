"""`make_insights` and `select_features`: a study of all rows of the store, as a page and as plain data."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun._util import extras
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.prediction import DEVICE_BOUND
from forerun.report.insights import learned, pairs
from forerun.report.insights.rows import MOST_ROWS, TARGETS, Rows, read
from forerun.report.insights.sections import sections
from forerun.report.insights.words import conclusions
from forerun.report.page import page
from forerun.report.written import checked, write

_FOOTER = "Made by forerun data insights from rows of the store; the page has its data as JSON in the element"


@dataclass(frozen=True)
class Insights:
    """A finished study: the page, its numbers as plain data, and its sentences."""

    html: str
    data: dict[str, Any]
    conclusions: tuple[str, ...]
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**self.data, "path": None if self.path is None else str(self.path)}


def make_insights(
    output: str | Path | None = None, store: Store | None = None, *, where: str | None = None,
    features: Sequence[str] | None = None, rows: int = MOST_ROWS,
) -> Insights:  # fmt: skip
    """What size, batch, prompt length, precision and device do to time, memory and energy over the rows of a store.

    Written to `output` where one is given. `where` is an SQL condition on the table `models`, `features` are the
    columns to study, and `rows` is how many cases are read at most.
    """
    place = None if output is None else checked(output, "insights.html")
    extras.require("a study of the rows", "plotly", "xgboost")
    cases = read(store or Store(), where, features, rows)
    effects, laws = pairs.effects(cases), pairs.size_laws(cases)
    waits = pairs.host_bound(cases, DEVICE_BOUND)
    explained = [found for target in TARGETS if (found := learned.explain(cases, target))]
    selection = _selection(cases)
    said = conclusions(cases, effects, laws, waits, explained, selection)
    data = {
        "cases": len(cases), "left_out": cases.left_out, "where": where, "conclusions": said,
        "effects": [effect.to_dict() for effect in effects], "size_laws": [vars(law) for law in laws],
        "host_bound": waits,
        "explained": [
            {"target": one.target, "cases": one.cases, "held_out_median_error": one.error,
             "mean_factor": {str(k): float(v) for k, v in one.strength.items()},
             "dependence": [{"feature": c.feature, "values": list(c.values), "predicted": list(c.predicted)}
                            for c in one.dependence]}
            for one in explained
        ],
        "selection": None if selection is None else selection.to_dict(),
    }  # fmt: skip
    lines = tuple(line for section in said.values() for line in section)
    boxes = [("What the rows say", [section[0] for section in said.values()])]
    html = page(
        "What our measurements say", _about(cases), boxes, sections(said, effects, explained, selection),
        _notes(cases), data, footer=_FOOTER,
    )  # fmt: skip
    if place is not None:
        write(place, html)
    return Insights(html, data, lines, place)


def select_features(
    target: str, store: Store | None = None, *, where: str | None = None, features: Sequence[str] | None = None,
    rows: int = MOST_ROWS,
) -> learned.Selection:  # fmt: skip
    """Which columns predict a quantity on families that were held out."""
    extras.require("feature selection", "xgboost")
    learned.check_target(target)
    return learned.select(read(store or Store(), where, features, rows), target)


def _selection(cases: Rows) -> learned.Selection | None:
    try:
        return learned.select(cases, "latency_ms")
    except ForerunError:  # too few families; the page says so
        return None


def _about(cases: Rows) -> list[str]:
    frame = cases.frame
    today = datetime.datetime.now(datetime.UTC).date()
    return [
        f"{len(cases):,} measured cases of {frame['model'].nunique():,} models of {frame['family'].nunique():,} "
        f"families on {frame['device'].nunique()} devices, from {frame['dataset'].nunique()} data sets, read on "
        f"{today}. Every number in a sentence is computed from these rows."
    ]


def _notes(cases: Rows) -> list[str]:
    lines = [
        f"{count:,} {'cases' if 'sampled' in reason else 'rows'} {reason}." for reason, count in cases.left_out.items()
    ]
    return [
        *lines,
        "A factor is that of a typical pair: of the same model, device, batch, prompt, precision, optimizer and "
        "runtime but for what is compared. Pairs between devices may be of different data sets.",
        "Energy is that of the device alone, and known of GPUs only. Memory includes what the framework reserves.",
        "Operations and work of our rows are those of captured graphs where forerun-data is installed; else the row's.",
    ]
