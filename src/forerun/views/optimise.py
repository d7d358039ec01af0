"""What is shown of what to change: claimed gains first, then what is uncertain, then all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from forerun.blocks import BLANK, Block, Cell, Column, Line, Notes, Row, Table, number_cells
from forerun.readable import in_readable_units, pretty
from forerun.show import headline, interval_heading

if TYPE_CHECKING:
    from forerun.decisions.optimise.optimise import Line as Change
    from forerun.decisions.optimise.optimise import Optimisation

#: A terminal narrower than this gets the code below the table, not in it.
_WIDE = 140
#: From this gain on, an uncertain change has a row of its own.
_SEEN = 1.01
_QUANTITY = {
    "latency": ("latency_ms", "latency"), "throughput": ("throughput", "throughput"), "memory": ("memory_mb", "memory"),
    "energy": ("energy_j", "energy"), "cost": ("cost_per_million_usd", "per million"),
}  # fmt: skip


def optimise_view(found: Optimisation, width: int | None = 160) -> Iterator[Block]:
    """Changes by what can be claimed of them, the greedy combination, and what is seen in the network itself."""
    yield Line(f"{headline(found.now)}; goal: {found.goal}", "title")
    yield Line(f"now: {_now(found)}", "faint")
    if found.notes:
        yield Notes(found.notes)
    in_settings = [line for line in found.lines if line.where == "settings"]
    claimed = [line for line in in_settings if line.verdict == "claimed"]
    if claimed:
        yield from _section("Claimed: the interval of the gain lies above 1", claimed, found, width)
    else:
        yield Line("Nothing can be claimed: no interval of a gain lies above 1.", "heading")
    unsure = [line for line in in_settings if line.verdict == "cannot tell"]
    hoped = [line for line in unsure if line.gain.value >= _SEEN]
    if hoped:
        yield from _section("Cannot tell: the interval includes no gain", hoped, found, width, "faint")
    rest = [line for line in unsure if line not in hoped]
    worse = [line for line in in_settings if line.verdict == "worse"]
    for words, lines in (("Cannot tell, and no gain is predicted", rest), ("Makes it worse", worse)):
        if lines:
            yield BLANK
            named = ", ".join(f"{line.name} ({pretty(line.gain.value)} x)" for line in lines)
            yield Line(f"{words}: {named}", "faint")
    for line in found.lines:
        if line.verdict == "does not fit":
            yield BLANK
            yield Line(f"{line.name} {line.after.fit_sentence()}", "bad")
    yield from _together(found)
    yield from _network(found)
    yield from _elsewhere(found)
    if claimed or unsure:
        yield BLANK
        yield Line(f"A gain of 2 x halves the {_halved(found)}. {_footing(found)}", "faint")


def _now(found: Optimisation) -> str:
    p, (field, _) = found.now, _QUANTITY[found.goal]
    parts = [f"latency {p.latency_ms}" + (f", set by the {p.bound}" if p.bound else "")]
    if field != "latency_ms" and (estimate := getattr(p, field)) is not None and field != "memory_mb":
        value, low, high, unit = in_readable_units(estimate.value, estimate.low, estimate.high, estimate.unit)
        parts.append(f"{_QUANTITY[found.goal][1]} {value} {unit} [{low} … {high}]")
    if p.memory_mb is not None:
        parts.append(f"memory needed {pretty(p.memory_mb.value / 1024)} GB")
    return "; ".join(parts)


def _section(
    title: str, lines: Sequence[Change], found: Optimisation, width: int | None, tone: str = ""
) -> Iterator[Block]:
    wide = width is None or width >= _WIDE
    heads = [Column("change", wrap=not wide, least=14), *_number_columns(found)]
    heads += [Column("how", wrap=True, code=True), Column("risk", wrap=True)] if wide else []
    yield Line(title, "heading")
    words = [(line.code, line.risk) if wide else () for line in lines]
    cells = [(line.name, *_numbers(line, found), *more) for line, more in zip(lines, words, strict=True)]
    yield Table(heads, [Row(one, tone) for one in cells])
    if not wide:
        for line in lines:
            risk = f" ({line.risk})" if line.risk else ""
            yield Line(f"  {line.name}{risk}:", "faint")
            yield Line("    ", "faint", code=line.code, wrap=False)


def _number_columns(found: Optimisation) -> list[Column]:
    """Gain, its interval, the goal's quantity after a change, and the memory that the change costs."""
    names = ("gain", interval_heading(found.confidence), *_headings(found))
    return [Column(name, right=True) for name in names]


