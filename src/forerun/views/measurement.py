"""Views of measurements, alone and beside their prediction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forerun._util.readable import pretty
from forerun.api.verification import Verification
from forerun.views.blocks import Block, Column, Line, Notes, Row, Table
from forerun.views.prediction import label
from forerun.views.words import headline, interval_heading, setting_words

#: Settings of a case that its title names.
_SHOWN = ("mode", "batch", "dtype", "new_tokens", "decoding", "prompt", "cache")


def measurement_view(row: dict[str, Any]) -> Iterator[Block]:
    """One measured row: latency, memory, energy, and the software it ran with."""
    case, wall = row["case"], row["wall_ms"]
    where = row["device"]["name"]
    yield Line(f"{case['name']} on {where}: {setting_words({n: v for n, v in case.items() if n in _SHOWN})}", "title")
    spread = f"median {pretty(wall['median'])}, p90 {pretty(wall['p90'])}, {row['timed_calls']} calls"
    rows = [Row(("Latency", f"{pretty(wall['mean'])} ms", spread))]
    for name, words in (("first_token_ms", "  to the first token"), ("token_ms", "  each further token")):
        if row.get(name) is not None:
            rows.append(Row((words.strip(), f"{pretty(row[name])} ms", ""), depth=1))
    for name, value in row["memory"].items():
        if value is not None:
            rows.append(Row((f"Memory, {name.removesuffix('_mb')}", f"{pretty(value)} MB", "")))
    if row["energy_j"] is not None:
        rows.append(Row(("Energy per call", f"{pretty(row['energy_j'])} J", f"{pretty(row['power_w'])} W")))
    else:
        rows.append(Row(("Energy per call", "unknown", str(row.get("energy_reason", "")))))
    yield Table([Column("", wrap=True)] * 3, rows)
    versions = row["software"]
    library = case["runtime"] if case.get("runtime") in versions else "torch"
    yield Line(f"{library} {versions[library]}, protocol {row['protocol']}", "faint")
    yield from _busy_note(row)


def _busy_note(row: dict[str, Any]) -> Iterator[Block]:
    """A note where other processes used the machine."""
    if row.get("status") == "busy":
        yield Notes([f"{row['reason']}; the row is not a clean measurement: repeat it on an idle machine"])


def verification_view(v: Verification) -> Iterator[Block]:
    """A prediction and the measurement of the same case, side by side."""
    yield Line(headline(v.prediction), "title")
    names = ("", "predicted", interval_heading(v.prediction.confidence), "measured", "error", "")
    heads = [Column(name, right=bool(name), wrap=True, relative=True) for name in names]
    yield Table(heads, [Row((label(check.name), *_check_cells(check))) for check in v.checks])
    software = f"torch {v.row['software']['torch']}, protocol {v.row['protocol']}"
    yield Line(f"basis: {v.prediction.basis}; {software}", "faint")
    yield from _busy_note(v.row)


def _check_cells(check: Any) -> list[str]:
    """Predicted, interval, measured, error and remark of one quantity."""
    e = check.predicted
    cells = ["", ""] if e is None else [f"{pretty(e.value)} {e.unit}", f"{pretty(e.low)} … {pretty(e.high)}"]
    measured = "unknown" if check.measured is None else f"{pretty(check.measured)} {e.unit if e else ''}".strip()
    error = "" if check.error is None else f"{check.error:+.0%}"
    inside = {True: "inside the interval", False: "OUTSIDE the interval", None: check.reason}[check.inside]
    return [*cells, measured, error, inside]
