"""Parts of a report: levels with findings in words, charts, tables and plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forerun._util.readable import in_readable_units, pretty
from forerun.prediction import Estimate

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Chart:
    """One plotly figure under a title of its own."""

    title: str
    figure: Figure


@dataclass(frozen=True)
class Key:
    """One entry of a legend: words, a colour and a sign (line, dash, dot, circle, triangle, diamond)."""

    words: str
    colour: str
    sign: str = "line"


@dataclass(frozen=True)
class Group:
    """Charts side by side, and their caption."""

    title: str
    charts: Sequence[Chart]
    caption: str = ""
    keys: Sequence[Key] = ()
    wide: bool = False  # two in a row at most


@dataclass(frozen=True)
class Table:
    """Rows of text; `numbers` are the columns that are aligned to the right, `marked` rows stand out."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()
    marked: Sequence[int] = ()
    shown: int | None = None  # rows beyond these are folded away
    caption: str = ""


@dataclass(frozen=True)
class Level:
    """One of the levels of a report."""

    id: str
    title: str
    about: str  # what the level assumes
    findings: Sequence[str] = ()
    groups: Sequence[Group] = ()
    tables: Sequence[Table] = ()
    data: dict[str, Any] = field(default_factory=dict)


def plain(estimate: Estimate | None) -> dict[str, Any] | None:
    """An estimate as JSON, in the unit that its name says."""
    return None if estimate is None else {n: getattr(estimate, n) for n in ("value", "low", "high")}


def value_text(estimate: Estimate | None, *, interval: bool = True, with_unit: bool = True) -> str:
    """'7.31 ms (5.65 … 10.5)'; without its unit as it is, in the unit of its column."""
    if estimate is None:
        return "unknown"
    if not with_unit:
        value, low, high = map(pretty, (estimate.value, estimate.low, estimate.high))
        return f"{value} ({low} … {high})" if interval else value
    if estimate.unit == "h":
        value, low, high, unit = _hours(estimate)
    else:
        value, low, high, unit = in_readable_units(estimate.value, estimate.low, estimate.high, estimate.unit)
    return f"{value} {unit} ({low} … {high})" if interval else f"{value} {unit}"


def _hours(estimate: Estimate) -> tuple[str, str, str, str]:
    sizes = ((1 / 60, 3600, "s"), (1, 60, "min"), (72, 1, "h"), (float("inf"), 1 / 24, "days"))
    factor, unit = next((factor, unit) for most, factor, unit in sizes if estimate.value < most)
    return pretty(estimate.value * factor), pretty(estimate.low * factor), pretty(estimate.high * factor), unit


def percent(share: float) -> str:
    """'42 %', '0.4 %'."""
    return f"{100 * share:.0f} %" if share >= 0.0095 else f"{100 * share:.1g} %"


def listed(words: Sequence[str]) -> str:
    """'a, b and c'."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
