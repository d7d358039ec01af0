"""Views of the landscape: an estimate of a training run, trends, imputed values, how tables were cleaned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from forerun._util.readable import pretty
from forerun.landscape.lime import Local
from forerun.landscape.rows import TARGETS
from forerun.views.blocks import BLANK, Block, Column, Line, Notes, Row, Span, Table

_SCALES = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
_NAMES = {"time": "Time", "cost": "Cost", "power": "Power"}
_REMARKS = {
    "cost": "2023 USD: chips that the trainer owns, written off over years", "time": "all chips busy on this run",
    "power": "chips, servers and building",
}  # fmt: skip


def amount(value: float) -> str:
    """70 B, 15 T, 1.2e25."""
    if value >= 1e15:
        return f"{value:.3g}"
    for least, letter in _SCALES:
        if value >= least:
            return f"{pretty(value / least)} {letter}"
    return pretty(value)


def scaled(value: float, unit: str) -> tuple[float, str]:
    """The divisor for a readable unit, and that unit."""
    units = {
        "USD": ((1e9, "B USD"), (1e6, "M USD"), (1e3, "k USD")), "W": ((1e6, "MW"), (1e3, "kW")),
        "kWh": ((1e6, "GWh"), (1e3, "MWh")), "kg": ((1e3, "t"),), "h": ((48, "days"),),
    }  # fmt: skip
    for least, better in units.get(unit, ()):
        if value >= least:
            return (24.0 if better == "days" else least), better
    return 1.0, unit


def estimate_view(answer: Any) -> Iterator[Block]:
    """The estimate by three methods, what follows from it, and what is unknown."""
    question = answer.question
    chips = f"{question.count:,} × " if question.count else ""
    like = f"like {question.like}: " if question.like else ""
    size = [f"{amount(question.parameters)} parameters"] if question.parameters else []
    size += [f"{amount(question.tokens)} tokens"] if question.tokens else []
    yield Line(
        f"Training, {like}{', '.join(size) or 'as published'}, on {chips}{question.device.id}, {question.when}", "title"
    )
    how = "6 × parameters × tokens" if question.basis == "6ND" else "as stated of the published model"
    yield Line(
        f"{question.flop:.3g} FLOP ({how}); utilisation {answer.utilisation:.0%}, the median of published trainings"
    )
    columns = [
        Column(""), Column("estimate", right=True, units=True), Column("90 % interval", right=True, relative=True),
        Column("", wrap=True),
    ]  # fmt: skip
    rows = []
    for name, title in _NAMES.items():
        methods = getattr(answer, name)
        joined = methods["joined"]
        reason = answer.unknown.get(name, "")
        unit = scaled(joined.value, joined.unit) if joined else None
        rows.append(_row(title, joined, _REMARKS[name] if joined else reason, unit=unit))
        rows += [_row(f"by {_METHODS[method]}", methods[method], answer.unknown.get(f"{name} by {method}", ""), 1, unit)
                 for method in ("physics", "learned") if joined]  # fmt: skip
    rows.append(_row("Rent", answer.rent_usd, answer.unknown.get("rent", "the same chip hours on demand")))
    rows.append(_row("Energy", answer.energy_kwh, answer.unknown.get("energy", "")))
    rows.append(_row("Carbon", answer.carbon_kg, answer.unknown.get("carbon", "")))
    yield Table(columns, rows)
    yield BLANK
    if answer.notes:
        yield Notes(answer.notes)


_METHODS = {"physics": "physics", "learned": "learned model"}


def _row(title: str, e: Any, remark: str, depth: int = 0, unit: tuple[float, str] | None = None) -> Row:
    if e is None:
        return Row((title, "unknown", "", remark), "faint", depth)
    by, called = unit or scaled(e.value, e.unit)
    words = f"{pretty(e.low / by)} … {pretty(e.high / by)}"
    return Row((title, f"{pretty(e.value / by)} {called}", Span(e.low, e.value, e.high, words), remark), "", depth)


def local_view(found: Local) -> Iterator[Any]:
    """A prediction of one model and the conditions that decide about it."""
    words = TARGETS[found.target]
    stated = "" if found.stated is None else f" (stated: {found.stated:.3g})"
    title = f"{found.model}: {words} {found.predicted:.3g}{stated}, predicted from all other models"
    columns = [Column("condition", wrap=True), Column("factor", right=True)]
    yield Table(columns, [Row((condition, f"×{factor:.2f}")) for condition, factor in found.conditions], title)


def frame_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], words: Sequence[str] = ()) -> Table:
    """A table of plain values; numbers to the right, columns named in `words` to the left and wrapped."""
    columns = [Column(name, right=name not in words, wrap=name in words) for name in headings]
    return Table(columns, [Row([_cell(value) for value in row]) for row in rows], title)


def _cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) >= 1e6 or abs(value) < 1e-3 else pretty(value)
    return f"{value:,}" if isinstance(value, int) and not 1900 < value < 2100 else str(value)
