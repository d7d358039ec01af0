"""What is shown of the landscape: an estimate of a training, trends, what was filled, how tables were cleaned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from forerun.blocks import BLANK, Block, Column, Line, Notes, Row, Span, Table
from forerun.readable import pretty

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
    """What a value is divided by for its unit to be readable, and that unit."""
    units = {
        "USD": ((1e9, "B USD"), (1e6, "M USD"), (1e3, "k USD")), "W": ((1e6, "MW"), (1e3, "kW")),
        "kWh": ((1e6, "GWh"), (1e3, "MWh")), "kg": ((1e3, "t"),), "h": ((48, "days"),),
    }  # fmt: skip
    for least, better in units.get(unit, ()):
        if value >= least:
            return (24.0 if better == "days" else least), better
    return 1.0, unit


def estimate_view(answer: Any) -> Iterator[Block]:
    """The estimate by three methods, what follows from it, and what is not known."""
    asked = answer.question
    chips = f"{asked.count:,} × " if asked.count else ""
    like = f"like {asked.like}: " if asked.like else ""
    size = [f"{amount(asked.parameters)} parameters"] if asked.parameters else []
    size += [f"{amount(asked.tokens)} tokens"] if asked.tokens else []
    yield Line(
        f"Training, {like}{', '.join(size) or 'as published'}, on {chips}{asked.device.id}, {asked.when}", "title"
    )
    how = "6 × parameters × tokens" if asked.basis == "6ND" else "as stated of the published model"
    yield Line(
        f"{asked.flop:.3g} FLOP ({how}); utilisation {answer.utilisation:.0%}, the median of published trainings"
    )
    columns = [
        Column(""), Column("estimate", right=True, units=True), Column("90 % interval", right=True, relative=True),
        Column("", wrap=True),
    ]  # fmt: skip
    rows = []
    for name, title in _NAMES.items():
        found = getattr(answer, name)
        joined = found["joined"]
        reason = answer.unknown.get(name, "")
        unit = scaled(joined.value, joined.unit) if joined else None
        rows.append(_row(title, joined, _REMARKS[name] if joined else reason, unit=unit))
        rows += [_row(f"by {_METHODS[method]}", found[method], answer.unknown.get(f"{name} by {method}", ""), 1, unit)
                 for method in ("physics", "learned") if joined]  # fmt: skip
    rows.append(_row("Rent", answer.rent_usd, answer.unknown.get("rent", "the same chip hours on demand")))
    rows.append(_row("Energy", answer.energy_kwh, answer.unknown.get("energy", "")))
    rows.append(_row("Carbon", answer.carbon_kg, answer.unknown.get("carbon", "")))
    yield Table(columns, rows)
    yield BLANK
    if answer.notes:
        yield Notes(answer.notes)


_METHODS = {"physics": "arithmetic", "learned": "published models"}


def _row(title: str, e: Any, remark: str, depth: int = 0, unit: tuple[float, str] | None = None) -> Row:
    if e is None:
        return Row((title, "unknown", "", remark), "faint", depth)
    by, called = unit or scaled(e.value, e.unit)
    words = f"{pretty(e.low / by)} … {pretty(e.high / by)}"
    return Row((title, f"{pretty(e.value / by)} {called}", Span(e.low, e.value, e.high, words), remark), "", depth)


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
