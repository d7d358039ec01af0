"""Answers before they are drawn: lines, tables and notes, the same for a terminal, a notebook and a page.

A terminal draws them by rich's protocol (`__rich__`); `forerun.views.html` makes HTML of them. Text in them is plain;
the renderer escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forerun._util.readable import in_readable_units, pretty, visible

#: The tone of a line or a row, and its style in a terminal.
TONES = {
    "": "", "title": "bold", "heading": "bold", "best": "bold", "faint": "dim", "doubtful": "yellow", "bad": "red",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of text; `code` is the command or the call that ends it."""

    words: str
    tone: str = ""
    code: str = ""
    wrap: bool = True

    def __rich__(self) -> Any:
        from rich.text import Text

        before = "\n" if self.tone == "heading" else ""
        overflow = None if self.wrap else "ignore"
        words = before + self.words + self.code
        return Text(visible(words), style=TONES[self.tone], no_wrap=not self.wrap, overflow=overflow)  # type: ignore[arg-type]


#: An empty line of a terminal. Pages have their own spacing.
BLANK = Line("")


@dataclass(frozen=True)
class Notes:
    """Sentences that a page folds away; a terminal shows all of them."""

    lines: Sequence[str]

    def __rich__(self) -> Any:
        return _group(Line(f"Note: {line}", "doubtful") for line in self.lines)


@dataclass(frozen=True)
class Folded:
    """A line, and lines below it that a page folds away."""

    words: str
    lines: Sequence[str]

    def __rich__(self) -> Any:
        return _group(Line(line, "faint") for line in (self.words, *(f"  {line}" for line in self.lines)))


@dataclass(frozen=True)
class Span:
    """A cell with an interval: as words, and as the numbers that a page draws as a bar.

    `number` is the estimate in words, where it has no cell of its own.
    """

    low: float
    value: float
    high: float
    words: str
    number: str = ""

    def __str__(self) -> str:
        return f"{self.number}\n{self.words}" if self.number else self.words


@dataclass(frozen=True)
class Share:
    """A cell with a share, 0 to 1, drawn as a bar."""

    share: float

    def __str__(self) -> str:
        return "█" * round(self.share * 20)


Cell = str | Span | Share


def readable_cells(e: Any) -> tuple[str, Cell]:
    """The value of an estimate in a unit of the right size, and its interval in the same unit."""
    if e is None:
        return "unknown", ""
    value, low, high, unit = in_readable_units(e.value, e.low, e.high, e.unit)
    return f"{value} {unit}", Span(e.low, e.value, e.high, f"{low} … {high}")


def number_cells(e: Any, factor: float = 1.0) -> tuple[str, Cell]:
    """Value and interval of an estimate without the unit, which the heading has."""
    if e is None:
        return "unknown", ""
    low, value, high = (x * factor for x in (e.low, e.value, e.high))
    return pretty(value), Span(low, value, high, f"{pretty(low)} … {pretty(high)}")


@dataclass(frozen=True)
class Column:
    """The heading of a column, and the layout of its cells."""

    heading: str
    right: bool = False  # numbers, and words with them
    wrap: bool = False
    least: int | None = None  # characters of a terminal
    tone: str = ""
    relative: bool = False  # intervals are drawn relative to their estimates: cells of different units
    code: bool = False  # cells are commands or calls
    units: bool = False  # cells are numbers with units of their own: '5.2 ms'
    rank: int = 0  # on a narrow page, columns of the highest rank are hidden behind a click first


@dataclass(frozen=True)
class Row:
    """One row; `depth` indents a part under its whole."""

    cells: Sequence[Cell]
    tone: str = ""
    depth: int = 0


@dataclass(frozen=True)
class Table:
    """Columns and rows. A page folds rows beyond `shown`: all of them where it is 0, under the title."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    shown: int | None = None
    caption: str = ""
    gap: int = 2  # between columns of a terminal

    def __rich__(self) -> Any:
        from rich.table import Table as RichTable
        from rich.text import Text

        headed = any(column.heading for column in self.columns)
        drawn = RichTable(box=None, padding=(0, self.gap, 0, 0), show_edge=False, show_header=headed)
        for column in self.columns:
            drawn.add_column(
                visible(column.heading), justify="right" if column.right else "left", no_wrap=not column.wrap,
                min_width=column.least, style=TONES[column.tone], overflow="fold" if column.wrap else "ellipsis",
            )  # fmt: skip
        for row in self.rows:
            cells = [Text(visible(str(cell))) for cell in row.cells]
            cells[0] = Text("  " * row.depth) + cells[0]
            drawn.add_row(*cells, style=TONES[row.tone])
        return _group([Line(self.title), drawn]) if self.title else drawn


Block = Line | Notes | Folded | Table


def _group(things: Any) -> Any:
    from rich.console import Group

    return Group(*things)
