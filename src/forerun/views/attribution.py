"""View of an attribution: one row per feature, and how the factors multiply to the prediction."""

from __future__ import annotations

from collections.abc import Iterator

from forerun._util.readable import pretty
from forerun.predictors.attribution import SHOWN, Attribution
from forerun.views.blocks import Block, Column, Line, Row, Table
from forerun.views.rendering import blocks
from forerun.views.words import headline


@blocks.register
def attribution_view(a: Attribution, width: int | None = None, top: int = SHOWN) -> Iterator[Block]:
    """One row per feature, and how the factors multiply to the prediction."""
    yield Line(f"{headline(a)}: {pretty(max(a.latency_ms, a.roofline_ms))} ms", "title")
    yield Line(
        f"The predictor {a.predictor} starts from {pretty(a.usual_ms)} ms; every feature multiplies that "
        "(Shapley values of its trees).",
        "faint",
    )
    shown, rest = a.top(top)
    rows = [Row((part.feature, "unknown" if part.value is None else number(part.value), times(part.factor)))
            for part in shown]  # fmt: skip
    left = len(a.factors) - len(shown)
    if left:
        rows.append(Row((f"({left} more)", "", times(rest)), "faint"))
    heads = (Column("feature"), Column("value", right=True), Column("latency", right=True))
    yield Table(heads, rows)
    if a.latency_ms < a.roofline_ms:
        yield Line(
            f"The factors give {pretty(a.latency_ms)} ms; no call is faster than its roofline, "
            f"{pretty(a.roofline_ms)} ms."
        )


def times(factor: float) -> str:
    """'× 1.32'."""
    return f"× {factor:.3g}" if factor < 10 else f"× {factor:,.0f}"


def number(value: float) -> str:
    """A feature's value, whatever its size."""
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e7 else f"{value:.4g}"
