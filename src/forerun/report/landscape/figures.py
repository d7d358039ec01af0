"""Plotly's figures of the study as one self-contained page, and the same figures as small pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun._util.extras import needed
from forerun.views.html.bars import text
from forerun.views.html.charts import chart_html, charts_html, page_head

#: Colours that the colour-blind distinguish too (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#f0e442")
_DOTS = 110  # a PNG's dots per inch


@dataclass(frozen=True)
class Drawn:
    """A figure with its title, its description, and the command that reproduces it."""

    name: str
    title: str
    words: str
    command: str
    figure: Any


def empty(x: str, y: str, *, height: int = 380, log_x: bool = False, log_y: bool = False) -> Any:
    """A figure with named axes; the page sets its colours."""
    with needed("a figure", "landscape"):
        import plotly.graph_objects as go
    figure = go.Figure()
    figure.update_layout(
        template=go.layout.Template(), height=height, margin={"l": 70, "r": 18, "t": 14, "b": 56},
        xaxis={"title": {"text": x}, "type": "log" if log_x else "linear"},
        yaxis={"title": {"text": y}, "type": "log" if log_y else "linear"}, legend={"orientation": "h", "y": 1.12},
    )  # fmt: skip
    return figure


def page(title: str, about: Sequence[str], drawn: Sequence[Drawn], tables: Sequence[str] = ()) -> str:
    """A page of figures, each with the command that reproduces it; `tables` are HTML."""
    charts: list[dict[str, Any]] = []
    sections = "\n".join(
        f'<section id="{text(drawing.name)}"><h2>{text(drawing.title)}</h2><p class="about">{text(drawing.words)}</p>'
        f"{chart_html(drawing.figure, drawing.title, drawing.title, charts)}"
        f'<p class="caption">Made by <code>{text(drawing.command)}</code></p></section>'
        for drawing in drawn
    )
    lines = "".join(f'<p class="about">{text(line)}</p>' for line in about)
    return f"""{page_head(title)}
<body>
<header><h1>{text(title)}</h1>
{lines}</header>
<main>
{sections}
{"".join(f"<section>{table}</section>" for table in tables)}
</main>
{charts_html(charts)}
</body>
</html>
"""


def picture(figure: Any, path: Path) -> None:
    """A PNG of a figure of points, lines and bars, for documents that show no pages."""
    with needed("a picture", "landscape"):
        import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    content = json.loads(figure.to_json(validate=False))
    layout = content["layout"]
    canvas, axes = pyplot.subplots(figsize=(7.2, layout["height"] / 90), layout="constrained")
    bars = [trace for trace in content["data"] if trace["type"] == "bar"]
    for at, trace in enumerate(bars):
        _bars(axes, trace, at, len(bars))
    for trace in content["data"]:
        if trace["type"] != "bar":
            _points(axes, trace)
    for name, scale, label in (
        ("xaxis", axes.set_xscale, axes.set_xlabel),
        ("yaxis", axes.set_yscale, axes.set_ylabel),
    ):
        axis = layout[name]
        if axis.get("type") == "log":
            scale("log")
        label(axis["title"]["text"])
        if "ticktext" in axis:
            (axes.set_xticks if name == "xaxis" else axes.set_yticks)(axis["tickvals"], axis["ticktext"])
        if axis.get("autorange") == "reversed":
            axes.invert_yaxis()
        if "range" in axis:
            ends = [10**end for end in axis["range"]] if axis.get("type") == "log" else axis["range"]
            (axes.set_xlim if name == "xaxis" else axes.set_ylim)(*ends)
    axes.grid(alpha=0.3)
    if len([handle for handle in axes.get_legend_handles_labels()[1] if handle]) > 1:
        axes.legend(fontsize=8, framealpha=0.8)
    part = path.with_name(f".{path.name}")
    canvas.savefig(part, dpi=_DOTS, format="png")
    pyplot.close(canvas)
    part.replace(path)


def _points(axes: Any, trace: dict[str, Any]) -> None:
    """A trace of points or lines."""
    marker, line = trace.get("marker", {}), trace.get("line", {})
    label = trace.get("name") if trace.get("showlegend", True) else None
    if "markers" not in trace.get("mode", "markers"):
        styles = {"dash": "--", "dot": ":"}
        style = styles.get(line.get("dash", ""), "-")
        axes.plot(trace["x"], trace["y"], style, color=line.get("color"), linewidth=line.get("width", 1.5), label=label)
        return
    colour = marker.get("color")
    extra_settings = (
        {"c": colour, "cmap": "coolwarm", "vmin": 0, "vmax": 1} if isinstance(colour, list) else {"color": colour}
    )
    axes.scatter(
        trace["x"], trace["y"], s=marker.get("size", 6) ** 2 / 1.6, alpha=marker.get("opacity", 0.8), label=label,
        linewidths=0, **extra_settings,
    )  # fmt: skip


def _bars(axes: Any, trace: dict[str, Any], at: int, many: int) -> None:
    """A trace of bars beside those of the others."""
    colour = trace.get("marker", {}).get("color")
    if trace.get("orientation") == "h":
        axes.barh(list(trace["y"]), trace["x"], color=colour, label=trace.get("name"))
        return
    wide = 0.8 / many
    places = [place + (at - (many - 1) / 2) * wide for place in range(len(trace["x"]))]
    axes.bar(places, trace["y"], wide, color=colour, label=trace.get("name"))
    axes.set_xticks(range(len(trace["x"])), trace["x"], rotation=20, ha="right", fontsize=8)
