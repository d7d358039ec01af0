"""Limits on a choice, and whether a prediction meets them: surely, probably, or not (verdict.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forerun._util.readable import in_readable_units, pretty
from forerun.advice.verdict import DOES_NOT, MEETS, PROBABLY, Verdict, verdict_places


@dataclass(frozen=True)
class Measure:
    """A quantity by which choices are limited and ranked; `column` names it in tables, with `_low` and `_high`."""

    column: str
    words: str  # "latency"
    unit: str
    more_is_better: bool = False

    def text(self, value: float, items: str) -> str:
        """'25 ms', '2,000 samples/s', '0.12 USD per million tokens'; `items` is what is counted."""
        number, unit = pretty(value), self.unit
        if value and not unit.startswith("USD"):  # no millionths of a dollar
            number, _, _, unit = in_readable_units(value, value, value, unit)
        return f"{number} {unit}{_PER.get(self.column, '').format(items=items, item=items.removesuffix('s'))}"


#: Beyond this many times a limit, a factor is shown instead of per cent.
_FAR = 10.0
_PER = {
    "throughput": "{items}/s", "usd_per_million": " per million {items}", "energy_j": " per {item}",
    "carbon_g": " per million {items}",
}  # fmt: skip

MEASURES = {
    m.column: m for m in (
        Measure("latency_ms", "latency", "ms"), Measure("throughput", "throughput", "", more_is_better=True),
        Measure("memory_mb", "memory", "MB"), Measure("usd_per_hour", "price", "USD/h"),
        Measure("usd_per_million", "cost", "USD"), Measure("energy_j", "energy", "J"),
        Measure("carbon_g", "carbon", "g"),
    )
}  # fmt: skip
#: Quantities to minimise, or throughput to maximise, by name.
GOALS = {
    "cost": "usd_per_million", "latency": "latency_ms", "throughput": "throughput", "energy": "energy_j",
    "carbon": "carbon_g", "price": "usd_per_hour",
}  # fmt: skip


@dataclass(frozen=True)
class Limit:
    """An upper bound of a measure (for throughput a lower bound)."""

    measure: Measure
    value: float

    def verdicts(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The place of every row's verdict; an unknown value does not meet the limit."""
        name, more = self.measure.column, self.measure.more_is_better
        return verdict_places(columns[name], columns[f"{name}_low" if more else f"{name}_high"], self.value, not more)

    def text(self, items: str) -> str:
        """'25 ms', or 'at least 2,000 samples/s'."""
        least = "at least " if self.measure.more_is_better else ""
        return f"{least}{self.measure.text(self.value, items)}"

    def sentence(self, verdict: Verdict, row: Mapping[str, float], items: str, confidence: float) -> str:
        """The verdict in words, with the deciding end of the interval, or the distance."""
        name, m = self.measure.column, self.measure
        if verdict == MEETS:
            sure = f" with {100 * confidence:g} % confidence" if row[f"{name}_low"] != row[f"{name}_high"] else ""
            return f"meets {self.text(items)}{sure}"
        if verdict == PROBABLY:
            end = row[f"{name}_low" if m.more_is_better else f"{name}_high"]
            beyond = "down to" if m.more_is_better else "up to"
            past = (end >= self.value) if m.more_is_better else (end <= self.value)
            return f"probably meets {self.text(items)}" + ("" if past else f" ({beyond} {m.text(end, items)})")
        return f"does not meet {self.text(items)}: {self.miss(row[name], items)}"

    def miss(self, value: float, items: str) -> str:
        """'31.2 ms, 25 % above'."""
        if np.isnan(value):
            return f"its {self.measure.words} is unknown"
        if self.value == 0:
            return self.measure.text(value, items)
        away = abs(value - self.value) / self.value
        far = f"{away:.0%} {'below' if self.measure.more_is_better else 'above'}"
        return f"{self.measure.text(value, items)}, {far if away < _FAR else f'{pretty(1 + away)} times that'}"


def best_place(values: np.ndarray, measure: Measure) -> int:
    """The place of the best known value."""
    values = np.asarray(values, dtype=float)
    worst = -np.inf if measure.more_is_better else np.inf
    known = np.where(np.isnan(values), worst, values)
    return int(np.argmax(known) if measure.more_is_better else np.argmin(known))


def pareto_front(first: np.ndarray, second: np.ndarray) -> list[int]:
    """The Pareto front: indices of the points that no other matches or beats in both (less is better), by the first; of
    equal points the earliest. Values that read the same, at three digits, are equal."""
    first, second = (np.array([float(f"{v:.3g}") for v in values]) for values in (first, second))
    known = np.flatnonzero(np.isfinite(first) & np.isfinite(second))
    order = known[np.lexsort((known, second[known], first[known]))]
    front, least = [], np.inf
    for place in order:
        if second[place] < least:
            front.append(int(place))
            least = second[place]
    return front


def binding(limits: Sequence[Limit], verdicts: Sequence[np.ndarray]) -> list[int]:
    """The smallest set of limits that no row meets together, as indices; empty where some row meets all of them."""
    from itertools import combinations

    keeps = [v < DOES_NOT.place for v in verdicts]
    for size in range(1, len(limits) + 1):
        for subset in combinations(range(len(limits)), size):
            if not np.logical_and.reduce([keeps[i] for i in subset]).any():
                return list(subset)
    return []
