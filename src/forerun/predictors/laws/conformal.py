"""Prediction intervals with calibrated coverage: split conformal prediction by group, on held-out errors.

A score is log(measured / predicted) of a case whose family or kind was held out, divided by the distance of the case
from the training data: 1 + widening x disagreement. The disagreement is that of networks which differ by their seed
alone (they agree where training rows determine the answer); the widening is fitted, one number a target. The interval
of a new case is the prediction times the quantiles of its group's scores times its own distance, corrected for the
finite number of scores. The further uncertainty of a case out of distribution is independent, so its square is added.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forerun.prediction import deviations

#: A group needs this many scores to be used by itself; with fewer, those of the next wider group are used.
ENOUGH = 40
KEPT = 201  # quantiles kept of a group's scores
#: Factors by which intervals are widened, in logarithms, since errors of an unmeasured family are a little larger than
#: those of other families: rows of one family err together. With these, coverage on held-out families is about nine in
#: ten in every mode and not on average alone (docs/SCOREBOARD.md). The factor of latency is smaller: chosen so that
#: device-bound latency of held-out kinds is not covered too often.
NEW_FAMILY, NEW_FAMILY_LATENCY = 1.08, 1.02
LEAST = 0.01  # no interval is narrower than this
#: What each reason to be out of distribution adds to the error: a standard deviation, in logarithms. That of a device
#: is for predictors without one of their own (`device_deviation`), and for energy and CPUs. The others are assumed.
OUT_OF_DISTRIBUTION = {"device": 0.27, "generation": 0.2, "ops": 0.2, "dtype": 0.15, "runtime": 0.2}
#: On an unseen device, this share of the slowdown at the power limit is in doubt (predictors/laws/specs.py).
POWER_DOUBT = 0.5
#: The factors of an interval where no error is known at all.
UNCALIBRATED = (1 / 3, 3.0)


def power_deviation(slowdown: np.ndarray) -> np.ndarray:
    """The further error on an unseen device whose power limit makes arithmetic `slowdown` times slower: a standard
    deviation, in logarithms."""
    return POWER_DOUBT * np.log(slowdown)


def ood_deviation(whats: Iterable[str], known: Mapping[str, float] = OUT_OF_DISTRIBUTION) -> float:
    """The standard deviation of several of OUT_OF_DISTRIBUTION together: they are independent, so their squares add."""
    return math.hypot(*(known[what] for what in whats))


def at_confidence(factors: tuple[float, float], confidence: float) -> tuple[float, float]:
    """Interval factors known for 90 % at another confidence, as if errors were normal in logarithms."""
    by = deviations(confidence) / deviations(0.9) if confidence != 0.9 else 1.0
    return factors[0] ** by, factors[1] ** by


#: What one unit of disagreement may widen an interval by, to choose from; and the confidence it is chosen at.
_WIDENINGS, _CHOSEN_AT = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0), 0.9


@dataclass(frozen=True)
class Calibration:
    """Scores by group, narrowest name first: 'latency_ms/training/host', then 'latency_ms/training', 'latency_ms'."""

    scores: Mapping[str, np.ndarray]  # sorted
    counts: Mapping[str, int]
    widening: Mapping[str, float] = field(default_factory=dict)  # by target
    unseen_device: float = OUT_OF_DISTRIBUTION["device"]  # what a device without measurements adds

    def deviation(self, whats: Iterable[str]) -> float:
        """The standard deviation of several reasons to be out of distribution together."""
        return ood_deviation(whats, {**OUT_OF_DISTRIBUTION, "device": self.unseen_device})

    def factors(
        self, group: str, confidence: float = 0.9, out_of_distribution: float = 0.0, disagreement: float = 0.0
    ) -> tuple[float, float]:
        """(low, high) as factors on a prediction; `out_of_distribution` is the standard deviation, in logarithms, that
        comes on top where a case is that."""
        if out_of_distribution or disagreement:
            low, high = self.intervals(group, confidence, np.array(out_of_distribution), np.array(disagreement))
            return float(low), float(high)
        if (group, confidence) not in self._plain:
            ends = self.intervals(group, confidence, np.array(0.0), np.array(0.0))
            self._plain[group, confidence] = float(ends[0]), float(ends[1])
        return self._plain[group, confidence]

    def intervals(
        self, group: str, confidence: float, out_of_distribution: np.ndarray, disagreement: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for many cases of one group."""
        low, high = self._quantiles(group, confidence)
        distance = 1 + self.widening.get(group.partition("/")[0], 0.0) * disagreement
        more = out_of_distribution * deviations(confidence)
        return np.exp(-np.hypot(low * distance, more)), np.exp(np.hypot(high * distance, more))

    def _quantiles(self, group: str, confidence: float) -> tuple[float, float]:
        """The lower and upper quantiles of a group's scores, as distances in logarithms."""
        key = (group, confidence)
        if key not in self._remembered:
            found = self._group(group)
            if found is None:
                low, high = at_confidence(UNCALIBRATED, confidence)
                self._remembered[key] = -math.log(low), math.log(high)
            else:
                low, high = _quantiles(self.scores[found], self.counts[found], confidence)
                wider = NEW_FAMILY_LATENCY if group.startswith("latency_ms") else NEW_FAMILY
                self._remembered[key] = max(-wider * low, LEAST), max(wider * high, LEAST)
        return self._remembered[key]

    @functools.cached_property
    def _plain(self) -> dict[tuple[str, float], tuple[float, float]]:
        return {}

    @functools.cached_property
    def _remembered(self) -> dict[tuple[str, float], tuple[float, float]]:
        return {}

    def _group(self, group: str) -> str | None:
        parts = group.split("/")
        for length in range(len(parts), 0, -1):
            name = "/".join(parts[:length])
            if self.counts.get(name, 0) >= ENOUGH or (length == 1 and name in self.counts):
                return name
        return None

    def to_dict(self) -> dict[str, object]:
        scores = {name: {"n": self.counts[name], "scores": s.tolist()} for name, s in self.scores.items()}
        return {"scores": scores, "widening": dict(self.widening), "unseen_device": self.unseen_device}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        scores = data["scores"]
        return cls(
            {name: np.asarray(d["scores"], dtype=float) for name, d in scores.items()},
            {name: int(d["n"]) for name, d in scores.items()},
            dict(data["widening"]),
            float(data["unseen_device"]),
        )


