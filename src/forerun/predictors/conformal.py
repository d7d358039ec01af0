"""Intervals that hold as often as they say: split-conformal, by group, on errors of cases that were left out.

A score is log(measured / predicted) of a case whose family the predictor had not seen. The interval of a new case is
the prediction times the quantiles of its group's scores, with the correction for the finite number of them. What is
further uncertain about a case out of the known domain is independent of that, and adds as squares.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

#: A group needs this many scores to stand alone; with fewer it takes those of the wider group before it.
ENOUGH = 40
KEPT = 201  # quantiles kept of a group's scores
#: An unmeasured family errs a little further than the errors of other families say: rows of one family err
#: together. By so much wider, in logarithms, about nine of ten hold on families that were left out, in every mode
#: and not on average alone (docs/SCOREBOARD.md).
NEW_FAMILY = 1.1
LEAST = 0.01  # nothing is claimed to be nearer than this
#: What each thing that no measurement shows adds to the error: a standard deviation, in logarithms. That of a device
#: was chosen so that nine of ten published times of models lie inside on GPUs that were left out, whatever sets their
#: pace (docs/SCOREBOARD.md): it was read off rows that are judged. Energy and CPUs borrow it. Of the others nothing
#: was measured.
OUT_OF_DOMAIN = {"device": 0.27, "generation": 0.2, "ops": 0.2, "dtype": 0.15}
#: The factors of an interval where no error is known at all.
UNCALIBRATED = (1 / 3, 3.0)


def out_of_domain_deviation(whats: Iterable[str]) -> float:
    """What several of OUT_OF_DOMAIN add together: they are independent, so their squares add."""
    return math.hypot(*(OUT_OF_DOMAIN[what] for what in whats))


def at_confidence(factors: tuple[float, float], confidence: float) -> tuple[float, float]:
    """Interval factors known for 90 % at another confidence, as if errors were normal in logarithms."""
    by = NormalDist().inv_cdf((1 + confidence) / 2) / NormalDist().inv_cdf(0.95) if confidence != 0.9 else 1.0
    return factors[0] ** by, factors[1] ** by


@dataclass(frozen=True)
class Calibration:
    """Scores by group, narrowest name first: 'latency_ms/training/host', then 'latency_ms/training', 'latency_ms'."""

    scores: Mapping[str, np.ndarray]  # sorted
    counts: Mapping[str, int]

    def factors(self, group: str, confidence: float = 0.9, out_of_domain: float = 0.0) -> tuple[float, float]:
        """(low, high) as factors on a prediction; `out_of_domain` is the standard deviation, in logarithms, of what
        comes on top where a case is out of the known domain."""
        key = (group, confidence, out_of_domain)
        if key not in self._remembered:
            self._remembered[key] = self._factors(*key)
        return self._remembered[key]

    @functools.cached_property
    def _remembered(self) -> dict[tuple[str, float, float], tuple[float, float]]:
        return {}

    def _factors(self, group: str, confidence: float, out_of_domain: float) -> tuple[float, float]:
        found = self._group(group)
        if found is None:
            low, high = at_confidence(UNCALIBRATED, confidence)
            more = out_of_domain * NormalDist().inv_cdf((1 + confidence) / 2)
            return math.exp(-math.hypot(math.log(low), more)), math.exp(math.hypot(math.log(high), more))
        scores, n = self.scores[found], self.counts[found]
        tail = (1 - confidence) / 2
        # One more case than was seen could lie anywhere: (n + 1) in place of n.
        edge = min(1.0, np.ceil((n + 1) * (1 - tail)) / n)
        low, high = np.quantile(scores, 1 - edge), np.quantile(scores, edge)
        more = out_of_domain * NormalDist().inv_cdf(1 - tail) if out_of_domain else 0.0
        below, above = min(NEW_FAMILY * low, -LEAST), max(NEW_FAMILY * high, LEAST)
        return float(np.exp(-np.hypot(below, more))), float(np.exp(np.hypot(above, more)))

    def _group(self, group: str) -> str | None:
        parts = group.split("/")
        for length in range(len(parts), 0, -1):
            name = "/".join(parts[:length])
            if self.counts.get(name, 0) >= ENOUGH or (length == 1 and name in self.counts):
                return name
        return None

    def to_dict(self) -> dict[str, object]:
        return {name: {"n": self.counts[name], "scores": np.round(s, 5).tolist()} for name, s in self.scores.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Mapping[str, object]]) -> Calibration:
        return cls(
            {name: np.asarray(d["scores"], dtype=float) for name, d in data.items()},
            {name: int(str(d["n"])) for name, d in data.items()},
        )


def calibrate(groups: Iterable[str], scores: np.ndarray) -> Calibration:
    """Scores filed under their group and every wider one."""
    filed: dict[str, list[float]] = {}
    for group, score in zip(groups, scores, strict=True):
        if np.isfinite(score):
            parts = group.split("/")
            for length in range(1, len(parts) + 1):
                filed.setdefault("/".join(parts[:length]), []).append(float(score))
    kept = {}
    for name, found in filed.items():
        ordered = np.sort(found)
        kept[name] = ordered if len(ordered) <= KEPT else np.quantile(ordered, np.linspace(0, 1, KEPT))
    return Calibration(kept, {name: len(found) for name, found in filed.items()})
