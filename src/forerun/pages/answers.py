"""A prediction and an explanation as HTML."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from forerun.blocks import Table
from forerun.pages.bars import parts_html
from forerun.pages.fragments import fragment
from forerun.show import explanation_lines, kernels_table, ops_table, prediction_view

if TYPE_CHECKING:
    from forerun.explanation import Explanation
    from forerun.prediction import Prediction


def prediction_html(p: Prediction) -> str:
    """One prediction: every quantity with its interval as a bar, parts under their whole, MIG slices and notes folded,
    the basis, and the command that checks it. Bars show how far an interval reaches from its estimate, all rows on one
    scale."""
    return fragment(prediction_view(p))


def explanation_html(e: Explanation, *, top: int = 15) -> str:
    """Where the time of a call goes: a bar by kernel class, the `top` ops with their shares, sums by class folded."""
    kernels = replace(kernels_table(e), title="By kernel class", shown=0)
    bar = parts_html([(kernel, share) for kernel, _, _, share in e.by_kernel()], "Device time by kernel class")
    return fragment([*explanation_lines(e), _shares_first(ops_table(e, top)), kernels], after_title=bar)


def _shares_first(table: Table) -> Table:
    """The same table with times and shares beside the op, where a narrow page shows them without scrolling."""
    headings = [column.heading for column in table.columns]
    first = [headings.index(name) for name in ("op", "ms", "share", "")]
    order = [*first, *(at for at in range(len(headings)) if at not in first)]
    rows = [replace(row, cells=[row.cells[at] for at in order]) for row in table.rows]
    return replace(table, columns=[table.columns[at] for at in order], rows=rows)
