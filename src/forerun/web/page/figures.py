"""Charts in the page: plotly's figures as data of an empty element, which page.js draws in the page's colours."""

from __future__ import annotations

import json
from collections.abc import Sequence

from forerun.report.page import keys_html
from forerun.report.parts import Chart, Key
from forerun.views.html.bars import text
from forerun.views.html.charts import rounded


def charts_html(
    title: str, charts: Sequence[Chart], *, keys: Sequence[Key] = (), caption: str = "", wide: bool = False
) -> str:
    """Charts side by side under a title; empty where there are none."""
    if not charts:
        return ""
    pictures = "".join(_chart(title, chart) for chart in charts)
    words = f'<p class="caption">{text(caption)}</p>' if caption else ""
    kind = "charts wide" if wide else "charts"
    return (
        f'<section class="forerun drawn"><h3>{text(title)}</h3>{words}{keys_html(keys)}'
        f'<div class="{kind}">{pictures}</div></section>'
    )


def _chart(title: str, chart: Chart) -> str:
    content = json.loads(chart.figure.to_json(validate=False))
    data = json.dumps({"data": rounded(content["data"]), "layout": content["layout"]}, separators=(",", ":"))
    words = text(f"{title}: {chart.title}")
    caption = f"<figcaption>{text(chart.title)}</figcaption>" if chart.title else ""
    height = int(content["layout"]["height"])
    plot = (
        f'<div class="plot" style="height:{height}px" role="img" aria-label="{words}" data-figure="{text(data)}"></div>'
    )
    return f'<figure class="chart">{caption}{plot}</figure>'
