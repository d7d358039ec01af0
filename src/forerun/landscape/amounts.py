"""Numbers as people write them: 70B, 1.5 billion, 3e23, 2.1 x 10^24, 1,280,000."""

from __future__ import annotations

import math
import re

from forerun._util.readable import short
from forerun.errors import ForerunError

SCALES = {
    "": 1.0, "k": 1e3, "thousand": 1e3, "m": 1e6, "mn": 1e6, "million": 1e6, "millions": 1e6,
    "b": 1e9, "bn": 1e9, "billion": 1e9, "billions": 1e9, "t": 1e12, "trillion": 1e12, "trillions": 1e12,
    "quadrillion": 1e15,
}  # fmt: skip
_TIMES = r"\s*(?:[x×*·]|\\times)\s*"
_TEN_TO = r"10\s*(?:\^|\*\*)\s*\{?"
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.\d{1,30})?|\.\d{1,30}"
#: A number with its power of ten: 3, 1,280,000, 3.1e23, 3.1 x 10^23, 10^23.
NUMBER = (
    rf"(?:{_TEN_TO}(?P<alone>-?\d{{1,3}})\}}?"
    rf"|(?P<digits>{_DIGITS})(?:[eE](?P<exponent>[+-]?\d{{1,3}})|{_TIMES}{_TEN_TO}(?P<power>-?\d{{1,3}})\}}?)?)"
)
SCALE = r"(?P<scale>thousand|millions?|billions?|trillions?|quadrillion|[kKMBT](?![A-Za-z0-9])|[mb]n(?![A-Za-z]))"
_COUNT = re.compile(rf"\s*~?\s*{NUMBER}\s*(?:{SCALE})?\s*", re.IGNORECASE)


def worth(match: re.Match[str]) -> float:
    """The value of a match of NUMBER and SCALE; inf where it is too large."""
    if (alone := match["alone"]) is not None:
        written = f"1e{alone}"
    else:
        written = f"{match['digits'].replace(',', '')}e{match['exponent'] or match['power'] or 0}"
    return float(written) * SCALES[(match["scale"] or "").lower()]


def count(text: str, what: str = "a number") -> float:
    """The value of a text such as 70B or 1.5 billion; positive."""
    bare = text.strip()
    if bare.startswith("-") and _COUNT.fullmatch(bare[1:]):
        raise ForerunError(f"{what} must be larger than 0, got {short(text)}")
    match = _COUNT.fullmatch(bare)
    if match is None:
        raise ForerunError(f"{what} is a number such as 70B, 1.5 million or 3e23, got {short(text)}")
    value = worth(match)
    if not value > 0:
        raise ForerunError(f"{what} must be larger than 0, got {short(text)}")
    if value == math.inf:
        raise ForerunError(f"{what} is too large: {short(text)}")
    return value


def total(text: str, what: str = "a number") -> float:
    """The sum of several numbers separated by commas; a comma before each three digits belongs to the number."""
    if _COUNT.fullmatch(text.strip()):
        return count(text, what)
    return sum(count(part, what) for part in text.split(",") if part.strip())
