"""The style of a report's charts: curves with their intervals, measured points, axes."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forerun._util.extras import needed
from forerun.prediction import Estimate
from forerun.views.html.bars import COLOURS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from forerun.data.measured import Measured

#: The colour of elements that belong to no single curve: ceilings, measured points in a legend.
GREY = "#8b8f98"
BOUND = {"compute": "#3b82c4", "memory": "#e07b39", "launch": GREY}


def colour(number: int) -> str:
    """The colour of the first, second ... of several curves."""
    return COLOURS[number % len(COLOURS)]


def objects() -> Any:
    """plotly's graph objects, or one sentence with the command that installs them."""
    with needed("a report"):
        import plotly.graph_objects as go
    return go


def figure(x: str, y: str, *, height: int = 340) -> Figure:
    """An empty chart; the page sets the colours of text, axes and grid."""
    chart = objects().Figure()
    chart.update_layout(
        template=objects().layout.Template(), height=height, margin={"l": 62, "r": 18, "t": 14, "b": 52},
        showlegend=False, xaxis={"title": {"text": x, "standoff": 8}}, yaxis={"title": {"text": y, "standoff": 8}},
    )  # fmt: skip
    return chart


def batches_axis(chart: Figure, batches: Sequence[int]) -> None:
    """The x axis of batch sizes."""
    chart.update_xaxes(type="log", tickvals=list(batches), ticktext=[f"{b:,}" for b in batches], tickangle=0)


def log_axis(chart: Figure, values: Sequence[float], *, axis: str = "yaxis") -> None:
    """A logarithmic axis with a few round ticks."""
    low, high = min(values), max(values)
    steps = (1,) if high / low > 300 else (1, 3) if high / low > 30 else (1, 2, 5)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [t for d in decades for s in steps if 0.8 * low < (t := s * 10.0**d) < 1.25 * high]
    chart.update_layout({axis: {"type": "log", "tickvals": ticks, "ticktext": [_tick(t) for t in ticks]}})
    chart.update_layout({axis: {"range": [math.log10(low) - 0.06, math.log10(high) + 0.06]}})


def _tick(value: float) -> str:
    for least, factor, letter in (
        (1e15, 1e15, "P"),
        (1e12, 1e12, "T"),
        (1e9, 1e9, "G"),
        (1e6, 1e6, "M"),
        (1e4, 1e3, "k"),
    ):
        if value >= least:
            return f"{value / factor:g}{letter}"
    return f"{value:g}"


def curve(
    chart: Figure,
    x: Sequence[float],
    estimates: Sequence[Estimate],
    name: str,
    colour: str,
    *,
    hollow: Sequence[bool] = (),
) -> None:
    """A predicted curve with its interval as a band; `hollow` points are cases that do not fit."""
    unit = estimates[0].unit if estimates else ""
    group = {"hoverinfo": "skip", "mode": "lines", "line": {"width": 0}}
    chart.add_scatter(x=list(x), y=[e.high for e in estimates], **group)
    chart.add_scatter(x=list(x), y=[e.low for e in estimates], fill="tonexty", fillcolor=_faint(colour), **group)
    symbols = ["circle-open" if not_fit else "circle" for not_fit in hollow] if any(hollow) else "circle"
    chart.add_scatter(
        x=list(x), y=[e.value for e in estimates], name=name, mode="lines+markers",
        line={"color": colour, "width": 2}, marker={"symbol": symbols, "size": 6, "color": colour},
        customdata=[[e.low, e.high] for e in estimates],
        hovertemplate=f"{html.escape(name)}, %{{x}}<br>%{{y:.4g}} {unit} "
        "(%{customdata[0]:.4g} … %{customdata[1]:.4g})"
        "<extra></extra>",
    )  # fmt: skip


def measured_points(
    chart: Figure, points: Sequence[tuple[float, float, Measured]], name: str, colour: str
) -> None:  # fmt: skip
    """Measurements, as diamonds over the curves."""
    if points:
        chart.add_scatter(
            x=[x for x, _, _ in points], y=[y for _, y, _ in points], mode="markers", name=f"{name}, measured",
            marker={"symbol": "diamond", "size": 10, "color": colour, "line": {"width": 1.5, "color": "#ffffff"}},
            text=[m.line for _, _, m in points], hovertemplate="%{y:.4g}<br>%{text}<extra></extra>",
        )  # fmt: skip


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"
