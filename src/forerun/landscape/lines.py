"""A robust linear law of named features: fitted by Huber's loss with a ridge, stored as plain numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

#: Residuals beyond this many (robust) standard deviations weigh less.
_HUBER = 1.345
_ROUNDS = 50


@dataclass(frozen=True)
class Line:
    """intercept + sum of weights * (feature - mean) / scale; a missing feature counts as its mean."""

    features: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    intercept: float

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        """A value for every row."""
        return self.intercept + self._scaled(frame) @ np.array(self.weights)

    def _scaled(self, frame: pd.DataFrame) -> np.ndarray:
        return _standard(frame, self.features, np.array(self.means), np.array(self.scales))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, of seven digits."""
        values = asdict(self)
        return {name: _plain(value) for name, value in values.items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Line:
        """What `to_dict` gave."""
        parts: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in content.items()}
        return cls(**parts)


def fit_line(
    frame: pd.DataFrame, target: np.ndarray, features: tuple[str, ...], ridge: float, weights: np.ndarray | None = None
) -> Line:
    """The line through the rows whose target is finite; `ridge` in units of rows."""
    good = np.isfinite(target)
    used, wanted = frame[good], target[good]
    given = np.ones(len(used)) if weights is None else weights[good]
    values = used.reindex(columns=list(features)).to_numpy(dtype=float)
    counts = np.isfinite(values).sum(axis=0)
    means = np.where(counts > 0, np.nansum(values, axis=0) / np.maximum(counts, 1), 0.0)
    spread = np.sqrt(np.nansum((values - means) ** 2, axis=0) / np.maximum(counts, 1))
    scales = np.where(spread > 1e-9, spread, 1.0)
    scaled = _standard(used, features, means, scales)
    weight, centre = np.zeros(len(features)), float(np.median(wanted)) if len(wanted) else 0.0
    for _ in range(_ROUNDS):
        rest = wanted - centre - scaled @ weight
        sigma = max(float(np.median(np.abs(rest))) * 1.4826, 1e-6)
        trust = given * np.minimum(1.0, _HUBER * sigma / np.maximum(np.abs(rest), 1e-12))
        held = scaled * trust[:, None]
        design = np.block([
            [np.array([[trust.sum()]]), held.sum(axis=0)[None, :]],
            [held.sum(axis=0)[:, None], scaled.T @ held + ridge * np.eye(len(features))],
        ])  # fmt: skip
        solved = np.linalg.solve(design, np.concatenate([[trust @ wanted], held.T @ wanted]))
        moved = abs(solved[0] - centre) + np.abs(solved[1:] - weight).max(initial=0.0)
        centre, weight = float(solved[0]), solved[1:]
        if moved < 1e-7:
            break
    return Line(tuple(features), tuple(means.tolist()), tuple(scales.tolist()), tuple(weight.tolist()), centre)


def _standard(frame: pd.DataFrame, features: tuple[str, ...], means: np.ndarray, scales: np.ndarray) -> np.ndarray:
    values = frame.reindex(columns=list(features)).to_numpy(dtype=float)
    return np.where(np.isfinite(values), (values - means) / scales, 0.0)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
