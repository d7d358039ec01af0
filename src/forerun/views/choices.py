"""View of the choice of a network under a budget."""

from __future__ import annotations

from collections.abc import Iterator

from forerun._util.readable import in_readable_units
from forerun.decisions.budget.curve_choice import CurveChoice
from forerun.decisions.budget.model_choice import ModelChoice
from forerun.views.blocks import (
    Block,
    Cell,
    Column,
    Line,
    Notes,
    Row,
    Span,
    Table,
    number_cells,
    readable_cells,
)
from forerun.views.budget import BY_PEAKS, ROWS, WIDE, legend, marked, time_unit
from forerun.views.rendering import blocks
from forerun.views.words import count, interval_heading, setting_words

_UNITS = {"latency_ms": "ms", "hours": "h", "cost_usd": "USD", "energy_kwh": "kWh", "carbon_kg": "kg"}


def limit_words(limits: dict[str, float]) -> str:
    """'within 60 s and 1 USD'."""
    words = (" ".join(in_readable_units(v, v, v, _UNITS[name])[::3]) for name, v in limits.items())
    return f" within {' and '.join(words)}" if limits else ""


@blocks.register
def model_view(c: ModelChoice, width: int | None = 160) -> Iterator[Block]:
    """Published models within the limits, most accurate first."""
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


@blocks.register
def curve_view(c: CurveChoice, width: int | None = 160) -> Iterator[Block]:
    """Networks of the accuracy curves, best first."""
    where = "the best network of each device" if c.several_devices else f"on {c.rows[0].device}"
    part, total = c.data["training"], c.data_of["training"]
    yield Line(f"Accuracy{limit_words(c.limits)}, {where}", "title")
    yield Line(
        f"Of our runs, which train on {part:,} of the {total:,} images of {c.data_of['name']}: an epoch is over these, "
        f"and over all {total:,} it takes {total / part:.3g} times as long"
    )
    wide = width is None or width >= WIDE
    unit, factor = time_unit([r.whole.hours.value for r in c.rows])
    shown = c.rows if width is None else c.rows[:ROWS]
    interval = interval_heading(c.confidence)
    batch = wide or len({r.batch for r in c.rows}) > 1
    names = [*(["device"] if c.several_devices else []), "depth", "filters", *(["batch"] if batch else []), "accuracy"]
    names += [interval if wide else "interval", "epochs", unit, *(["USD", "one epoch", interval] if wide else [])]
    names += [f"epoch of {total:,}" if wide else "whole epoch"]
    heads = [Column(name, right=name != "device", wrap=at == 0) for at, name in enumerate(names)]
    rows = []
    for r in shown:
        a, n = r.accuracy, r.epochs.value
        cells: list[Cell] = [marked(r)] if c.several_devices else []
        cells += [f"{r.settings['depth']}", f"{r.settings['filters']}", *([f"{r.batch}"] if batch else [])]
        cells += [f"{a.value:.1%}", Span(a.low, a.value, a.high, f"{100 * a.low:.1f} … {100 * a.high:.1f}")]
        cells += [f"{n:.0f}" if r.all_epochs else f"{n:.1f}", number_cells(r.whole.hours, factor)[0]]
        cells += [number_cells(r.whole.cost_usd)[0], *readable_cells(r.epoch.hours)] if wide else []
        rows.append(Row([*cells, readable_cells(r.epoch_of_all.hours)[0]]))
    yield Table(heads, rows, gap=2 if wide else 1, shown=ROWS)
    if c.several_devices and not all(r.generation_measured for r in shown):
        yield Line(BY_PEAKS, "faint")
    if len(c.rows) > len(shown):
        yield Line(f"and {len(c.rows) - len(shown)} more (--json has all)", "faint")
    if c.too_slow:
        yield Line(f"{c.too_slow} networks do not finish an epoch within the limits", "faint")
    if c.notes:
        yield Notes(c.notes)
