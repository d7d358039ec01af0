"""View of what to change: claimed gains first, then uncertain ones, then all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forerun._util.readable import in_readable_units, pretty
from forerun.decisions.optimise.optimise import Line as Change
from forerun.decisions.optimise.optimise import Optimisation
from forerun.views.blocks import (
    BLANK,
    Block,
    Cell,
    Column,
    Line,
    Notes,
    Row,
    Table,
    number_cells,
)
from forerun.views.rendering import blocks
from forerun.views.words import headline, interval_heading

#: A terminal narrower than this gets the code below the table, not in it.
_WIDE = 140
#: From this gain on, an uncertain change has a row of its own.
_SEEN = 1.01
_QUANTITY = {
    "latency": ("latency_ms", "latency"), "throughput": ("throughput", "throughput"), "memory": ("memory_mb", "memory"),
    "energy": ("energy_j", "energy"), "cost": ("cost_per_million_usd", "per million"),
}  # fmt: skip


@blocks.register
def optimise_view(answer: Optimisation, width: int | None = 160) -> Iterator[Block]:
    """Changes by verdict, the greedy combination, and findings in the network itself."""
    yield Line(f"{headline(answer.now)}; goal: {answer.goal}", "title")
    yield Line(f"now: {_now(answer)}", "faint")
    if answer.notes:
        yield Notes(answer.notes)
    in_settings = [line for line in answer.lines if line.where == "settings"]
    claimed = [line for line in in_settings if line.verdict == "claimed"]
    if claimed:
        yield from _section("Claimed: the interval of the gain lies above 1", claimed, answer, width)
    else:
        yield Line("Nothing can be claimed: no interval of a gain lies above 1.", "heading")
    unsure = [line for line in in_settings if line.verdict == "cannot tell"]
    hoped = [line for line in unsure if line.gain.value >= _SEEN]
    if hoped:
        yield from _section("Cannot tell: the interval includes no gain", hoped, answer, width, "faint")
    rest = [line for line in unsure if line not in hoped]
    worse = [line for line in in_settings if line.verdict == "worse"]
    for words, lines in (("Cannot tell, and no gain is predicted", rest), ("Makes it worse", worse)):
        if lines:
            yield BLANK
            named = ", ".join(f"{line.name} ({pretty(line.gain.value)} x)" for line in lines)
            yield Line(f"{words}: {named}", "faint")
    for line in answer.lines:
        if line.verdict == "does not fit":
            yield BLANK
            yield Line(f"{line.name} {line.after.fit_sentence()}", "bad")
    yield from _together(answer)
    yield from _network(answer)
    yield from _elsewhere(answer)
    if claimed or unsure:
        yield BLANK
        yield Line(f"A gain of 2 x halves the {_halved(answer)}. {_footing(answer)}", "faint")


def _now(answer: Optimisation) -> str:
    p, (field, _) = answer.now, _QUANTITY[answer.goal]
    parts = [f"latency {p.latency_ms}" + (f", {p.bound}-bound" if p.bound else "")]
    if field != "latency_ms" and (estimate := getattr(p, field)) is not None and field != "memory_mb":
        value, low, high, unit = in_readable_units(estimate.value, estimate.low, estimate.high, estimate.unit)
        parts.append(f"{_QUANTITY[answer.goal][1]} {value} {unit} [{low} … {high}]")
    if p.memory_mb is not None:
        parts.append(f"memory needed {pretty(p.memory_mb.value / 1024)} GB")
    return "; ".join(parts)


def _section(
    title: str, lines: Sequence[Change], answer: Optimisation, width: int | None, tone: str = ""
) -> Iterator[Block]:
    wide = width is None or width >= _WIDE
    heads = [Column("change", wrap=not wide, least=14), *_number_columns(answer)]
    heads += [Column("how", wrap=True, code=True), Column("risk", wrap=True)] if wide else []
    yield Line(title, "heading")
    words = [(line.code, line.risk) if wide else () for line in lines]
    cells = [(line.name, *_numbers(line, answer), *more) for line, more in zip(lines, words, strict=True)]
    yield Table(heads, [Row(row, tone) for row in cells])
    if not wide:
        for line in lines:
            risk = f" ({line.risk})" if line.risk else ""
            yield Line(f"  {line.name}{risk}:", "faint")
            yield Line("    ", "faint", code=line.code, wrap=False)


def _number_columns(answer: Optimisation) -> list[Column]:
    """Gain, its interval, the goal's quantity after a change, and the additional memory."""
    names = ("gain", interval_heading(answer.confidence), *_headings(answer))
    return [Column(name, right=True) for name in names]


