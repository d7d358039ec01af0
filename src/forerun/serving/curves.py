"""Times that were predicted at a grid of sizes, read between its points.

A simulation asks for one iteration at a time: single values are read by plain arithmetic, which is ten times as fast as
arrays of one.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

#: The least time that has a logarithm here.
_LEAST = 1e-12


@dataclass(frozen=True)
class Curve:
    """A time over one size: linear in logarithms between the points, in proportion beyond them; nothing at none."""

    sizes: np.ndarray
    ms: np.ndarray

    def __call__(self, size: Any) -> Any:
        if isinstance(size, float):
            return self._at(size)
        size = np.asarray(size, dtype=float)
        if size.size == 1:
            return np.full(size.shape, self._at(size.item()))
        logs, times = self._logs
        ms = np.exp(np.interp(np.log(np.maximum(size, self.sizes[0])), logs, times))
        return np.where(size > 0, ms * np.maximum(size / self.sizes[-1], 1.0), 0.0)

    @functools.cached_property
    def _logs(self) -> tuple[np.ndarray, np.ndarray]:
        return np.log(self.sizes), np.log(np.maximum(self.ms, _LEAST))

    @functools.cached_property
    def _lists(self) -> tuple[list[float], list[float]]:
        return self._logs[0].tolist(), self._logs[1].tolist()

    def _at(self, size: float) -> float:
        if size <= 0:
            return 0.0
        (i, a), times = _place(size, self._lists[0]), self._lists[1]
        return math.exp(times[i] * (1 - a) + times[i + 1] * a) * max(size / float(self.sizes[-1]), 1.0)


@dataclass(frozen=True)
class Surface:
    """A time over two sizes, the same along both."""

    first: np.ndarray
    second: np.ndarray
    ms: np.ndarray  # [first, second]

    def __call__(self, first: Any, second: Any) -> Any:
        if isinstance(first, float) and isinstance(second, float):
            return self._at(first, second)
        first, second = np.broadcast_arrays(np.asarray(first, dtype=float), np.asarray(second, dtype=float))
        if first.size == 1:
            return np.full(first.shape, self._at(first.item(), second.item()))
        i, a = _between(first, self.first)
        j, b = _between(second, self.second)
        logs = self._logs
        low = logs[i, j] * (1 - b) + logs[i, j + 1] * b
        high = logs[i + 1, j] * (1 - b) + logs[i + 1, j + 1] * b
        beyond = np.maximum(first / self.first[-1], 1.0) * np.maximum(second / self.second[-1], 1.0)
        return np.where((first > 0) & (second > 0), np.exp(low * (1 - a) + high * a) * beyond, 0.0)

    @functools.cached_property
    def _logs(self) -> np.ndarray:
        return np.log(np.maximum(self.ms, _LEAST))

    @functools.cached_property
    def _lists(self) -> tuple[list[float], list[float], list[list[float]]]:
        return np.log(self.first).tolist(), np.log(self.second).tolist(), self._logs.tolist()

    def _at(self, first: float, second: float) -> float:
        if first <= 0 or second <= 0:
            return 0.0
        rows, columns, logs = self._lists
        (i, a), (j, b) = _place(first, rows), _place(second, columns)
        low = logs[i][j] * (1 - b) + logs[i][j + 1] * b
        high = logs[i + 1][j] * (1 - b) + logs[i + 1][j + 1] * b
        beyond = max(first / float(self.first[-1]), 1.0) * max(second / float(self.second[-1]), 1.0)
        return math.exp(low * (1 - a) + high * a) * beyond


def _place(value: float, logs: list[float]) -> tuple[int, float]:
    """The point of the grid before a value, and how far the value is towards the next, in logarithms."""
    at = min(max(math.log(value), logs[0]), logs[-1])
    i = min(max(bisect_right(logs, at) - 1, 0), len(logs) - 2)
    return i, (at - logs[i]) / (logs[i + 1] - logs[i])


def _between(values: np.ndarray, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for many values."""
    logs = np.log(grid)
    at = np.log(np.clip(values, grid[0], grid[-1]))
    i = np.clip(np.searchsorted(logs, at, side="right") - 1, 0, len(grid) - 2)
    return i, (at - logs[i]) / (logs[i + 1] - logs[i])
