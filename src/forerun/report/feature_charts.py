"""Charts of feature attributions of a predicted latency: of one prediction, and over many cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forerun._util.readable import pretty
from forerun.errors import ForerunError
from forerun.predictors.attribution import Attribution
from forerun.report import charts
from forerun.views.attribution import number, times

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: Colours of features that make a call slower, and faster.
SLOWER, FASTER = "#e07b39", "#3b82c4"


def waterfall(attribution: Attribution, count: int = 12) -> Figure:
    """From the predictor's mean to its prediction, a bar for every feature on a logarithmic axis."""
    shown, rest = attribution.top(count)
    steps = [
        (f"{part.feature} = {'unknown' if part.value is None else number(part.value)}", part.factor) for part in shown
    ]
    if len(attribution.factors) > len(shown):
        steps.append((f"{len(attribution.factors) - len(shown)} more", rest))
    chart = charts.figure("latency, ms", "", height=110 + 30 * (len(steps) + 2))
    at = attribution.usual_ms
    _bar(chart, "usual", at, at, f"{pretty(at)} ms", charts.GREY)
    reached = [at]
    for name, factor in steps:
        _bar(chart, name, at, at * factor, times(factor), SLOWER if factor > 1 else FASTER)
        at *= factor
        reached.append(at)
    _bar(chart, "predicted", at, at, f"{pretty(at)} ms", charts.GREY)
    charts.log_axis(chart, [min(reached) / 1.3, max(reached) * 1.3], axis="xaxis")
    chart.update_layout(
        title={"text": f"{attribution.model} on {attribution.device}: what the predictor {attribution.predictor} sees"},
        margin={"l": 230, "t": 50}, bargap=0.3, yaxis={"autorange": "reversed", "type": "category"},
    )  # fmt: skip
    return chart


def _bar(chart: Figure, name: str, start: float, end: float, words: str, colour: str) -> None:
    """A bar from one latency to the other; a dot where they are equal."""
    if start == end:
        chart.add_scatter(
            x=[end], y=[name], mode="markers+text", text=[words], textposition="middle right",
            marker={"size": 10, "color": colour}, hoverinfo="skip",
        )  # fmt: skip
        return
    chart.add_bar(
        x=[abs(end - start)], base=[min(start, end)], y=[name], orientation="h", marker={"color": colour},
        text=[words], textposition="outside", hovertemplate=f"{pretty(start)} → {pretty(end)} ms<extra></extra>",
    )  # fmt: skip


def summary_bars(table: pd.DataFrame, count: int = 15) -> Figure:
    """The features that change latencies most, by the mean size of their factor (`trees.summary.summary`)."""
    top = table.head(count)
    chart = charts.figure("mean change of the latency, %", "", height=90 + 26 * len(top))
    chart.add_bar(
        x=(100 * (np.exp(top["mean_log"]) - 1)).tolist(), y=top["feature"].tolist(), orientation="h",
        marker={"color": FASTER}, hovertemplate="%{y}: %{x:.3g} %<extra></extra>",
    )  # fmt: skip
    chart.update_layout(margin={"l": 150}, yaxis={"autorange": "reversed", "type": "category"})
    return chart


def beeswarm(shares: pd.DataFrame, values: pd.DataFrame, count: int = 12, quantity: str = "latency") -> Figure:
    """A point for every case and feature: right is more, and the colour is the rank of the feature's value; grey where
    no case has a value that is a number."""
    order = shares.abs().mean().sort_values(ascending=False, kind="stable").index[:count]
    rng = np.random.default_rng(0)
    chart = charts.figure(f"factor on the {quantity}", "", height=110 + 34 * len(order))
    for place, name in enumerate(order):
        rank = values[name].rank(pct=True)
        ranked = {"color": rank.fillna(0.5).tolist(), "colorscale": [[0, FASTER], [1, SLOWER]]}
        chart.add_scatter(
            x=np.exp(shares[name]).tolist(), y=(place + 0.25 * rng.uniform(-1, 1, len(shares))).tolist(),
            mode="markers", name=str(name), text=[number(v) if v == v else "unknown" for v in values[name]],
            marker={"size": 4, **(ranked if rank.notna().any() else {"color": charts.GREY})},
            hovertemplate=f"{name} = %{{text}}: × %{{x:.3g}}<extra></extra>",
        )  # fmt: skip
    low, high = (float(np.exp(f(shares[list(order)].to_numpy()))) for f in (np.min, np.max))
    charts.log_axis(chart, [low, high], axis="xaxis")
    ticks: dict[str, Any] = {"tickvals": list(range(len(order))), "ticktext": [str(n) for n in order]}
    chart.update_layout(margin={"l": 150}, yaxis={"autorange": "reversed", **ticks})
    return chart


def write(chart: Figure, path: Path) -> None:
    """A chart as a self-contained page."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ForerunError(f"a figure is written as a page: give a name that ends in .html, not {path.name}")
    if not path.parent.is_dir():
        raise ForerunError(f"there is no folder {path.parent} for {path.name}")
    chart.write_html(path, include_plotlyjs=True, full_html=True)