def _headings(answer: Optimisation) -> tuple[str, str]:
    """Headings of the goal's quantity after a change, and of the additional memory."""
    return _QUANTITY[answer.goal][1], "change" if answer.goal == "memory" else "memory"


def _numbers(line: Change, answer: Optimisation) -> tuple[str, Cell, str, str]:
    """Gain, its interval, the goal's quantity after the change, and the additional memory."""
    gain, estimate = line.gain, getattr(line.after, _QUANTITY[answer.goal][0])
    if line.shared_by > 1:  # of all slices together
        now = getattr(line.before, _QUANTITY[answer.goal][0])
        estimate = now and now.scaled(gain.value if answer.goal == "throughput" else 1 / gain.value, now.unit)
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


def _together(answer: Optimisation) -> Iterator[Block]:
    if not answer.together:
        return
    rows = [
        Row((("" if number == 0 else "+ ") + line.name, *_numbers(line, answer)))
        for number, line in enumerate(answer.together)
    ]
    yield Line("Together, the best claimed change first, the next on top of it", "heading")
    yield Table([Column("together", wrap=True), *_number_columns(answer)], rows)
    if answer.command:
        yield Line("", "faint", code=answer.command, wrap=False)
    beyond = [name for name, _ in answer.together[-1].case.graph_changes]
    if beyond:
        yield Line(f"(the command has no option for: {', '.join(beyond)})", "faint")


def _network(answer: Optimisation) -> Iterator[Block]:
    lines = [line for line in answer.lines if line.where == "network" and line.verdict != "does not fit"]
    if not lines and not answer.findings:
        return
    yield Line("In the network itself", "heading")
    for line in lines:
        gain, interval, *_ = _numbers(line, answer)
        words = f"{line.name}: {gain} [{interval}], {line.verdict}; memory {_memory(line)}; {line.code} ({line.risk})"
        yield Line(words)
    for finding in answer.findings:
        yield Line(f"{finding.what}: {finding.share:.0%} of the {finding.of}; {finding.suggestion}")


def _elsewhere(answer: Optimisation) -> Iterator[Block]:
    if not answer.other_devices:
        return
    names = ("device", "gain", interval_heading(answer.confidence), "latency ms", "memory GB", "")
    rows = []
    for other in answer.other_devices:
        gain = (f"{pretty(other.gain.value)} x", number_cells(other.gain)[1])
        cells = (other.device, *gain, pretty(other.latency_ms.value), pretty(other.memory_mb / 1024), other.verdict)
        rows.append(Row(cells))
    yield Line("On another device, as the case is now", "heading")
    yield Table([Column(name, right=name not in ("device", "")) for name in names], rows)


def _halved(answer: Optimisation) -> str:
    per = {"latency": "latency of a call", "throughput": "time of a sample", "memory": "memory"}
    return per.get(answer.goal, f"{answer.goal} of a sample")


def _footing(answer: Optimisation) -> str:
    """The basis of the intervals of the gains."""
    loose = [line.name for line in answer.lines if "independent" in line.interval_from]
    if not loose:
        return "Intervals come from measured pairs of calls."
    return (
        "Intervals come from measured pairs of calls; where too few were measured they are too wide: "
        f"{', '.join(loose)}."
    )
