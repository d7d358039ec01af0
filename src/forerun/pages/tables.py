"""Tables as HTML: numbers to the right, intervals as bars, parts indented under their whole, long tables folded."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.blocks import Cell, Column, Row, Share, Span, Table
from forerun.pages.bars import Scale, interval_html, scale_of, share_html, text


def table_html(table: Table) -> str:
    """The table under its title; rows beyond `shown` are folded away, the whole of it where `shown` is 0."""
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


def folded_html(words: str, inside: str) -> str:
    """HTML that opens when its words are clicked."""
    return f"<details><summary>{text(words)}</summary>{inside}</details>"


class _Drawing:
    """A table with the scales of its columns, which folded rows share with those that are shown."""

    def __init__(self, table: Table) -> None:
        self.columns = table.columns
        cells = [[row.cells[at] for row in table.rows] for at in range(len(table.columns))]
        self.scales: list[Scale | None] = []
        self.largest: list[float] = []
        self.kinds: list[str] = []
        for column, found in zip(table.columns, cells, strict=True):
            spans = [cell for cell in found if isinstance(cell, Span)]
            self.scales.append(scale_of(spans, column.relative))
            self.largest.append(max((cell.share for cell in found if isinstance(cell, Share)), default=0.0))
            self.kinds.append(_kind(column, spans))

    def rows(self, rows: Sequence[Row]) -> str:
        heads = "".join(
            f"<th{_class(kind if kind == 'n' else '')}>{text(column.heading)}</th>"
            for column, kind in zip(self.columns, self.kinds, strict=True)
        )
        head = f"<thead><tr>{heads}</tr></thead>" if any(c.heading for c in self.columns) else ""
        body = "".join(self._row(row) for row in rows)
        return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'

    def _row(self, row: Row) -> str:
        cells = "".join(f"<td{_class(self.kinds[at])}>{self._cell(cell, at)}</td>" for at, cell in enumerate(row.cells))
        return f"<tr{_class(' '.join(filter(None, (row.tone, 'part' if row.depth else ''))))}>{cells}</tr>"

    def _cell(self, cell: Cell, at: int) -> str:
        if isinstance(cell, Span):
            return interval_html(cell, self.scales[at])
        if isinstance(cell, Share):
            return share_html(cell, self.largest[at])
        return f"<code>{text(cell)}</code>" if self.columns[at].code and cell else text(cell)


def _kind(column: Column, spans: Sequence[Span]) -> str:
    """The class of a column's cells: n(umbers), spans, words or short words."""
    if spans and not any(span.number for span in spans):
        return "span"
    return "n" if column.right else "words" if column.wrap else ""


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
