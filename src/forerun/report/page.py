"""The page: one HTML file with its style, its charts, plotly itself and the data, and no reference to anything else."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forerun import blocks
from forerun.blocks import Column, Row
from forerun.errors import MissingPackage
from forerun.pages import page_style, table_html
from forerun.pages.bars import text
from forerun.report.parts import Chart, Group, Key, Level, Table

_HERE = Path(__file__).parent


def plotly_element() -> str:
    """The code of plotly, as its Python package carries it, for page.js to unpack: 2 MB as gzip in base64 instead of 5.
    Its notice of version and licence stays readable."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as e:
        raise MissingPackage("a report", "plotly", "pip install 'forerun[report]'") from e
    code = str(get_plotlyjs())
    notice = code.partition("*/")[0].lstrip("/* \n")
    packed = base64.b64encode(gzip.compress(code.encode(), mtime=0)).decode()
    return f'<!-- {notice.strip()} -->\n<script type="application/octet-stream" id="plotly">{packed}</script>'


def page(
    title: str, about: Sequence[str], summary: Sequence[tuple[str, Sequence[str]]], levels: Sequence[Level],
    notes: Sequence[str], data: dict[str, Any],
) -> str:  # fmt: skip
    """The whole report as HTML. All text of users is escaped."""
    charts: list[dict[str, Any]] = []
    sections = "\n".join(_level(level, charts) for level in levels)
    links = [("summary", "Summary"), *((level.id, level.title) for level in levels), ("notes", "Notes")]
    menu = "".join(f'<li><a href="#{text(name)}">{text(words)}</a></li>' for name, words in links)
    boxes = "\n".join(f"<h2>{text(head)}</h2>\n{_list(lines)}" for head, lines in summary if lines)
    return f"""<!DOCTYPE html>
<html lang="en" class="forerun">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{text(title)}</title>
<style>
{page_style()}</style>
</head>
<body>
<nav aria-label="Sections"><ul>{menu}</ul></nav>
<header>
<h1>{text(title)}</h1>
{"".join(f'<p class="about">{text(line)}</p>' for line in about)}
</header>
<main>
<section class="summary" id="summary">
{boxes}
</section>
{sections}
<section id="notes"><h2>Notes</h2>
{_list(notes)}</section>
</main>
<footer>Every number is a prediction (<code>forerun predict --no-measured</code>) unless it says measured. The page
holds all its data as JSON in the element <code>report-data</code>.</footer>
<script type="application/json" id="report-data">{_json(data)}</script>
<script type="application/json" id="charts">{_json(charts)}</script>
{plotly_element()}
<script>{(_HERE / "page.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


#: The browser itself refuses to fetch anything: a page that opens offline asks for nothing.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


_SIGNS = {"line": "━━", "dash": "╍╍", "dot": "┅┅", "circle": "●", "triangle": "▲", "diamond": "◆"}


def _json(data: Any) -> str:
    """JSON that cannot end the element it stands in, of twelve digits; what is not finite is null."""
    found = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
    return found.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return value.item() if hasattr(value, "item") else str(value)


def _list(lines: Sequence[str]) -> str:
    return f'<ul class="findings">{"".join(f"<li>{text(line)}</li>" for line in lines)}</ul>'


def _level(level: Level, charts: list[dict[str, Any]]) -> str:
    pictures = "\n".join(_group(group, charts) for group in level.groups)
    tables = "\n".join(_table(table) for table in level.tables)
    return f"""<section id="{text(level.id)}"><h2>{text(level.title)}</h2>
<p class="about">{text(level.about)}</p>
{_list(level.findings)}
{pictures}
{tables}
</section>"""


def _group(group: Group, charts: list[dict[str, Any]]) -> str:
    pictures = "".join(_chart(group.title, chart, charts) for chart in group.charts)
    kind = "charts wide" if group.wide else "charts"
    caption = f'<p class="caption">{text(group.caption)}</p>' if group.caption else ""
    caption += keys_html(group.keys)
    return f'<h3>{text(group.title)}</h3>{caption}<div class="{kind}">{pictures}</div>'


def keys_html(keys: Sequence[Key]) -> str:
    """A legend; nothing where it has no entries."""
    entries = "".join(
        f'<li><i class="{key.sign}" style="color:{key.colour}">{_SIGNS[key.sign]}</i>{text(key.words)}</li>'
        for key in keys
    )
    return f'<ul class="keys">{entries}</ul>' if entries else ""


def _chart(title: str, chart: Chart, charts: list[dict[str, Any]]) -> str:
    name = f"chart-{len(charts) + 1}"
    made = json.loads(chart.figure.to_json(validate=False))
    charts.append({"id": name, "data": rounded(made["data"]), "layout": made["layout"]})
    words = text(f"{title}: {chart.title}")
    height = f"height:{made['layout']['height']}px"
    plot = f'<div class="plot" id="{name}" style="{height}" role="img" aria-label="{words}"></div>'
    return f'<figure class="chart"><figcaption>{text(chart.title)}</figcaption>{plot}</figure>'


def rounded(value: Any) -> Any:
    """What is drawn needs four digits; the data beside it has them all."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _table(table: Table) -> str:
    numbers, marked = set(table.numbers), set(table.marked)
    heads = [Column(name, right=at in numbers, wrap=at not in numbers) for at, name in enumerate(table.head)]
    rows = [Row(cells, "best" if at in marked else "") for at, cells in enumerate(table.rows)]
    return table_html(blocks.Table(heads, rows, table.title, table.shown, table.caption))
