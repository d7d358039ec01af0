"""A prediction and an explanation as HTML."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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
    return fragment([*explanation_lines(e), ops_table(e, top), kernels], after_title=bar)
