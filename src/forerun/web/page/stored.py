"""The answers of the tab Data: measurements, predicted against actual, errors by family, the scoreboard. Nothing here
writes."""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from forerun._util.readable import pretty, short
from forerun.errors import ForerunError
from forerun.report import charts
from forerun.report.parts import Chart
from forerun.views.blocks import Column, Line, Row, Share, Table
from forerun.views.html.fragments import fragment
from forerun.web.page.figures import charts_html
from forerun.web.requests import Asked

VIEWS = {
    "measurements": "Measurements", "predicted": "Predicted and actual", "families": "Error by family",
    "scoreboard": "Scoreboard",
}  # fmt: skip
_TARGETS = {
    "latency_ms": ("Latency", "ms"), "device_ms": ("Device time", "ms"), "memory_mb": ("Memory", "MB"),
    "energy_j": ("Energy", "J"),
}  # fmt: skip
_MEASURED = (
    "model", "device", "mode", "batch", "seq_len", "dtype", "runtime", "latency_ms", "device_ms", "memory_mb",
    "energy_j", "dataset", "measured_at",
)  # fmt: skip
_NUMBERS = ("batch", "seq_len", "latency_ms", "device_ms", "memory_mb", "energy_j")
#: Columns that a narrow page hides behind a click: the highest first.
_RANKS = {"model": 0, "device": 0, "latency_ms": 0, "mode": 1, "batch": 1, "dtype": 2, "seq_len": 2, "memory_mb": 2,
          "energy_j": 2}  # fmt: skip
_FIGURES = ("mape", "median_ape", "acc10", "interval_coverage", "noise_floor")
_ROWS = 200
#: The most points of a scatter plot; more would overlap.
_POINTS = 1500


class PageDataRequest(Asked):
    """The part of the data to show."""

    view: Literal["measurements", "predicted", "families", "scoreboard"] = "measurements"
    model: Annotated[str, Field(max_length=200)] = ""
    device: Annotated[str, Field(max_length=200)] = ""
    mode: Annotated[str, Field(max_length=40)] = ""


def data(request: dict[str, Any]) -> dict[str, Any]:
    """One view of the data."""
    views = {"measurements": _measurements, "predicted": _predicted, "families": _families}
    return {"html": views[request["view"]](request)}


def _filtered(frame: pd.DataFrame, request: dict[str, Any]) -> pd.DataFrame:
    for name in ("model", "device", "mode"):
        part = request.get(name)
        if part:
            frame = frame[frame[name].str.contains(part, case=False, regex=False, na=False)]
    if frame.empty:
        given = ", ".join(f"{name} {short(request[name])}" for name in ("model", "device", "mode") if request.get(name))
        raise ForerunError(f"no row has {given}" if given else "the store has no rows")
    return frame


def _measurements(request: dict[str, Any]) -> str:
    from forerun.data.store import Store

    frame = Store().read("models", columns=[*_MEASURED, "status"])
    frame = _filtered(frame[frame["status"] == "ok"], request)
    shown = frame.sort_values("measured_at", ascending=False, kind="stable").head(_ROWS)
    columns = [Column(_heading(n), right=n in _NUMBERS, wrap=n == "model", rank=_RANKS.get(n, 3)) for n in _MEASURED]
    rows = [Row([_cell(name, row[name]) for name in _MEASURED]) for row in shown.to_dict("records")]
    caption = f"The newest {len(shown):,} of {len(frame):,} rows." if len(frame) > len(shown) else ""
    title = (
        f"{len(frame):,} measurements of {frame['model'].nunique():,} models on {frame['device'].nunique():,} devices"
    )
    return fragment([Line(title, "title"), Table(columns, rows, shown=40, caption=caption)])


def _heading(name: str) -> str:
    for unit in ("ms", "mb", "j"):
        if name.endswith(f"_{unit}"):
            return f"{name.removesuffix(f'_{unit}')} {unit.upper() if unit != 'ms' else unit}"
    return {"seq_len": "sequence", "measured_at": "measured", "dataset": "data set"}.get(name, name)


def _cell(name: str, value: Any) -> str:
    if value is None or value != value:
        return ""
    if name in ("batch", "seq_len"):
        return f"{int(value):,}"
    if name in _NUMBERS:
        return pretty(float(value))
    return str(value)[:10] if name == "measured_at" else str(value)


@functools.cache
def _left_out() -> pd.DataFrame:
    """Predictions of the shipped predictor for models of held-out families; repeats once."""
    from forerun.evaluate.stored import stored_predictions
    from forerun.predictors.saved import SHIPPED

    frame = stored_predictions(SHIPPED / "default")
    return frame[(frame["repeat"] == 0) & (frame["status"] == "ok")]


