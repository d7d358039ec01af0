"""What is shown of the choice of a network under a budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from forerun.blocks import Block, Cell, Column, Line, Notes, Row, Span, Table, number_cells, readable_cells
from forerun.readable import in_readable_units
from forerun.show import count, interval_heading, setting_words
from forerun.views.budget import ROWS, WIDE, legend, time_unit

if TYPE_CHECKING:
    from forerun.decisions.budget.curve_choice import CurveChoice
    from forerun.decisions.budget.model_choice import ModelChoice

_UNITS = {"latency_ms": "ms", "hours": "h", "cost_usd": "USD", "energy_kwh": "kWh", "carbon_kg": "kg"}


def limit_words(limits: dict[str, float]) -> str:
    """'within 60 s and 1 USD'."""
    words = (" ".join(in_readable_units(v, v, v, _UNITS[name])[::3]) for name, v in limits.items())
    return f" within {' and '.join(words)}" if limits else ""


def model_view(c: ModelChoice, width: int | None = 160) -> Iterator[Block]:
    """Published models that keep the limits, most accurate first."""
    yield Line(f"Most accurate published models{limit_words(c.limits)} on {c.device}", "title")
    job = f", {c.job}" if c.job else ""
    yield Line(f"{setting_words(c.workload)}{job}", "faint")
    wide = width is None or width >= WIDE
    numbers = ["top-1", "image", *(["parameters"] if wide else []), "time" if c.job else "latency"]
    numbers += [interval_heading(c.confidence), *(["cost"] if c.job else []), *(["memory"] if wide else [])]
    heads = [Column("weights" if wide else "model", wrap=True), *(Column(name, right=True) for name in numbers)]
    rows = []
    for r in c.rows:
        taken = r.hours if c.job else r.latency_ms
        cells: list[Cell] = [r.weights if wide else r.model, f"{r.top1:.1%}", f"{r.image_size}"]
        cells += [count(r.parameters).strip()] if wide else []
        cells += [*readable_cells(taken), *([readable_cells(r.cost_usd)[0]] if c.job else [])]
        cells += [readable_cells(r.memory_mb)[0]] if wide else []
        rows.append(Row([*cells, r.verdict], "doubtful" if r.verdict != "meets" else ""))
    yield Table([*heads, Column("")], rows)
    rest = ", ".join(f"{n:,} {why}" for why, n in c.untried.items())
    yield Line(f"{c.tried} models were predicted" + (f"; others: {rest}" if rest else ""), "faint")
    yield Line(legend(c.confidence), "faint")
    if c.notes:
        yield Notes(c.notes)


def curve_view(c: CurveChoice, width: int | None = 160) -> Iterator[Block]:
    """Networks of the accuracy curves, best first."""
    where = "the best network of each device" if c.several_devices else f"on {c.rows[0].device}"
    yield Line(f"Accuracy{limit_words(c.limits)}, {where}", "title")
    wide = width is None or width >= WIDE
    unit, factor = time_unit([r.whole.hours.value for r in c.rows])
    names = ["depth", "filters", "batch", "accuracy", "interval", "epochs", unit]
    names += ["USD", "one epoch", interval_heading(c.confidence)] if wide else []
    heads = [*([Column("device", wrap=True)] if c.several_devices else []), *(Column(n, right=True) for n in names)]
    rows = []
    for r in c.rows if width is None else c.rows[:ROWS]:
        a, n = r.accuracy, r.epochs.value
        cells: list[Cell] = [r.device] if c.several_devices else []
        cells += [f"{r.settings['depth']}", f"{r.settings['filters']}", f"{r.batch}", f"{a.value:.1%}"]
        cells += [Span(a.low, a.value, a.high, f"{100 * a.low:.1f} … {100 * a.high:.1f}")]
        cells += [f"{n:.0f}" if r.all_epochs else f"{n:.1f}", number_cells(r.whole.hours, factor)[0]]
        cells += [number_cells(r.whole.cost_usd)[0], *readable_cells(r.epoch.hours)] if wide else []
        rows.append(Row(cells))
    yield Table(heads, rows, gap=2 if wide else 1, shown=ROWS)
    if width is not None and len(c.rows) > ROWS:
        yield Line(f"and {len(c.rows) - ROWS} more (--json has all)", "faint")
    if c.too_slow:
        yield Line(f"{c.too_slow} networks do not end an epoch within the limits", "faint")
    if c.notes:
        yield Notes(c.notes)
