"""Quantities with units as people write them: 25ms, 0.5s, 20m, 2000/s, 2/h, 80GB, 10J, 5g."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from forerun._util.readable import short
from forerun.errors import ForerunError


@dataclass(frozen=True)
class Kind:
    """A kind of quantity: its units with their factors; the first is the default.

    Units are case-insensitive, except with `milli_or_mega` (1 mJ is not 1 MJ) and for `refused` spellings, which mean
    other units.
    """

    words: str
    example: str
    units: dict[str, float]
    milli_or_mega: bool = False
    refused: dict[str, str] = field(default_factory=dict)

    def worth(self, unit: str) -> float | None:
        """The factor of a unit; None if it is not known."""
        if unit in self.units:
            return self.units[unit]
        able = [known for known in self.units if known.lower() == unit.lower() and unit not in self.refused]
        if self.milli_or_mega and unit[:1] in "mM":  # 'min' has no prefix
            able = [known for known in able if known[:1] == unit[:1] or known == "min"]
        return self.units[able[0]] if able else None


LATENCY = Kind(
    "a latency", "25ms", {"ms": 1.0, "us": 1e-3, "µs": 1e-3, "s": 1e3, "min": 6e4}, milli_or_mega=True
)  # fmt: skip
DURATION = Kind("a time", "90s, 20m or 1.5h", {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0})
THROUGHPUT = Kind("a throughput", "2000/s", {"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600, "/day": 1 / 86400})
MEMORY = Kind(
    "a memory", "80GB", {"MB": 1.0, "MiB": 1.0, "GB": 1024.0, "GiB": 1024.0, "TB": 1024.0**2},
    refused={"Mb": "megabits", "Gb": "gigabits", "Tb": "terabits"},
)  # fmt: skip
PRICE = Kind("a price", "2/h", {"/h": 1.0, "/hour": 1.0, "/day": 1 / 24, "/month": 1 / 730})
COST = Kind("a cost", "0.5", {"": 1.0, "USD": 1.0, "/M": 1.0, "/million": 1.0, "ct": 0.01})
ENERGY = Kind(
    "an energy", "10J", {"J": 1.0, "mJ": 1e-3, "kJ": 1e3, "MJ": 1e6, "Wh": 3600.0, "kWh": 3.6e6, "MWh": 3.6e9},
    milli_or_mega=True,
)  # fmt: skip
CARBON = Kind("an amount of carbon", "5g", {"g": 1.0, "mg": 1e-3, "kg": 1e3, "t": 1e6}, milli_or_mega=True)

TOKENS = Kind("a number of tokens", "100B, 15T or 3e9", {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12})

_FORM = re.compile(r"(?P<number>\d{1,15}(?:,\d{3})*(?:\.\d*)?(?:[eE][+-]?\d{1,2})?|\.\d+)\s*(?P<unit>[a-zA-Zµμ/]*)")


def quantity(text: str, kind: Kind, *, positive: bool = False) -> float:
    """The number in the kind's first unit."""
    match = _FORM.fullmatch(text.strip().replace("$", "").replace("μ", "µ"))
    if match is None:
        raise ForerunError(f"{short(text)} is not {kind.words} such as {kind.example}")
    unit = match["unit"]
    if kind is PRICE and unit[:3].lower() == "usd":
        unit = unit[3:]
    worth = kind.worth(unit) if unit else 1.0
    if worth is None:
        known = ", ".join(u for u in kind.units if u)
        means = f" ({unit} are {kind.refused[unit]})" if unit in kind.refused else ""
        raise ForerunError(
            f"{short(text)} is not {kind.words} such as {kind.example}: its unit must be one of {known}{means}"
        )
    value = float(match["number"].replace(",", "")) * worth
    if positive and value <= 0:
        raise ForerunError(f"{kind.words} must be larger than 0, got {short(text)}")
    return value


def optional_quantity(text: str | None, kind: Kind) -> float | None:
    """The same for an optional value."""
    return None if text is None else quantity(text, kind)
