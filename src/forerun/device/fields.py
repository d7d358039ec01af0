"""The fields of a device entry: units, plausible ranges, and error messages."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from forerun._util.readable import short
from forerun.device import kinds

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4", "fp4")


@dataclass(frozen=True)
class Quantity:
    """One number of a datasheet: its unit in words, the range that is believable, and the usual mix-ups outside it."""

    unit: str
    low: float
    high: float
    too_low: str = ""
    too_high: str = ""


_TFLOPS = Quantity("TFLOP/s", 1e-4, 1e5, "PFLOP/s", "GFLOP/s")
_TOPS = Quantity("TOP/s", 1e-4, 1e5, "POP/s", "GOP/s")

PEAKS: dict[str, Quantity] = {
    f"{dtype}_{'tops' if dtype.startswith('int') else 'tflops'}": _TOPS if dtype.startswith("int") else _TFLOPS
    for dtype in DTYPES
}
QUANTITIES: dict[str, Quantity] = PEAKS | {
    "memory_gb": Quantity("gigabytes", 0.25, 4000, "TB", "MB"),
    "driver_memory_mb": Quantity("megabytes of 2**20 bytes", 100, 5e6, "GB", "KB"),
    "usable_memory_mb": Quantity("megabytes of 2**20 bytes", 100, 5e6, "GB", "KB"),
    "bandwidth_gbs": Quantity("gigabytes per second", 10, 1e5, "TB/s", "MB/s"),
    "l2_cache_mb": Quantity("megabytes", 0.05, 2000, "GB", "KB"),
    "sm_count": Quantity("streaming multiprocessors (or compute units, or cores)", 1, 1e5),
    "boost_clock_mhz": Quantity("megahertz", 100, 1e4, "GHz", "kHz"),
    "tdp_w": Quantity("watts", 0.5, 2e4, "kW", "mW"),
    "idle_w": Quantity("watts", 0.1, 5e3, "kW", "mW"),
    "interconnect_gbs": Quantity("gigabytes per second", 0.5, 1e5, "TB/s", "MB/s"),
    "pcie_gbs": Quantity("gigabytes per second", 0.2, 2000, "", "MB/s"),
    "launch_price_usd": Quantity("US dollars", 1, 1e7),
}
DATASHEET = (*QUANTITIES, "release_date")
TEXTS = ("id", "name", "vendor", "kind", "architecture", "note")
ENTRY = (*TEXTS, "compute_capability", "inline_ecc", "aliases", "unsupported", "base", "processor", "datasheet",
         "calibrated")  # fmt: skip
#: Calibrated values that `forerun measure machine` makes. They are shown and drawn; no prediction reads them. Peaks are
#: the best rate of a matmul (measured_) and the rate of the best shape over a second (sustained_).
CEILINGS = (
    *(f"measured_{name}" for name in PEAKS), *(f"sustained_{name}" for name in PEAKS), "measured_bandwidth_gbs",
    "measured_l1_gbs", "measured_l2_gbs", "measured_l2_mb", "launch_us", "kernel_us", "synchronised_us",
    "measured_idle_w", "context_idle_w", "full_w", "streaming_w",
)  # fmt: skip
#: A device has some forty fields; longer mappings are not read. The others limit how many problems are named.
MOST_FIELDS, _MOST_NAMED = 200, 12
LONGEST_TEXT = 1000
# What people write for a field, where it is too far from our name for a spelling match.
_HABITS = {"vram": "memory_gb", "vram_gb": "memory_gb", "ram_gb": "memory_gb", "hbm_gb": "memory_gb", "power": "tdp_w",
           "power_w": "tdp_w", "watts": "tdp_w", "tgp_w": "tdp_w", "price": "launch_price_usd", "cores": "sm_count",
           "tflops": "fp32_tflops", "nvlink_gbs": "interconnect_gbs", "clock_mhz": "boost_clock_mhz"}  # fmt: skip


def peak_dtype(field: str) -> str:
    """'fp16' of 'fp16_tflops'."""
    return field.partition("_")[0]


def number(value: Any) -> float | None:
    """A finite number, or None. YAML reads 9e2 as text, since it wants a point and a sign in such a number."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d{1,3}", value):
        value = float(value)
    try:
        good = not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
        return float(value) if good else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def number_problem(field: str, value: Any, kind: str = kinds.USUAL) -> str | None:
    """Why this value cannot be this field of a device of this kind, or None when it can."""
    quantity = QUANTITIES[field]
    if field == "bandwidth_gbs" and kinds.is_kind(kind):
        quantity = replace(quantity, low=kinds.device_kind(kind).least_bandwidth_gbs)
    parsed = number(value)
    if parsed is None or parsed <= 0:
        return f"{field} must be a positive number of {quantity.unit}, got {short(value)}"
    value = parsed
    if quantity.low <= value <= quantity.high:
        return None
    mixed_up = quantity.too_low if value < quantity.low else quantity.too_high
    looks = f" looks like {mixed_up}" if mixed_up else " is not believable"
    return f"{field}: {value:g}{looks}; expected {quantity.low:g} to {quantity.high:g} {quantity.unit}"


