"""Points of two quantities with their Pareto front."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun._util.readable import pretty
from forerun.advice.limits import pareto_front
from forerun.report import charts
from forerun.report.parts import Chart

#: Up to this many points are labelled.
_NAMED = 9


@dataclass(frozen=True)
class Point:
    """One choice: two numbers, what it is, its colour."""

    x: float
    y: float
    about: str
    colour: str


def scatter(
    title: str, x: str, y: str, points: Sequence[Point], *, more_x: bool = False, height: int = 340
) -> list[Chart]:
    """The chart, or none where there are no points; less of `y` is better, and less of `x` unless `more_x`."""
    if not points:
        return []
    chart = charts.figure(x, y, height=height)
    xs, ys = np.array([p.x for p in points]), np.array([p.y for p in points])
    front = sorted(pareto_front(-xs if more_x else xs, ys), key=lambda at: xs[at])
    chart.add_scatter(
        x=xs[front].tolist(), y=ys[front].tolist(), mode="lines", hoverinfo="skip",
        line={"color": charts.GREY, "width": 1.5, "dash": "dot"},
    )  # fmt: skip
    on = set(front)
    if len(points) <= _NAMED:
        chart.add_scatter(
            x=xs.tolist(), y=ys.tolist(), mode="text", text=[html.escape(p.about.partition(",")[0]) for p in points],
            textposition="top center", hoverinfo="skip",
        )  # fmt: skip
    chart.add_scatter(
        x=xs.tolist(), y=ys.tolist(), mode="markers",
        marker={"color": [p.colour for p in points], "size": [11 if at in on else 7 for at in range(len(points))],
                "opacity": 0.85, "line": {"width": 0.5, "color": "#ffffff"}},
        text=[f"{html.escape(p.about)}<br>{pretty(p.x)} {x}, {pretty(p.y)} {y}" for p in points],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    charts.log_axis(chart, _spread(xs), axis="xaxis")
    charts.log_axis(chart, _spread(ys))
    return [Chart(title, chart)]


def _spread(values: np.ndarray) -> list[float]:
    """The ends of an axis, far enough apart that a single point has ticks around it."""
    low, high = float(values.min()), float(values.max())
    return [low, high] if high > 8 * low else [low / 1.4, high * 1.4]
