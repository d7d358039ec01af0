"""Several devices side by side: predictions of one case each, or the table that `forerun.compare` returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from forerun._util.readable import in_readable_units, pretty
from forerun.decisions.compare.answer import Comparison
from forerun.prediction import Prediction
from forerun.views.blocks import Block, Cell, Column, Line, Notes, Row, Span, Table
from forerun.views.html.fragments import fragment
from forerun.views.rendering import html
from forerun.views.served import served_view
from forerun.views.words import basis_line, interval_heading, setting_words

_WORDS = ("device", "fits", "MIG slice", "basis", "bound by")
#: Columns that a narrow page hides, by their heading or its first word: the highest first.
_RANKS = {"fits": 1, "peak": 1, "time": 1, "USD": 2, "energy": 2, "energy J": 3, "bound": 3, "CO2": 3, "basis": 4,
          "power": 4, "MIG": 5}  # fmt: skip


@html.register
def _(comparison: Comparison) -> str:
    shown = comparison_html(comparison, confidence=comparison.confidence)
    return shown if comparison.served is None else shown + fragment(served_view(comparison.served, None))


def predictions_html(
    predictions: Sequence[Prediction], *, samples: int | None = None, problems: Iterable[str] = ()
) -> str:
    """One row per device, in the order given: throughput, latency, memory, energy, carbon, cost, the MIG slice and the
    basis, each number with its interval on the scale of its column.

    The predictions are of one case on several devices. With `samples`, time, energy, carbon and cost are also
    given for that many samples (or tokens); without, carbon and cost are per million. `problems` are sentences about
    devices without a prediction.
    """
    if not predictions:
        return fragment(Line(problem, "bad") for problem in problems)
    p = predictions[0]
    lines = [_prediction_cells(prediction, samples) for prediction in predictions]
    fits = [prediction.fit is None or prediction.fit.fits for prediction in predictions]
    notes = _shared([(prediction.device, prediction.notes) for prediction in predictions])
    checks = dict.fromkeys(prediction.check for prediction in predictions if prediction.check)
    return fragment(
        [
            Line(f"{p.model}: {setting_words(p.workload)}", "title"),
            *_table(lines, fits, p.confidence, problems),
            *(
                Line(basis_line(basis), "faint")
                for basis in dict.fromkeys(prediction.basis for prediction in predictions)
            ),
            *([Notes(notes)] if notes else []),
            *(Line("Check it on the device: ", "faint", code=check) for check in checks),
        ]
    )


def comparison_html(
    frame: pd.DataFrame, *, title: str | None = None, confidence: float = 0.9, carbon: bool = True
) -> str:
    """The table of `forerun.compare`, one row per device; devices without a prediction are listed below with the
    reason.

    `confidence` is that of the intervals in the frame; `carbon=False` leaves carbon out.
    """
    rows = frame.to_dict("records")
    able = [row for row in rows if not isinstance(row.get("error"), str)]
    lines = [_frame_cells(row, carbon) for row in able]
    fits = [row["fits"] is not False for row in able]
    problems = [row["error"] for row in rows if isinstance(row.get("error"), str)]
    if title is None:
        title = f"{rows[0]['model']}: {setting_words(rows[0])}" if rows else "No devices"
    basis = dict.fromkeys(str(row["basis"]) for row in able)
    blocks = [Line(title, "title"), *_table(lines, fits, confidence, problems)]
    return fragment([*blocks, *(Line(basis_line(prediction), "faint") for prediction in basis)])


def _table(
    lines: Sequence[Mapping[str, Cell]], fits: Sequence[bool], confidence: float, problems: Iterable[str]
) -> Iterator[Block]:
    headings = list(dict.fromkeys(name for line in lines for name in line))
    if lines:
        rows = [
            Row([line.get(name, "") for name in headings], "" if fit else "faint")
            for line, fit in zip(lines, fits, strict=True)
        ]
        ranks = [_RANKS.get(name, _RANKS.get(name.split()[0], 0)) for name in headings]
        heads = [Column(name, right=name not in _WORDS, rank=rank) for name, rank in zip(headings, ranks, strict=True)]
        caption = f"Under each number its {interval_heading(confidence)}; one scale per column."
        yield Table(heads, rows, caption=caption)
    for problem in problems:
        yield Line(problem, "bad")


def _prediction_cells(p: Prediction, samples: int | None) -> dict[str, Cell]:
    """The cells of one row by their headings."""
    unit = p.throughput.unit if p.throughput else "samples/s"
    item = unit.removesuffix("/s")
    per_call = p.throughput.value * p.latency_ms.value / 1e3 if p.throughput and p.latency_ms else 1.0
    calls = 1e6 / per_call if samples is None else float(math.ceil(samples / per_call - 1e-9))
    many = f"per million {item}" if samples is None else f"for {samples:,} {item}"
    out: dict[str, Cell] = {
        "device": p.device, unit: _number(p.throughput), "latency ms": _number(p.latency_ms),
        "peak memory MB": _number(p.memory_mb), "energy J": _number(p.energy_j),
    }  # fmt: skip
    if samples is not None:
        hours = p.latency_ms and p.latency_ms.scaled(calls / 3.6e6, "h")
        out[f"time {many}"] = _readable(hours)
        out[f"energy {many}"] = _readable(p.energy_j and p.energy_j.scaled(calls / 3.6e6, "kWh"))
    out[f"CO2 {many}"] = _readable(p.carbon_g and p.carbon_g.scaled(calls, "g"))
    out[f"USD {many}"] = _number(p.cost_usd and p.cost_usd.scaled(calls, "USD"))
    return out | {"MIG slice": p.mig or "", "fits": _fits(p), "basis": p.basis}


def _fits(p: Prediction) -> str:
    if p.fit is None:
        return "unknown"
    return ("yes" if p.fit.sure else "by the estimate") if p.fit.fits else "no"


def _frame_cells(row: Mapping[str, Any], carbon: bool) -> dict[str, Cell]:
    """The same for a row of `predict_many`; cost follows the latency, carbon the energy."""
    latency, energy = _columns(row, "latency", "ms"), _columns(row, "energy", "j")
    unit = str(row["throughput_unit"])
    item = unit.removesuffix("/s")
    calls = 1e9 / (row["throughput"] * row["latency_ms"])  # calls per million
    rate = row["throughput"] * row["latency_ms"]
    out: dict[str, Cell] = {
        "device": str(row["device"]), unit: _cell((rate / latency[2], rate / latency[1], rate / latency[0])),
        "latency ms": _cell(latency), "peak memory MB": _cell(_columns(row, "memory", "mb")),
        "energy J": _cell(energy), "power W": _cell(_columns(row, "power", "w")),
    }  # fmt: skip
    if carbon:
        grams = [x * row["carbon_g"] / row["energy_j"] * calls for x in energy]
        out[f"CO2 g per million {item}"] = _cell(grams)
    out[f"USD per million {item}"] = _cell([x * row["cost_usd"] / row["latency_ms"] * calls for x in latency])
    fits = {True: "yes" if row["surely_fits"] else "by the estimate", False: "no"}.get(row["fits"], "unknown")
    return out | {"bound by": str(row["bound"] or ""), "fits": fits, "basis": str(row["basis"])}


def _columns(row: Mapping[str, Any], name: str, unit: str) -> tuple[float, float, float]:
    return row[f"{name}_low_{unit}"], row[f"{name}_{unit}"], row[f"{name}_high_{unit}"]


def _cell(numbers: Sequence[float]) -> Cell:
    low, value, high = numbers
    if value is None or value != value:
        return "unknown"
    return Span(low, value, high, f"{pretty(low)} … {pretty(high)}", pretty(value))


def _number(e: Any) -> Cell:
    return "unknown" if e is None else _cell((e.low, e.value, e.high))


def _readable(e: Any) -> Cell:
    if e is None:
        return "unknown"
    value, low, high, unit = in_readable_units(e.value, e.low, e.high, e.unit)
    return Span(e.low, e.value, e.high, f"{low} … {high}", f"{value} {unit}")


def _shared(notes: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Notes of several devices: shared ones once, the others with their device."""
    counts: dict[str, int] = {}
    for _, of_device in notes:
        for note in dict.fromkeys(of_device):
            counts[note] = counts.get(note, 0) + 1
    named = (
        note if counts[note] == len(notes) > 1 else f"{device}: {note}"
        for device, of_device in notes
        for note in of_device
    )
    return list(dict.fromkeys(named))
