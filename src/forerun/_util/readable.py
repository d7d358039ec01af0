"""Text for people: numbers with three significant digits in a suitable unit, and untrusted text made safe."""

from __future__ import annotations

import re
import reprlib

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel = 2

#: unit -> (threshold, factor, new unit): the first entry whose threshold the value reaches is used.
_READABLE = {
    "ms": ((60_000, 1 / 60_000, "min"), (1000, 1e-3, "s"), (0.1, 1, "ms"), (0, 1000, "µs")),
    "MB": ((1024, 1 / 1024, "GB"), (0, 1, "MB")),
    "J": ((1000, 1e-3, "kJ"), (0.1, 1, "J"), (0, 1000, "mJ")),
    "g": ((1000, 1e-3, "kg"), (0.1, 1, "g"), (1e-4, 1e3, "mg"), (0, 1e6, "µg")),
    "USD": ((0.001, 1, "USD"), (0, 1e6, "µUSD")),
    "h": ((1, 1, "h"), (1 / 60, 60, "min"), (0, 3600, "s")),
    "kWh": ((0.1, 1, "kWh"), (0, 1000, "Wh")),
    "kg": ((0.1, 1, "kg"), (0, 1000, "g")),
}  # fmt: skip


def in_readable_units(value: float, low: float, high: float, unit: str) -> tuple[str, str, str, str]:
    """The three numbers as text in a suitable unit, and that unit."""
    for threshold, factor, better in _READABLE.get(unit, ((0, 1, unit),)):
        if abs(value) >= threshold:
            return pretty(value * factor), pretty(low * factor), pretty(high * factor), better
    return pretty(value), pretty(low), pretty(high), unit


def pretty(x: float) -> str:
    """Three significant digits, thousands separated."""
    if x == 0:
        return "0"
    if abs(x) >= 100:
        return f"{x:,.0f}"
    return f"{x:.3g}"


def visible(text: str) -> str:
    """A user's text for a terminal: control characters are shown as \\x1b."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def short(value: object) -> str:
    """A user's value for a message, truncated, however large and nested it is."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # a whole number of more digits than Python converts
        return f"a {type(value).__name__} of great length"