def _predicted(request: dict[str, Any]) -> str:
    frame = _filtered(_left_out(), request)
    drawn = [chart for name in _TARGETS for chart in _scatter(frame, name)]
    caption = (
        "Each point is a measured case of a held-out family of models; on the line both are equal, within the dotted "
        "lines they differ by less than a factor of 1.25."
    )
    return charts_html(f"Predicted against actual, {len(frame):,} cases", drawn, caption=caption)


def _pairs(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    known = frame[(frame[name] > 0) & (frame[f"predicted_{name}"] > 0)]
    return known.assign(actual=known[name], predicted=known[f"predicted_{name}"])


def _scatter(frame: pd.DataFrame, name: str) -> list[Chart]:
    known = _pairs(frame, name)
    if known.empty:
        return []
    words, unit = _TARGETS[name]
    error = float((known["predicted"] / known["actual"] - 1).abs().mean())
    sampled = known.sample(_POINTS, random_state=0) if len(known) > _POINTS else known
    chart = charts.figure(f"measured, {unit}", f"predicted, {unit}", height=360)
    ends = [float(known[["actual", "predicted"]].min().min()), float(known[["actual", "predicted"]].max().max())]
    for factor, dash in ((1.0, "solid"), (1.25, "dot"), (0.8, "dot")):
        chart.add_scatter(
            x=ends, y=[factor * end for end in ends], mode="lines", hoverinfo="skip",
            line={"color": charts.GREY, "width": 1, "dash": dash},
        )  # fmt: skip
    chart.add_scatter(
        x=sampled["actual"].tolist(), y=sampled["predicted"].tolist(), mode="markers",
        marker={"size": 4, "color": charts.colour(0), "opacity": 0.45},
        text=[f"{html.escape(str(r.model))}, {r.mode}, batch {r.batch:.0f}, {r.dtype}" for r in sampled.itertuples()],
        hovertemplate="%{text}<br>measured %{x:.4g}, predicted %{y:.4g}<extra></extra>",
    )  # fmt: skip
    ends = ends if ends[1] > 1.5 * ends[0] else [ends[0] / 1.5, ends[1] * 1.5]
    charts.log_axis(chart, ends, axis="xaxis")
    charts.log_axis(chart, ends)
    return [Chart(f"{words}: off by {100 * error:.1f} % on average", chart)]


def _families(request: dict[str, Any]) -> str:
    frame = _filtered(_left_out(), request)
    errors = {}
    for name in _TARGETS:
        known = _pairs(frame, name)
        errors[name] = (known["predicted"] / known["actual"] - 1).abs().groupby(known["family"]).mean()
    counts = frame.groupby("family").size()
    order = errors["device_ms"].reindex(counts.index).sort_values(ascending=False, na_position="last").index
    columns = [Column("family"), Column("cases", right=True, rank=1),
               *(Column(w, right=True) for w, _ in _TARGETS.values()), Column("device time")]  # fmt: skip
    rows = []
    for family in order:
        by_target = [float(errors[name].get(family, np.nan)) for name in _TARGETS]
        share = by_target[1] if math.isfinite(by_target[1]) else 0.0
        rows.append(Row([str(family), f"{counts[family]:,}", *map(_percent, by_target), Share(share)]))
    caption = "Mean absolute percentage error on each family, held out of training."
    return fragment([Line("Error by family", "title"), Table(columns, rows, shown=40, caption=caption)])


def _percent(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{100 * value:.1f} %"


def scoreboard_html(board: dict[str, Sequence[dict[str, Any]]]) -> str:
    """What `forerun evaluate` prints for the shipped predictor."""
    titles = {
        "left_out_families": "Held-out families",
        "exam": "The test set: families never used for tuning",
    }
    blocks: list[Any] = [Line("Scoreboard", "title")]
    heads = {
        "quantity": 0, "cases": 0, "predictor": 0, "n": 1, "mean error": 0, "median": 2, "within 10 %": 2,
        "in the interval": 1, "noise floor": 2,
    }  # fmt: skip
    columns = [Column(head, right=at > 2, rank=rank) for at, (head, rank) in enumerate(heads.items())]
    for name, title in titles.items():
        rows = [
            Row([_heading(str(r["target"])).replace("_", " "), str(r["regime"]), str(r["predictor"]), f"{r['n']:,.0f}",
                 *(_percent(r.get(key)) for key in _FIGURES)])
            for r in board.get(name, ())
        ]  # fmt: skip
        blocks.append(Table(columns, rows, title=title))
    return fragment([*blocks, Line("The noise floor is the spread of repeated measurements.", "faint")])
