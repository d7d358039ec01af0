"""What to change, in a terminal: claimed gains first, then what is uncertain, then all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from forerun.readable import in_readable_units, pretty, visible
from forerun.show import command_line, headline, interval_heading

if TYPE_CHECKING:
    from forerun.decisions.optimise.optimise import Line, Optimisation

#: A terminal narrower than this gets the code below the table, not in it.
_WIDE = 140
#: From this gain on, an uncertain change has a row of its own.
_SEEN = 1.01
_QUANTITY = {
    "latency": ("latency_ms", "latency"), "throughput": ("throughput", "throughput"), "memory": ("memory_mb", "memory"),
    "energy": ("energy_j", "energy"), "cost": ("cost_per_million_usd", "per million"),
}  # fmt: skip


def optimise_view(found: Optimisation, width: int = 160) -> Iterator[Any]:
    """Changes by what can be claimed of them, the greedy combination, and what is seen in the network itself."""
    from rich.text import Text

    yield Text(visible(f"{headline(found.now)}; goal: {found.goal}"), style="bold")
    yield Text(f"now: {_now(found)}", style="dim")
    for note in found.notes:
        yield Text(visible(f"Note: {note}"), style="yellow")
    in_settings = [line for line in found.lines if line.where == "settings"]
    claimed = [line for line in in_settings if line.verdict == "claimed"]
    if claimed:
        yield from _section("Claimed: the interval of the gain lies above 1", claimed, found, width)
    else:
        yield Text("\nNothing can be claimed: no interval of a gain lies above 1.", style="bold")
    unsure = [line for line in in_settings if line.verdict == "cannot tell"]
    hoped = [line for line in unsure if line.gain.value >= _SEEN]
    if hoped:
        yield from _section("Cannot tell: the interval includes no gain", hoped, found, width, style="dim")
    rest = [f"{line.name} ({pretty(line.gain.value)} x)" for line in unsure if line not in hoped]
    if rest:
        yield Text(visible(f"\nCannot tell, and no gain is predicted: {', '.join(rest)}"), style="dim")
    worse = [f"{line.name} ({pretty(line.gain.value)} x)" for line in in_settings if line.verdict == "worse"]
    if worse:
        yield Text(visible(f"\nMakes it worse: {', '.join(worse)}"), style="dim")
    for line in found.lines:
        if line.verdict == "does not fit":
            yield Text(visible(f"\n{line.name} {line.after.fit_sentence()}"), style="red")
    yield from _together(found)
    yield from _network(found, width)
    yield from _elsewhere(found)
    if claimed or unsure:
        yield Text(f"\nA gain of 2 x halves the {_halved(found)}. {_footing(found)}", style="dim")


def _now(found: Optimisation) -> str:
    p, (field, _) = found.now, _QUANTITY[found.goal]
    parts = [f"latency {p.latency_ms}, set by the {p.bound}"]
    if field != "latency_ms" and (estimate := getattr(p, field)) is not None and field != "memory_mb":
        value, low, high, unit = in_readable_units(estimate.value, estimate.low, estimate.high, estimate.unit)
        parts.append(f"{_QUANTITY[found.goal][1]} {value} {unit} [{low} … {high}]")
    if p.memory_mb is not None:
        parts.append(f"memory needed {pretty(p.memory_mb.value / 1024)} GB")
    return "; ".join(parts)


def _section(
    title: str, lines: Sequence[Line], found: Optimisation, width: int, style: str | None = None
) -> Iterator[Any]:
    from rich.table import Table
    from rich.text import Text

    wide = width >= _WIDE
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("change", no_wrap=wide, min_width=14)
    for name in ("gain", interval_heading(found.confidence), *_headings(found)):
        table.add_column(name, justify="right", no_wrap=True)
    if wide:
        for name in ("how", "risk"):
            table.add_column(name, overflow="fold")
    for line in lines:
        words = (Text(visible(line.code)), Text(visible(line.risk))) if wide else ()
        table.add_row(Text(visible(line.name)), *_numbers(line, found), *words, style=style)
    yield Text(f"\n{title}", style="bold")
    yield table
    if not wide:
        for line in lines:
            risk = f" ({line.risk})" if line.risk else ""
            yield Text(visible(f"  {line.name}{risk}:"), style="dim")
            yield command_line(f"    {line.code}", style="dim")


def _headings(found: Optimisation) -> tuple[str, str]:
    """Of the goal's quantity after a change, and of the memory that the change costs."""
    return _QUANTITY[found.goal][1], "change" if found.goal == "memory" else "memory"


