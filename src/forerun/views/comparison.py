"""View of one case on several devices in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from forerun._util.readable import pretty
from forerun.views.blocks import Block, Column, Line, Row, Table
from forerun.views.words import WIDE, interval_heading


def comparison_view(
    frame: pd.DataFrame, title: str, width: int = 160, confidence: float = 0.9, carbon: bool = False
) -> Iterator[Block]:
    """One row per device; devices without a prediction are listed below, each with the reason. `carbon` adds grams."""
    wide = width >= WIDE
    unit = next((u for u in frame["throughput_unit"] if isinstance(u, str)), "samples/s")
    headings = ["device", "latency ms", interval_heading(confidence), unit, "memory GB", "fits"]
    headings += (
        ["bound by", "energy J", "power W", f"USD per million {unit.removesuffix('/s')}"] if wide else ["USD/million"]
    )
    headings += ["CO2 g"] if carbon else []
    problems, rows = [], []
    for row in frame.itertuples():
        if isinstance(row.error, str):
            problems.append(Line(row.error, "bad"))
            continue
        usd = row.cost_usd / (row.throughput * row.latency_ms / 1e3) * 1e6
        cells = [
            row.device, pretty(row.latency_ms), f"{pretty(row.latency_low_ms)} … {pretty(row.latency_high_ms)}",
            pretty(row.throughput), pretty(row.memory_mb / 1024), {True: "yes", False: "no"}.get(row.fits, "?"),
        ]  # fmt: skip
        cells += [row.bound or "unknown", _or_unknown(row.energy_j), _or_unknown(row.power_w)] if wide else []
        cells += [_or_unknown(usd), *([_or_unknown(row.carbon_g)] if carbon else [])]
        rows.append(Row(cells, "" if row.fits is not False else "faint"))
    yield Line(title, "title")
    heads = [Column(name, right=name not in ("device", "bound by")) for name in headings]
    yield Table(heads, rows, gap=2 if wide else 1)
    yield from problems


def _or_unknown(x: float) -> str:
    return "unknown" if x != x else pretty(x)
