"""Times that were predicted at a grid of sizes, read between its points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Curve:
    """A time over one size: linear in logarithms between the points, in proportion beyond them; nothing at none."""

    sizes: np.ndarray
    ms: np.ndarray

    def __call__(self, size: Any) -> np.ndarray:
        size = np.asarray(size, dtype=float)
        inside = np.clip(size, self.sizes[0], self.sizes[-1])
        ms = np.exp(np.interp(np.log(inside), np.log(self.sizes), np.log(np.maximum(self.ms, 1e-12))))
        return np.where(size > 0, ms * np.maximum(size / self.sizes[-1], 1.0), 0.0)


@dataclass(frozen=True)
class Surface:
    """A time over two sizes, the same along both."""

    first: np.ndarray
    second: np.ndarray
    ms: np.ndarray  # [first, second]

    def __call__(self, first: Any, second: Any) -> np.ndarray:
        first, second = np.broadcast_arrays(np.asarray(first, dtype=float), np.asarray(second, dtype=float))
        i, a = _between(first, self.first)
        j, b = _between(second, self.second)
        logs = np.log(np.maximum(self.ms, 1e-12))
        low = logs[i, j] * (1 - b) + logs[i, j + 1] * b
        high = logs[i + 1, j] * (1 - b) + logs[i + 1, j + 1] * b
        beyond = np.maximum(first / self.first[-1], 1.0) * np.maximum(second / self.second[-1], 1.0)
        return np.where((first > 0) & (second > 0), np.exp(low * (1 - a) + high * a) * beyond, 0.0)


def _between(values: np.ndarray, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The point of the grid before each value, and how far the value is towards the next, in logarithms."""
    logs = np.log(grid)
    at = np.log(np.clip(values, grid[0], grid[-1]))
    i = np.clip(np.searchsorted(logs, at, side="right") - 1, 0, len(grid) - 2)
    return i, (at - logs[i]) / (logs[i + 1] - logs[i])
