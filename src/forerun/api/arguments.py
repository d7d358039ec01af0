"""Arguments of the public functions that cannot be as they are: each is refused in one sentence that names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from forerun._util.readable import short
from forerun.errors import ArgumentError

#: Beyond this, counts and limits are no job of this world, and sums of them leave what floating point can hold.
MOST = 10**15


def whole_number(name: str, value: Any, *, most: int = MOST) -> int:
    """The value where it is a whole number from 1 on; else an ArgumentError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError("{} must be a whole number of 1 or more, got {got}", name, got=short(value))
    if value > most:
        raise ArgumentError("{} must be at most {most:,}, got {got}", name, most=most, got=short(value))
    return value


def number(name: str, value: Any, *, zero: bool = True, most: int = MOST) -> float:
    """The value where it is a number of zero or more, or above zero; else an ArgumentError."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    if not good or value < 0 or (value == 0 and not zero):
        least = "of 0 or more" if zero else "above 0"
        raise ArgumentError("{} must be a number {least}, got {got}", name, least=least, got=short(value))
    if value > most:
        raise ArgumentError("{} must be at most {most:,}, got {got}", name, most=most, got=short(value))
    return float(value)


def several(name: str, given: Any) -> list[Any]:
    """What is given as a list that holds something; else an ArgumentError."""
    if isinstance(given, (str, bytes, Path, Mapping)) or not isinstance(given, Iterable):
        raise ArgumentError("{} must be a list, got {got}", name, got=short(given))
    items = list(given)
    if not items:
        raise ArgumentError("{} must not be empty: name at least one", name)
    return items
