"""Tables as HTML: numbers to the right, intervals as bars, parts indented under their whole, long tables folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forerun.views.blocks import Cell, Column, Row, Share, Span, Table
from forerun.views.html.bars import Scale, interval_html, scale_of, share_html, text


def table_html(table: Table) -> str:
    """The table under its title; rows beyond `shown` are folded away, the whole of it where `shown` is 0."""
    table = _stacked(table)
    shown = len(table.rows) if table.shown is None else table.shown
    draw = _Drawing(table)
    out = ""
    if shown:
        out += f"<h3>{text(table.title)}</h3>" if table.title else ""
        out += draw.rows(table.rows[:shown])
    if len(table.rows) > shown:
        words = table.title if not shown else f"{len(table.rows) - shown} more rows"
        out += folded_html(words, draw.rows(table.rows[shown:]))
    return out + (f'<p class="caption">{text(table.caption)}</p>' if table.caption else "")


def _stacked(table: Table) -> Table:
    """The table with intervals below their numbers instead of beside them, at half the width. Tables of one thing,
    with one quantity per row, have the width."""
    columns = list(table.columns)
    rows = [list(row.cells) for row in table.rows]
    headings = []
    for at in range(len(columns) - 1, 0, -1):
        cells = [row[at] for row in rows]
        apart = any(isinstance(cell, Span) and not cell.number for cell in cells) and not columns[at].relative
        if not apart or not columns[at - 1].right or any(isinstance(row[at - 1], (Span, Share)) for row in rows):
            continue
        headings.append(columns.pop(at).heading)
        for row in rows:
            number, interval = row[at - 1], row.pop(at)
            row[at - 1] = replace(interval, number=str(number)) if isinstance(interval, Span) else number
    if not headings:
        return table
    below = f"Under a number its {headings[0]}."
    caption = f"{table.caption} {below}" if table.caption else below
    cells_of = [replace(row, cells=cells) for row, cells in zip(table.rows, rows, strict=True)]
    return replace(table, columns=columns, rows=cells_of, caption=caption)


def folded_html(words: str, inside: str) -> str:
    """HTML that opens when its summary is clicked."""
    return f"<details><summary>{text(words)}</summary>{inside}</details>"


class _Drawing:
    """A table with the scales of its columns, which folded rows share with those that are shown."""

    def __init__(self, table: Table) -> None:
        self.columns = table.columns
        self.scales: list[Scale | None] = []
        self.largest: list[float] = []
        self.kinds: list[str] = []
        for at, column in enumerate(table.columns):
            cells = [row.cells[at] for row in table.rows]
            self.scales.append(scale_of((cell for cell in cells if isinstance(cell, Span)), column.relative))
            self.largest.append(max((cell.share for cell in cells if isinstance(cell, Share)), default=0.0))
            self.kinds.append(_kind(column, cells))
        # Quantities of one thing, one below the other: on a narrow page, each becomes a few lines.
        self.card = any(column.relative for column in table.columns)
        self.kind = "card" if self.card else "tight" if len(table.columns) > _MANY else ""

    def rows(self, rows: Sequence[Row]) -> str:
        heads = "".join(map(self._head, self.columns, self.kinds))
        head = f"<thead><tr>{heads}</tr></thead>" if any(c.heading for c in self.columns) else ""
        body = "".join(map(self._row, rows))
        frame = " ".join(filter(None, ("scroll", self.kind)))
        return f'<div class="{frame}"><table>{head}<tbody>{body}</tbody></table></div>'

    def _head(self, column: Column, kind: str) -> str:
        over = ' colspan="2"' if column.units else ""
        rank = f' data-rank="{column.rank}"' if column.rank else ""
        kinds = class_html("n" if "n" in kind.split() and not over else "")
        return f"<th{kinds}{over}{rank}>{text(column.heading)}</th>"

    def _row(self, row: Row) -> str:
        cells = "".join(self._cell(cell, at) for at, cell in enumerate(row.cells))
        return f"<tr{class_html(row.tone, 'part' if row.depth else '')}>{cells}</tr>"

    def _cell(self, cell: Cell, at: int) -> str:
        column, kind = self.columns[at], self.kinds[at]
        if isinstance(cell, Span):
            inside = interval_html(cell, self.scales[at])
        elif isinstance(cell, Share):
            inside = share_html(cell, self.largest[at])
        elif column.units:
            number, _, unit = cell.partition(" ")
            return f"<td{class_html(kind)}>{text(number)}</td><td{class_html('unit')}>{text(unit)}</td>"
        else:
            inside = f"<code>{text(cell)}</code>" if column.code and cell else text(cell)
        named = f' data-heading="{text(column.heading)}"' if self.card and at and column.heading else ""
        return f"<td{class_html(kind)}{named}>{inside}</td>"


#: A table of more columns than this is set tighter.
_MANY = 8
#: Words longer than this may be broken into several lines.
_LONG = 36


def _kind(column: Column, cells: Sequence[Cell]) -> str:
    """The classes of a column's cells: n(umbers), span, words that may be broken, faint or strong ones."""
    tone = {"best": "strong", "faint": "faint"}.get(column.tone, "")
    if any(isinstance(cell, Span) and not cell.number for cell in cells):
        return "span"
    broken = column.wrap and any(isinstance(cell, str) and len(cell) > _LONG for cell in cells)
    return " ".join(filter(None, ("n" if column.right else "", "words" if broken else "", tone)))


def class_html(*names: str) -> str:
    """The attribute that gives an element these classes; nothing where all are empty."""
    joined = " ".join(filter(None, names))
    return f' class="{joined}"' if joined else ""
