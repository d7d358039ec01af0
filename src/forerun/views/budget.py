"""How a budget of one model looks in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from forerun.readable import in_readable_units, pretty, visible
from forerun.show import interval_heading, setting_words

if TYPE_CHECKING:
    from forerun.decisions.budget.job_budget import JobBudget
    from forerun.decisions.budget.jobs import JobRow
    from forerun.prediction import Estimate

#: A terminal narrower than this gets fewer columns, never cut numbers.
WIDE = 120
#: Rows of a table of devices; the rest is counted.
ROWS = 15
_STYLES = {"meets": None, "probably": "yellow", "does not": "dim"}
_QUANTITIES = {
    "hours": ("Time", "h"), "cost_usd": ("Cost", "USD"), "energy_kwh": ("Energy", "kWh"), "carbon_kg": ("Carbon", "kg"),
}  # fmt: skip
_BINDS = {"hours": "time", "cost_usd": "money", "energy_kwh": "energy", "carbon_kg": "carbon"}


def legend(confidence: float) -> str:
    """What the verdicts mean."""
    return f"meets: the whole {100 * confidence:g} % interval keeps the limits; probably: the estimate does"


def cells(e: Estimate | None) -> tuple[str, str]:
    """Value with its unit, and the interval in the same unit."""
    if e is None:
        return "unknown", ""
    value, low, high, unit = in_readable_units(e.value, e.low, e.high, e.unit)
    return f"{value} {unit}", f"{low} … {high}"


def number_cells(e: Estimate | None, factor: float = 1.0) -> tuple[str, str]:
    """Value and interval without their unit, which the heading has."""
    if e is None:
        return "unknown", ""
    return pretty(e.value * factor), f"{pretty(e.low * factor)} … {pretty(e.high * factor)}"


def time_unit(hours: Sequence[float]) -> tuple[str, float]:
    """The unit for a column of times, and what hours are multiplied by."""
    shortest = min(hours, default=1.0)
    if shortest >= 0.5:
        return "hours", 1.0
    return ("minutes", 60.0) if shortest >= 1 / 120 else ("seconds", 3600.0)


#: What the mark behind a device says.
BY_PEAKS = "* by its peaks alone: no device of its generation was measured, so it is at best probable and ranks last"


def marked(row: Any) -> str:
    """The device, with a mark where no measurement shows one of its generation."""
    return str(row.device) if row.generation_measured else f"{row.device} *"


def plain_table(*columns: tuple[str, str], gap: int = 2) -> Any:
    """A table of (heading, justify) columns in the project's look; a long name in the first is folded."""
    from rich.table import Table

    table = Table(box=None, padding=(0, gap, 0, 0), show_edge=False)
    for number, (name, justify) in enumerate(columns):
        table.add_column(name, justify=justify, no_wrap=number > 0, overflow="fold")  # type: ignore[arg-type]
    return table


def lines(texts: Sequence[str], style: str) -> Iterator[Any]:
    """Notes, one a line."""
    from rich.text import Text

    for text in texts:
        yield Text(visible(text), style=style)


def job_view(b: JobBudget, width: int = 160) -> Iterator[Any]:
    """What a terminal shows for a job: one device in full, several as a table."""
    from rich.text import Text

    single = len(b.rows) == 1
    where = f" on {_devices(b.rows[0])}" if single else ""
    yield Text(visible(f"{b.model}{where}: {setting_words(b.workload)}"), style="bold")
    yield Text(visible(_amount_line(b)), style="dim")
    yield from _one_device(b) if single else _many_devices(b, width)
    yield Text()
    if b.limits:
        yield Text(legend(b.confidence), style="dim")
    basis = ", ".join(sorted({r.basis for r in b.rows}))
    yield Text(f"Basis: {basis}; predictions throughout, none from the store", style="dim")
    yield from lines([f"Note: {note}" for note in b.notes], "yellow")
    if b.left_out:
        yield from lines([f"Left out: {reason}" for reason in dict.fromkeys(b.left_out.values())], "dim")


def _devices(r: JobRow) -> str:
    return f"{r.devices} x {r.device}" if r.devices > 1 else r.device


def _amount_line(b: JobBudget) -> str:
    """'1,281,167 samples x 5 epochs = 200,185 steps'."""
    data = f"{b.dataset}: " if b.dataset else ""
    if b.unit == "steps":
        return f"{data}{b.rows[0].steps:,} steps"
    if b.asked is None and len(b.rows) > 1:
        return f"{data}{b.samples:,} samples, as many epochs as fit"
    count = b.rows[0].count
    epochs = f"{count:,} epoch{'s' if count != 1 else ''}"
    steps = f" = {b.rows[0].steps:,} steps" if len({r.steps for r in b.rows}) == 1 else ""
    return f"{data}{b.samples:,} samples x {epochs}{steps}"


def _one_device(b: JobBudget) -> Iterator[Any]:
    from rich.text import Text

    r = b.rows[0]
    limited = bool(b.limits)
    heads = [("", "left"), ("estimate", "right"), (interval_heading(b.confidence), "right")]
    table = plain_table(*heads, *((("limit", "right"), ("", "left")) if limited else (("", "left"),)))

    def add(label: str, e: Estimate | None, limit: str = "", remark: str = "") -> None:
        rest = (limit, remark) if limited else (remark,)
        table.add_row(label, *cells(e), *(Text(visible(x)) for x in rest), style="red" if e is None else None)

    add("Step", r.step_ms)
    add("Pace", r.samples_per_s)
    if b.unit == "epochs":
        add("Epoch", r.each.hours)
    for name, (label, unit) in _QUANTITIES.items():
        limit = b.limits.get(name)
        words = "" if limit is None else " ".join(in_readable_units(limit, limit, limit, unit)[::3])
        add(label, getattr(r, name), words, r.verdicts.get(name, ""))
    add("Memory needed", r.memory_mb)
    yield table
    if r.price:
        yield Text(visible(f"Price: {r.price}"), style="dim")
    if r.largest is not None:
        sure = f"{r.surely_largest:,} with {100 * b.confidence:g} % confidence"
        yield Text(f"Fits into the budget: {_counted(r.largest, b.unit)}, {sure}; {_BINDS[r.binds or 'hours']} binds")
    yield from _batches(b)
    yield from _counts(b)