def calibrate(groups: Iterable[str], scores: np.ndarray, disagreement: np.ndarray | None = None) -> Calibration:
    """Scores divided by their distance, under their group and every wider one."""
    named = np.array(list(groups), dtype=object)
    known = np.isfinite(scores)
    named, scores = named[known], scores[known]
    differing = np.zeros(len(scores)) if disagreement is None else np.nan_to_num(disagreement[known])
    targets = np.array([name.partition("/")[0] for name in named], dtype=object)
    widening: dict[str, float] = {}
    filed: dict[str, list[np.ndarray]] = {}
    for target in dict.fromkeys(targets):
        selected = targets == target
        by = _widening(named[selected], scores[selected], differing[selected]) if differing[selected].any() else 0.0
        widening[target] = by
        each = scores[selected] / (1 + by * differing[selected])
        for group in dict.fromkeys(named[selected]):
            parts = group.split("/")
            for length in range(1, len(parts) + 1):
                filed.setdefault("/".join(parts[:length]), []).append(each[named[selected] == group])
    sorted_ = {name: np.sort(np.concatenate(found)) for name, found in filed.items()}
    rounded = {  # as few digits as a file has, so that intervals are the same before and after it
        name: np.round(ordered if len(ordered) <= KEPT else np.quantile(ordered, np.linspace(0, 1, KEPT)), 5)
        for name, ordered in sorted_.items()
    }
    return Calibration(rounded, {name: len(found) for name, found in sorted_.items()}, widening)


#: Deviations of an unseen device to choose from.
_DEVIATIONS = tuple(round(0.01 * n, 2) for n in range(61))


def device_deviation(
    made: Calibration, groups: Sequence[str], scores: np.ndarray, disagreement: np.ndarray, confidence: float = 0.9
) -> float:
    """The least deviation by which intervals have the coverage `confidence` on held-out devices."""
    named, known = np.array(groups, dtype=object), np.isfinite(scores)

    def inside(deviation: float) -> float:
        found = np.zeros(len(scores), dtype=bool)
        for group in dict.fromkeys(groups):
            selected = known & (named == group)
            ends = made.intervals(group, confidence, np.full(selected.sum(), deviation), disagreement[selected])
            found[selected] = (np.log(ends[0]) <= scores[selected]) & (scores[selected] <= np.log(ends[1]))
        return float(found[known].mean())

    return next((deviation for deviation in _DEVIATIONS if inside(deviation) >= confidence), _DEVIATIONS[-1])


def _widening(groups: np.ndarray, scores: np.ndarray, disagreement: np.ndarray) -> float:
    """The widening whose intervals have the best interval score: narrow, and near the scores outside."""

    chosen = [groups == group for group in dict.fromkeys(groups)]
    parts = [(scores[selected], disagreement[selected]) for selected in chosen]

    def loss(by: float) -> float:
        total = 0.0
        for score, differing in parts:
            distance = 1 + by * differing
            quantiles = _quantiles(np.sort(score / distance), len(score), _CHOSEN_AT)
            low, high = (q * distance for q in quantiles)
            outside = np.maximum(low - score, 0) + np.maximum(score - high, 0)
            total += float((high - low).sum() + 2 / (1 - _CHOSEN_AT) * outside.sum())
        return total

    return min(_WIDENINGS, key=loss)


def _quantiles(scores: np.ndarray, n: int, confidence: float) -> tuple[float, float]:
    """The quantiles of scores for a confidence, with the correction of conformal prediction: (n + 1) in place of n."""
    edge = min(1.0, math.ceil((n + 1) * (1 + confidence) / 2) / n)
    return _quantile(scores, 1 - edge), _quantile(scores, edge)


def _quantile(ordered: np.ndarray, share: float) -> float:
    """`np.quantile` of sorted numbers, to the last digit: its own imports as much as a prediction takes to compute."""
    place = (len(ordered) - 1) * share
    below = min(int(place), len(ordered) - 2) if len(ordered) > 1 else 0
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    beyond = place - below
    return low + (high - low) * beyond if beyond < 0.5 else high - (high - low) * (1 - beyond)