def date_text(value: Any) -> str | None:
    """A date as 'YYYY', 'YYYY-MM' or 'YYYY-MM-DD', or None when it is no date. YAML itself reads a full date."""
    if isinstance(value, datetime.date):
        return value.isoformat()[:10]
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return text if re.fullmatch(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?", text) else None


def unknown_field(field: Any, known: Iterable[str]) -> str:
    """'bandwidth is not a field (did you mean bandwidth_gbs?)'."""
    from difflib import get_close_matches  # of use after a mistake alone

    known = list(known)
    text = _shown(field)
    habit = _HABITS.get(text.lower())
    near = [habit] if habit in known else get_close_matches(text.lower(), known, n=1, cutoff=0.6)
    return f"{text} is not a field" + (f" (did you mean {near[0]}?)" if near else "")


def _shown(name: Any) -> str:
    return name if isinstance(name, str) and len(name) < 60 else short(name)


def as_sentence(problems: list[str]) -> str:
    """What is wrong with a device, the first of it: a mapping of anything else has thousands of wrong fields."""
    more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
    return "; ".join(problems[:_MOST_NAMED]) + more


def text_list_problem(field: str, value: Any, allowed: Iterable[str] | None = None) -> str | None:
    """Why this is not a list of words (of the allowed ones), or None when it is."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        return f"{field} must be a list of names, got {short(value)}"
    if allowed is not None and (wrong := [item for item in value if item not in allowed]):
        return f"{field}: {', '.join(map(_shown, wrong[:_MOST_NAMED]))} unknown; known are {', '.join(allowed)}"
    return None


@dataclass
class Cell:
    """One field as written: the value, and where it comes from."""

    value: Any
    source: str | None = None
    date: str | None = None
    how: str = ""  # how it was computed from other facts

    def of(self, source: str) -> str:
        """Where the value comes from, with how it was computed."""
        return f"computed: {self.how}; {source}" if self.how else source


def cell(
    field: str, written: Any, problems: list[str], sources: Mapping[str, Any], kind: str = kinds.USUAL
) -> Cell | None:  # fmt: skip
    """A field written as a bare value or as {value, source, date}; None (and a problem noted) when it is wrong."""
    source = date = None
    value = written
    if isinstance(written, Mapping):
        if "value" not in written:
            problems.append(f"{field} must be a number or {{value, source, date}}, got {short(dict(written))}")
            return None
        if extra := [name for name in written if name not in ("value", "source", "date")]:
            problems.append(f"{field}: {unknown_field(extra[0], ('value', 'source', 'date'))}")
        value, source = written["value"], written.get("source")
        if "date" in written and (date := date_text(written["date"])) is None:
            problems.append(f"{field}: date must be a date such as 2026-07-01, got {short(written['date'])}")
    if source is not None and not isinstance(source, str):
        problems.append(f"{field}: source must be text, got {short(source)}")
        source = None
    if sources and source is not None and source not in sources:
        problems.append(f"{field}: source {source!r} is not under sources")
    if value is None:  # an empty field means unknown, the same as leaving it out
        return None
    if field == "release_date":
        if (text := date_text(value)) is None:
            problems.append(f"release_date must be a date such as 2024-11-18, got {short(value)}")
            return None
        return Cell(text, source, date)
    if problem := number_problem(field, value, kind):
        problems.append(problem)
        return None
    return Cell(number(value), source, date)
