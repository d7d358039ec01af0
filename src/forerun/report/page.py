"""The page: one self-contained HTML file with its style, its charts, plotly and the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forerun.report.parts import Group, Key, Level, Table
from forerun.views import blocks
from forerun.views.blocks import Column, Row
from forerun.views.html.bars import text
from forerun.views.html.charts import chart_html, charts_html, json_text, page_head
from forerun.views.html.tables import table_html

#: What a footer says before the name of the element with the data.
PREDICTED = (
    "Every number is a prediction (forerun predict --no-measured) unless it says measured. The page has all its data "
    "as JSON in the element"
)


def page(
    title: str, about: Sequence[str], summary: Sequence[tuple[str, Sequence[str]]], levels: Sequence[Level],
    notes: Sequence[str], data: dict[str, Any], *, footer: str = PREDICTED,
) -> str:  # fmt: skip
    """The whole report as HTML. All text of users is escaped."""
    charts: list[dict[str, Any]] = []
    sections = "\n".join(_level(level, charts) for level in levels)
    links = [("summary", "Summary"), *((level.id, level.title) for level in levels), ("notes", "Notes")]
    menu = "".join(f'<li><a href="#{text(name)}">{text(words)}</a></li>' for name, words in links)
    boxes = "\n".join(f"<h2>{text(head)}</h2>\n{_list(lines)}" for head, lines in summary if lines)
    return f"""{page_head(title)}
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
<footer>{text(footer)} <code>report-data</code>.</footer>
<script type="application/json" id="report-data">{json_text(data)}</script>
{charts_html(charts)}
</body>
</html>
"""


_SIGNS = {"line": "━━", "dash": "╍╍", "dot": "┅┅", "circle": "●", "triangle": "▲", "diamond": "◆"}


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
    pictures = "".join(
        chart_html(chart.figure, chart.title, f"{group.title}: {chart.title}", charts) for chart in group.charts
    )
    kind = "charts wide" if group.wide else "charts"
    caption = f'<p class="caption">{text(group.caption)}</p>' if group.caption else ""
    caption += keys_html(group.keys)
    return f'<h3>{text(group.title)}</h3>{caption}<div class="{kind}">{pictures}</div>'


def keys_html(keys: Sequence[Key]) -> str:
    """A legend; empty without entries."""
    entries = "".join(
        f'<li><i class="{key.sign}" style="color:{key.colour}">{_SIGNS[key.sign]}</i>{text(key.words)}</li>'
        for key in keys
    )
    return f'<ul class="keys">{entries}</ul>' if entries else ""


def _table(table: Table) -> str:
    numbers, marked = set(table.numbers), set(table.marked)
    heads = [Column(name, right=at in numbers, wrap=at not in numbers) for at, name in enumerate(table.head)]
    rows = [Row(cells, "best" if at in marked else "") for at, cells in enumerate(table.rows)]
    return table_html(blocks.Table(heads, rows, table.title, table.shown, table.caption))
