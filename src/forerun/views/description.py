"""View of a described model: its numbers, a line for each kind of layer, and what a language model says of it."""

from __future__ import annotations

from collections.abc import Iterator

from forerun.api.description import DescribedModel
from forerun.graph.description import OF_KIND, WHOLE, short_number
from forerun.views.blocks import BLANK, Block, Cell, Column, Line, Row, Table
from forerun.views.rendering import blocks


@blocks.register
def description_view(d: DescribedModel, width: int | None = None) -> Iterator[Block]:
    """The whole, the kinds of layer, then the language model's words with the error of each number."""
    whole = d.known.whole
    yield Line(f"{d.model}: {', '.join(f'{short_number(whole[name])} {name}' for name in WHOLE if name != 'batch')}"
               f" at batch {whole['batch']:.0f}", "title")  # fmt: skip
    heads = [Column("kind of layer"), *(Column(name, right=True) for name in OF_KIND)]
    yield Table(heads, [Row([kind, *(short_number(of[n]) for n in OF_KIND)]) for kind, of in d.known.kinds.items()])
    if d.said is None:
        return
    yield BLANK
    yield Line(f"{d.said_by} says: {d.said.strip()}")
    yield Table([Column("number"), *(Column(name, right=True) for name in ("true", "said", "off by"))], list(_rows(d)))


def _rows(d: DescribedModel) -> Iterator[Row]:
    true, told = d.known.numbers(), d.told
    for name, off in d.errors.items():
        cells: list[Cell] = [name, short_number(true[name])]
        if off is None:
            yield Row([*cells, "not said", ""], "faint")
        else:
            yield Row([*cells, short_number(told[name]), f"{off:.0%}"], "doubtful" if off > 0.1 else "")