def _headings(found: Optimisation) -> tuple[str, str]:
    """Of the goal's quantity after a change, and of the memory that the change costs."""
    return _QUANTITY[found.goal][1], "change" if found.goal == "memory" else "memory"


def _numbers(line: Change, found: Optimisation) -> tuple[str, Cell, str, str]:
    """Gain, its interval, the goal's quantity after the change, and the memory that it costs."""
    gain, estimate = line.gain, getattr(line.after, _QUANTITY[found.goal][0])
    if line.shared_by > 1:  # of all slices together
        now = getattr(line.before, _QUANTITY[found.goal][0])
        estimate = now and now.scaled(gain.value if found.goal == "throughput" else 1 / gain.value, now.unit)
    value = "unknown"
    if estimate is not None:
        number, _, _, unit = in_readable_units(estimate.value, estimate.low, estimate.high, estimate.unit)
        value = f"{number} {unit}"
    _, interval = number_cells(gain)
    return f"{pretty(gain.value)} x", interval, value, _memory(line)


def _memory(line: Change) -> str:
    change = line.memory_change_mb
    if change is None:
        return "unknown"
    value, _, _, unit = in_readable_units(abs(change), 0, 0, "MB")
    return "same" if abs(change) < 1 else f"{'+' if change > 0 else '-'}{value} {unit}"


def _together(found: Optimisation) -> Iterator[Block]:
    if not found.together:
        return
    rows = [
        Row((("" if number == 0 else "+ ") + line.name, *_numbers(line, found)))
        for number, line in enumerate(found.together)
    ]
    yield Line("Together, the best claimed change first, the next on top of it", "heading")
    yield Table([Column("together", wrap=True), *_number_columns(found)], rows)
    if found.command:
        yield Line("", "faint", code=found.command, wrap=False)
    beyond = [name for name, _ in found.together[-1].case.graph_changes]
    if beyond:
        yield Line(f"(the command has no option for: {', '.join(beyond)})", "faint")


def _network(found: Optimisation) -> Iterator[Block]:
    lines = [line for line in found.lines if line.where == "network" and line.verdict != "does not fit"]
    if not lines and not found.findings:
        return
    yield Line("In the network itself", "heading")
    for line in lines:
        gain, interval, *_ = _numbers(line, found)
        words = f"{line.name}: {gain} [{interval}], {line.verdict}; memory {_memory(line)}; {line.code} ({line.risk})"
        yield Line(words)
    for one in found.findings:
        yield Line(f"{one.what}: {one.share:.0%} of the device time; {one.suggestion}")


def _elsewhere(found: Optimisation) -> Iterator[Block]:
    if not found.other_devices:
        return
    names = ("device", "gain", interval_heading(found.confidence), "latency ms", "memory GB", "")
    rows = []
    for one in found.other_devices:
        gain = (f"{pretty(one.gain.value)} x", number_cells(one.gain)[1])
        cells = (one.device, *gain, pretty(one.latency_ms.value), pretty(one.memory_mb / 1024), one.verdict)
        rows.append(Row(cells))
    yield Line("On another device, as the case is now", "heading")
    yield Table([Column(name, right=name not in ("device", "")) for name in names], rows)


def _halved(found: Optimisation) -> str:
    per = {"latency": "latency of a call", "throughput": "time of a sample", "memory": "memory"}
    return per.get(found.goal, f"{found.goal} of a sample")


def _footing(found: Optimisation) -> str:
    """What the intervals of the gains stand on."""
    loose = [line.name for line in found.lines if "independent" in line.interval_from]
    if not loose:
        return "Intervals come from measured pairs of calls."
    return (
        "Intervals come from measured pairs of calls; where too few were measured they are too wide: "
        f"{', '.join(loose)}."
    )