def _counted(count: int, unit: str) -> str:
    return f"{count:,} {unit if count != 1 else unit.removesuffix('s')}"


def _batches(b: JobBudget) -> Iterator[Any]:
    from rich.text import Text

    if len(b.batches) < 2:
        return
    yield Text(f"\nBatch: {b.best_batch} is the smallest that is about as fast per sample as any", style="bold")
    table = plain_table(("batch", "right"), ("samples/s", "right"), ("time", "right"), ("cost", "right"),
                        ("memory", "right"), ("", "left"))  # fmt: skip
    for r in b.batches:
        asked = "asked for" if r.batch == b.workload["batch"] else ""
        style = "bold" if r.batch == b.best_batch else None
        table.add_row(f"{r.batch:,}", pretty(r.samples_per_s.value), cells(r.hours)[0], cells(r.cost_usd)[0],
                      cells(r.memory_mb)[0], asked, style=style)  # fmt: skip
    yield table
    if b.workload["mode"] == "training":
        yield Text(
            "Another batch changes how a network learns: its learning rate, and perhaps its accuracy.", style="dim"
        )


def _counts(b: JobBudget) -> Iterator[Any]:
    from rich.text import Text

    if not b.counts:
        return
    fewest = b.fewest_devices
    if not b.limits:
        title = "More devices of one machine, data parallel"
    elif fewest is None:
        title = "More devices of one machine: none of 1 to 8 keeps the limits"
    else:
        words = "keeps the limits" if fewest.verdict == "meets" else "probably keeps the limits"
        title = f"More devices of one machine: {fewest.devices} is the smallest number that {words}"
    yield Text(f"\n{title}", style="bold")
    table = plain_table(("devices", "right"), ("time", "right"), (interval_heading(b.confidence), "right"),
                        ("cost", "right"), ("", "left"))  # fmt: skip
    for r in b.counts:
        chosen = bool(b.limits) and fewest is not None and r.devices == fewest.devices
        if r.devices in (1, 2, 4, 8) or chosen:
            style = "bold" if chosen else _STYLES.get(r.verdict or "meets")
            words = r.verdict or ""
            table.add_row(f"{r.devices}", *cells(r.hours), cells(r.cost_usd)[0], words, style=style)
    yield table


def _many_devices(b: JobBudget, width: int) -> Iterator[Any]:
    from rich.text import Text

    for label, r in (("Cheapest", b.cheapest), ("Fastest", b.fastest)):
        if r is not None:
            does = f"{_counted(r.count, b.unit)}, " if b.asked is None else ""
            money = cells(r.cost_usd)[0]
            words = f" ({r.verdict})" if r.verdict else ""
            peaks = "" if r.generation_measured else " by its peaks alone"
            yield Text(f"{label}: {_devices(r)}{peaks}, {does}{cells(r.hours)[0]}, {money}{words}")
    if b.limits:
        limits = (" ".join(in_readable_units(v, v, v, _QUANTITIES[n][1])[::3]) for n, v in b.limits.items())
        yield Text(f"Limits: {', '.join(limits)}")
    large = [r for r in b.rows if r.fits is not False]
    by_peaks = [r for r in large[:ROWS] if not r.generation_measured]
    yield _devices_table(b, large[:ROWS], width >= WIDE)
    if any(r.count == 0 for r in large[:ROWS]):
        yield Text(f"0 {b.unit}: the numbers are what one {b.unit.removesuffix('s')} takes", style="dim")
    if by_peaks:
        yield Text(BY_PEAKS, style="dim")
    if len(large) > ROWS:
        yield Text(f"and {len(large) - ROWS} more devices (--json has all)", style="dim")
    for fits, words in ((False, "Too little memory"), (None, "Memory not known, so it may not fit")):
        named = [r.device for r in b.rows if r.fits is fits]
        if named:
            yield Text(f"{words}: {', '.join(named)}", style="dim")


def _devices_table(b: JobBudget, rows: Sequence[JobRow], wide: bool) -> Any:
    interval = interval_heading(b.confidence)
    unit, factor = time_unit([(r if r.count else r.each).hours.value for r in rows])
    heads = ["device", "USD", *([interval] if wide else []), unit, interval]
    heads += ["kWh", "kg CO2", "memory GB"] if wide else []
    heads += [f"most {b.unit}", "limits"] if b.limits else []
    sides = [(name, "left" if name in ("device", "limits") else "right") for name in heads]
    table = plain_table(*sides, gap=2 if wide else 1)
    for r in rows:
        taken = r if r.count else r.each  # of one that does not fit, where none does
        cost = number_cells(taken.cost_usd)
        found = [marked(r), *(cost if wide else cost[:1]), *number_cells(taken.hours, factor)]
        if wide:
            rest = ((taken.energy_kwh, 1.0), (taken.carbon_kg, 1.0), (r.memory_mb, 1 / 1024))
            found += [number_cells(e, unit_factor)[0] for e, unit_factor in rest]
        found += [f"{r.largest:,}", r.verdict or ""] if b.limits else []
        table.add_row(*found, style=_STYLES.get(r.verdict or "meets"))
    return table