def _numbers(line: Line, found: Optimisation) -> tuple[str, ...]:
    """Gain, its interval, the goal's quantity after the change, and the memory that it costs."""
    gain, estimate = line.gain, getattr(line.after, _QUANTITY[found.goal][0])
    if line.shared_by > 1:  # of all slices together
        now = getattr(line.before, _QUANTITY[found.goal][0])
        estimate = now and now.scaled(gain.value if found.goal == "throughput" else 1 / gain.value, now.unit)
    value = "unknown"
    if estimate is not None:
        number, _, _, unit = in_readable_units(estimate.value, estimate.low, estimate.high, estimate.unit)
        value = f"{number} {unit}"
    return f"{pretty(gain.value)} x", f"{pretty(gain.low)} … {pretty(gain.high)}", value, _memory(line)


def _memory(line: Line) -> str:
    change = line.memory_change_mb
    if change is None:
        return "unknown"
    value, _, _, unit = in_readable_units(abs(change), 0, 0, "MB")
    return "same" if abs(change) < 1 else f"{'+' if change > 0 else '-'}{value} {unit}"


def _together(found: Optimisation) -> Iterator[Any]:
    from rich.table import Table
    from rich.text import Text

    if not found.together:
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("together", no_wrap=False)
    for name in ("gain", interval_heading(found.confidence), *_headings(found)):
        table.add_column(name, justify="right", no_wrap=True)
    for number, line in enumerate(found.together):
        table.add_row(Text(visible(("" if number == 0 else "+ ") + line.name)), *_numbers(line, found))
    yield Text("\nTogether, the best claimed change first, the next on top of it", style="bold")
    yield table
    if found.command:
        yield command_line(found.command, style="dim")
    beyond = [name for name, _ in found.together[-1].case.graph_changes]
    if beyond:
        yield Text(visible(f"(the command has no option for: {', '.join(beyond)})"), style="dim")


def _network(found: Optimisation, width: int) -> Iterator[Any]:
    from rich.text import Text

    lines = [line for line in found.lines if line.where == "network" and line.verdict != "does not fit"]
    if not lines and not found.findings:
        return
    yield Text("\nIn the network itself", style="bold")
    for line in lines:
        gain, interval, *_ = _numbers(line, found)
        words = f"{line.name}: {gain} [{interval}], {line.verdict}; memory {_memory(line)}; {line.code} ({line.risk})"
        yield Text(visible(words))
    for one in found.findings:
        yield Text(visible(f"{one.what}: {one.share:.0%} of the device time; {one.suggestion}"))


def _elsewhere(found: Optimisation) -> Iterator[Any]:
    from rich.table import Table
    from rich.text import Text

    if not found.other_devices:
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("device", "gain", interval_heading(found.confidence), "latency ms", "memory GB", ""):
        table.add_column(name, justify="left" if name in ("device", "") else "right", no_wrap=True)
    for one in found.other_devices:
        gain = one.gain
        table.add_row(
            one.device, f"{pretty(gain.value)} x", f"{pretty(gain.low)} … {pretty(gain.high)}",
            pretty(one.latency_ms.value), pretty(one.memory_mb / 1024), one.verdict,
        )  # fmt: skip
    yield Text("\nOn another device, as the case is now", style="bold")
    yield table


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
