"""What each number that a predictor sees contributes to an answer, as a factor on it.

A predictor that learns the logarithm of a quantity shares it out over what it sees; in the quantity itself every share
is a factor. All factors and the usual value together give the answer exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from forerun.blocks import Block, Column, Line, Row, Table
from forerun.readable import pretty
from forerun.show import headline

#: So many features have a row; the others are one factor together.
SHOWN = 12


@dataclass(frozen=True)
class FeatureFactor:
    """A number that the predictor sees, its value in this case, and the factor it puts on the answer."""

    feature: str
    value: float | None  # None: not known of this device
    factor: float

    @property
    def strength(self) -> float:
        """How far the factor is from 1, up or down."""
        return abs(math.log(self.factor))


@dataclass(frozen=True)
class Attribution:
    """A predicted latency as usual x the factors of all features, the strongest first."""

    model: str
    device: str
    workload: dict[str, Any]
    predictor: str
    usual_ms: float  # what the predictor says of a case of which it knows nothing
    latency_ms: float  # usual_ms x all factors; what is answered is never below `roofline_ms`
    roofline_ms: float
    factors: tuple[FeatureFactor, ...]

    def top(self, count: int = SHOWN) -> tuple[tuple[FeatureFactor, ...], float]:
        """The strongest features, and the factor of all others together."""
        rest = math.prod(one.factor for one in self.factors[count:])
        return self.factors[:count], rest

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def blocks(self, count: int = SHOWN) -> Iterator[Block]:
        """What is shown of it: a row a feature, and how the factors add up to the answer."""
        yield Line(f"{headline(self)}: {pretty(max(self.latency_ms, self.roofline_ms))} ms", "title")
        yield Line(
            f"The predictor {self.predictor} starts from {pretty(self.usual_ms)} ms; every feature multiplies that "
            "(Shapley values of its trees).",
            "faint",
        )
        shown, rest = self.top(count)
        rows = [Row((one.feature, "unknown" if one.value is None else number(one.value), times(one.factor)))
                for one in shown]  # fmt: skip
        left = len(self.factors) - len(shown)
        if left:
            rows.append(Row((f"({left} more)", "", times(rest)), "faint"))
        heads = (Column("feature"), Column("value", right=True), Column("latency", right=True))
        yield Table(heads, rows)
        if self.latency_ms < self.roofline_ms:
            yield Line(
                f"The factors give {pretty(self.latency_ms)} ms; no call is faster than its roofline, "
                f"{pretty(self.roofline_ms)} ms."
            )

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield from self.blocks()


def times(factor: float) -> str:
    """'× 1.32'."""
    return f"× {factor:.3g}" if factor < 10 else f"× {factor:,.0f}"


def number(value: float) -> str:
    """A feature's value, whatever its size."""
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e7 else f"{value:.4g}"
