"""View of the budget of one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forerun._util.readable import in_readable_units, pretty
from forerun.decisions.budget.curve_choice import NetworkRow
from forerun.decisions.budget.job_budget import JobBudget
from forerun.decisions.budget.jobs import JobRow
from forerun.prediction import Estimate
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
    readable_cells,
)
from forerun.views.rendering import blocks
from forerun.views.words import interval_heading, setting_words

#: A terminal narrower than this gets fewer columns, never truncated numbers.
WIDE = 120
#: Rows of a table of devices; the rest is counted.
ROWS = 15
_TONES = {"meets": "", "probably": "doubtful", "does not": "faint"}
_QUANTITIES = {
    "hours": ("Time", "h"), "cost_usd": ("Cost", "USD"), "energy_kwh": ("Energy", "kWh"), "carbon_kg": ("Carbon", "kg"),
}  # fmt: skip
_BINDS = {"hours": "time", "cost_usd": "money", "energy_kwh": "energy", "carbon_kg": "carbon"}


def legend(confidence: float) -> str:
    """The legend of the verdicts."""
    return f"meets: the whole {100 * confidence:g} % interval is within the limits; probably: the estimate is"


def time_unit(hours: Sequence[float]) -> tuple[str, float]:
    """The unit for a column of times, and the factor on hours."""
    shortest = min(hours, default=1.0)
    if shortest >= 0.5:
        return "hours", 1.0
    return ("minutes", 60.0) if shortest >= 1 / 120 else ("seconds", 3600.0)


#: The legend of the mark behind a device.
BY_PEAKS = "* from its peaks alone: no device of its generation was measured, so it is at best probable and ranks last"


def marked(row: JobRow | NetworkRow) -> str:
    """The device, with a mark where no device of its generation was measured."""
    return row.device if row.generation_measured else f"{row.device} *"


@blocks.register
def job_view(b: JobBudget, width: int | None = 160) -> Iterator[Block]:
    """A job: one device in full, several as a table; no width: a page, which has all rows and columns."""
    single = len(b.rows) == 1
    where = f" on {_devices(b.rows[0])}" if single else ""
    yield Line(f"{b.model}{where}: {setting_words(b.workload)}", "title")
    yield Line(_amount_line(b), "faint")
    yield from _one_device(b) if single else _many_devices(b, width)
    yield BLANK
    if b.limits:
        yield Line(legend(b.confidence), "faint")
    basis = ", ".join(sorted({r.basis for r in b.rows}))
    yield Line(f"Basis: {basis}; predictions throughout, none from the store", "faint")
    if b.notes:
        yield Notes(b.notes)
    for reason in dict.fromkeys(b.left_out.values()):
        yield Line(f"Excluded: {reason}", "faint")


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


def _one_device(b: JobBudget) -> Iterator[Block]:
    r, rows = b.rows[0], []
    limited = bool(b.limits)
    heads = [Column("", wrap=True), Column("estimate", right=True, tone="best", units=True)]
    heads += [Column(interval_heading(b.confidence), right=True, relative=True)]
    heads += [Column("limit", right=True), Column("")] if limited else []

    def add(label: str, e: Estimate | None, limit: str = "", verdict: str = "") -> None:
        rest = (limit, verdict) if limited else ()
        rows.append(Row((label, *readable_cells(e), *rest), "bad" if e is None else ""))

    add("Step", r.step_ms)
    add("Pace", r.samples_per_s)
    if b.unit == "epochs":
        add("Epoch", r.each.hours)
    for name, (label, unit) in _QUANTITIES.items():
        limit = b.limits.get(name)
        words = "" if limit is None else " ".join(in_readable_units(limit, limit, limit, unit)[::3])
        add(label, getattr(r, name), words, r.verdicts.get(name, ""))
    add("Memory needed", r.memory_mb)
    yield Table(heads, rows)
    if r.price:
        yield Line(f"Price: {r.price}", "faint")
    if r.largest is not None:
        sure = f"{r.surely_largest:,} with {100 * b.confidence:g} % confidence"
        yield Line(
            f"Fits into the budget: {_counted(r.largest, b.unit)}, {sure}; limited by {_BINDS[r.binds or 'hours']}"
        )
    yield from _batches(b)
    yield from _counts(b)


def _counted(count: int, unit: str) -> str:
    return f"{count:,} {unit if count != 1 else unit.removesuffix('s')}"


def _batches(b: JobBudget) -> Iterator[Block]:
    if len(b.batches) < 2:
        return
    yield Line(f"Batch: {b.best_batch} is the smallest that is about as fast per sample as any", "heading")
    rows = []
    for r in b.batches:
        remark = "as requested" if r.batch == b.workload["batch"] else ""
        taken = (readable_cells(e)[0] for e in (r.hours, r.cost_usd, r.memory_mb))
        cells = (f"{r.batch:,}", pretty(r.samples_per_s.value), *taken, remark)
        rows.append(Row(cells, "best" if r.batch == b.best_batch else ""))
    heads = [Column(name, right=True) for name in ("batch", "samples/s", "time", "cost", "memory")]
    yield Table([*heads, Column("")], rows)
    if b.workload["mode"] == "training":
        yield Line("Another batch changes how a network learns: its learning rate, and perhaps its accuracy.", "faint")


def _counts(b: JobBudget) -> Iterator[Block]:
    if not b.counts:
        return
    fewest = b.fewest_devices
    if not b.limits:
        title = "More devices of one machine, data parallel"
    elif fewest is None:
        title = "More devices of one machine: none of 1 to 8 is within the limits"
    else:
        words = "meets the limits" if fewest.verdict == "meets" else "probably meets the limits"
        title = f"More devices of one machine: {fewest.devices} is the smallest number that {words}"
    yield Line(title, "heading")
    rows = []
    for r in b.counts:
        chosen = bool(b.limits) and fewest is not None and r.devices == fewest.devices
        if r.devices in (1, 2, 4, 8) or chosen:
            cells = (f"{r.devices}", *readable_cells(r.hours), readable_cells(r.cost_usd)[0], r.verdict or "")
            rows.append(Row(cells, "best" if chosen else _TONES.get(r.verdict or "meets", "")))
    heads = [Column(name, right=True) for name in ("devices", "time", interval_heading(b.confidence), "cost")]
    yield Table([*heads, Column("")], rows)


def _many_devices(b: JobBudget, width: int | None) -> Iterator[Block]:
    for label, r in (("Cheapest", b.cheapest), ("Fastest", b.fastest)):
        if r is not None:
            does = f"{_counted(r.count, b.unit)}, " if b.asked is None else ""
            money = readable_cells(r.cost_usd)[0]
            words = f" ({r.verdict})" if r.verdict else ""
            peaks = "" if r.generation_measured else " from its peaks alone"
            yield Line(f"{label}: {_devices(r)}{peaks}, {does}{readable_cells(r.hours)[0]}, {money}{words}")
    if b.limits:
        limits = (" ".join(in_readable_units(v, v, v, _QUANTITIES[n][1])[::3]) for n, v in b.limits.items())
        yield Line(f"Limits: {', '.join(limits)}")
    large = [r for r in b.rows if r.fits is not False]
    shown = large if width is None else large[:ROWS]
    yield _devices_table(b, shown, width is None or width >= WIDE)
    if any(r.count == 0 for r in shown):
        yield Line(f"0 {b.unit}: the numbers are what one {b.unit.removesuffix('s')} takes", "faint")
    if not all(r.generation_measured for r in shown):
        yield Line(BY_PEAKS, "faint")
    if len(large) > len(shown):
        yield Line(f"and {len(large) - len(shown)} more devices (--json has all)", "faint")
    for fits, words in ((False, "Too little memory"), (None, "Memory unknown, so it may not fit")):
        named = [r.device for r in b.rows if r.fits is fits]
        if named:
            yield Line(f"{words}: {', '.join(named)}", "faint")


def _devices_table(b: JobBudget, rows: Sequence[JobRow], wide: bool) -> Table:
    interval = interval_heading(b.confidence)
    unit, factor = time_unit([(r if r.count else r.each).hours.value for r in rows])
    names = ["device", "USD", *([interval] if wide else []), unit, interval]
    names += ["kWh", "kg CO2", "memory GB"] if wide else []
    names += [f"most {b.unit}", "limits"] if b.limits else []
    lines = []
    for r in rows:
        taken = r if r.count else r.each  # of one part that does not fit, where none does
        cost = number_cells(taken.cost_usd)
        cells: list[Cell] = [marked(r), *(cost if wide else cost[:1]), *number_cells(taken.hours, factor)]
        if wide:
            rest = ((taken.energy_kwh, 1.0), (taken.carbon_kg, 1.0), (r.memory_mb, 1 / 1024))
            cells += [number_cells(e, unit_factor)[0] for e, unit_factor in rest]
        cells += [f"{r.largest:,}", r.verdict or ""] if b.limits else []
        lines.append(Row(cells, _TONES.get(r.verdict or "meets", "")))
    ranks = {"kg CO2": 3, "kWh": 2, "memory GB": 2, f"most {b.unit}": 1}
    heads = [
        Column(name, right=name not in ("device", "limits"), wrap=name == "device", rank=ranks.get(name, 0))
        for name in names
    ]
    return Table(heads, lines, gap=2 if wide else 1, shown=ROWS)
