"""How the choice of a network under a budget looks in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forerun.readable import in_readable_units, visible
from forerun.show import count, interval_heading, setting_words
from forerun.views.budget import (
    BY_PEAKS,
    ROWS,
    WIDE,
    cells,
    legend,
    lines,
    marked,
    number_cells,
    plain_table,
    time_unit,
)

if TYPE_CHECKING:
    from forerun.decisions.budget.curve_choice import CurveChoice
    from forerun.decisions.budget.model_choice import ModelChoice

_UNITS = {"latency_ms": "ms", "hours": "h", "cost_usd": "USD", "energy_kwh": "kWh", "carbon_kg": "kg"}


def limit_words(limits: dict[str, float]) -> str:
    """'within 60 s and 1 USD'."""
    words = (" ".join(in_readable_units(v, v, v, _UNITS[name])[::3]) for name, v in limits.items())
    return f" within {' and '.join(words)}" if limits else ""


def model_view(c: ModelChoice, width: int = 160) -> Iterator[Any]:
    """Published models that keep the limits, most accurate first."""
    from rich.text import Text

    yield Text(visible(f"Most accurate published models{limit_words(c.limits)} on {c.device}"), style="bold")
    job = f", {c.job}" if c.job else ""
    yield Text(visible(f"{setting_words(c.workload)}{job}"), style="dim")
    wide = width >= WIDE
    time = "time" if c.job else "latency"
    heads = [("weights" if wide else "model", "left"), ("top-1", "right"), ("image", "right")]
    heads += [("parameters", "right")] if wide else []
    heads += [(time, "right"), (interval_heading(c.confidence), "right")]
    heads += [("cost", "right")] if c.job else []
    heads += [("memory", "right")] if wide else []
    table = plain_table(*heads, ("", "left"))
    for r in c.rows:
        taken = r.hours if c.job else r.latency_ms
        found = [Text(visible(r.weights if wide else r.model)), f"{r.top1:.1%}", f"{r.image_size}"]
        found += [count(r.parameters).strip()] if wide else []
        found += [*cells(taken), *([cells(r.cost_usd)[0]] if c.job else [])]
        found += [cells(r.memory_mb)[0]] if wide else []
        table.add_row(*found, r.verdict, style="yellow" if r.verdict != "meets" else None)
    yield table
    rest = ", ".join(f"{n:,} {why}" for why, n in c.untried.items())
    yield Text(f"{c.tried} models were predicted" + (f"; others: {rest}" if rest else ""), style="dim")
    yield Text(legend(c.confidence), style="dim")
    yield from lines([f"Note: {note}" for note in c.notes], "yellow")


def curve_view(c: CurveChoice, width: int = 160) -> Iterator[Any]:
    """Networks of the accuracy curves, best first."""
    from rich.text import Text

    where = "the best network of each device" if c.several_devices else f"on {c.rows[0].device}"
    part, whole = c.data["training"], c.data_of["training"]
    yield Text(visible(f"Accuracy{limit_words(c.limits)}, {where}"), style="bold")
    yield Text(visible(
        f"Of our runs, which train on {part:,} of the {whole:,} images of {c.data_of['name']}: an epoch is over these, "
        f"and over all {whole:,} it takes {whole / part:.3g} times as long"
    ))  # fmt: skip
    wide = width >= WIDE
    unit, factor = time_unit([r.whole.hours.value for r in c.rows])
    heads = [("device", "left")] if c.several_devices else []
    interval = interval_heading(c.confidence) if wide else "interval"
    batch = ["batch"] if wide or len({r.batch for r in c.rows}) > 1 else []
    heads += [(name, "right") for name in ("depth", "filters", *batch, "accuracy", interval, "epochs", unit)]
    heads += [("USD", "right"), ("one epoch", "right"), (interval_heading(c.confidence), "right")] if wide else []
    heads += [(f"epoch of {whole:,}" if wide else "whole epoch", "right")]
    table = plain_table(*heads, gap=2 if wide else 1)
    for r in c.rows[:ROWS]:
        a, n = r.accuracy, r.epochs.value
        found = [marked(r)] if c.several_devices else []
        found += [
            f"{r.settings['depth']}",
            f"{r.settings['filters']}",
            *([f"{r.batch}"] if batch else []),
            f"{a.value:.1%}",
        ]
        found += [f"{100 * a.low:.1f} … {100 * a.high:.1f}", f"{n:.0f}" if r.all_epochs else f"{n:.1f}"]
        found += [number_cells(r.whole.hours, factor)[0]]
        found += [number_cells(r.whole.cost_usd)[0], *cells(r.epoch.hours)] if wide else []
        found += [cells(r.epoch_of_all.hours)[0]]
        table.add_row(*found)
    yield table
    if c.several_devices and not all(r.generation_measured for r in c.rows[:ROWS]):
        yield Text(BY_PEAKS, style="dim")
    if len(c.rows) > ROWS:
        yield Text(f"and {len(c.rows) - ROWS} more (--json has all)", style="dim")
    if c.too_slow:
        yield Text(f"{c.too_slow} networks do not end an epoch within the limits", style="dim")
    yield from lines([f"Note: {note}" for note in c.notes], "yellow")
