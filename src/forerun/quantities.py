"""Quantities with units as people write them: 25ms, 0.5s, 20m, 2000/s, 2/h, 80GB, 10J, 5g."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forerun.errors import ForerunError
from forerun.readable import short


@dataclass(frozen=True)
class Kind:
    """A kind of quantity: its units with what each is worth, the first of them where none is written."""

    words: str
    example: str
    units: dict[str, float]


LATENCY = Kind("a latency", "25ms", {"ms": 1.0, "us": 1e-3, "µs": 1e-3, "s": 1e3, "min": 6e4})
DURATION = Kind("a time", "90s, 20m or 1.5h", {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0})
THROUGHPUT = Kind("a throughput", "2000/s", {"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600, "/day": 1 / 86400})
MEMORY = Kind("a memory", "80GB", {"mb": 1.0, "mib": 1.0, "gb": 1024.0, "gib": 1024.0, "tb": 1024.0**2})
PRICE = Kind("a price", "2/h", {"/h": 1.0, "/hour": 1.0, "/day": 1 / 24, "/month": 1 / 730})
COST = Kind("a cost", "0.5", {"": 1.0, "usd": 1.0, "/m": 1.0, "/million": 1.0, "ct": 0.01})
ENERGY = Kind("an energy", "10J", {"j": 1.0, "mj": 1e-3, "kj": 1e3, "wh": 3600.0, "kwh": 3.6e6})
CARBON = Kind("an amount of carbon", "5g", {"g": 1.0, "mg": 1e-3, "kg": 1e3})

_FORM = re.compile(r"(?P<number>\d{1,15}(?:,\d{3})*(?:\.\d*)?(?:e[+-]?\d{1,2})?|\.\d+)\s*(?P<unit>[a-zµμ/]*)")


def quantity(text: str, kind: Kind, *, positive: bool = False) -> float:
    """The number in the kind's first unit."""
    plain = text.strip().lower().replace("$", "").replace("μ", "µ")
    found = _FORM.fullmatch(plain)
    if found is None:
        raise ForerunError(f"{short(text)} is not {kind.words} such as {kind.example}")
    unit = found["unit"]
    if kind is PRICE:
        unit = unit.removeprefix("usd")
    if unit and unit not in kind.units:
        known = ", ".join(u for u in kind.units if u)
        raise ForerunError(f"{short(text)} is not {kind.words} such as {kind.example}: its unit must be one of {known}")
    value = float(found["number"].replace(",", "")) * (kind.units[unit] if unit else 1.0)
    if positive and value <= 0:
        raise ForerunError(f"{kind.words} must be larger than 0, got {short(text)}")
    return value


def optional_quantity(text: str | None, kind: Kind) -> float | None:
    """The same of an option that need not be given."""
    return None if text is None else quantity(text, kind)
