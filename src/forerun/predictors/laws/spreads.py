"""Intervals as factors on their value, (low, high) along the last axis, kept within a bound."""

from __future__ import annotations

import numpy as np


def not_below(spread: np.ndarray, value: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Interval factors whose lower end stays at or above `least`."""
    floor = np.divide(least, value, out=np.zeros_like(value), where=value > 0)
    spread[..., 0] = np.minimum(np.maximum(spread[..., 0], floor), 1.0)
    return spread


def not_above(spread: np.ndarray, value: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Interval factors whose upper end stays at or below `most`."""
    ceiling = np.divide(most, value, out=np.full_like(value, np.inf), where=value > 0)
    spread[..., 1] = np.maximum(np.minimum(spread[..., 1], ceiling), 1.0)
    return spread


def wider(spread: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Interval factors with a further, independent distance in logarithms: their squares add."""
    low, high = (np.hypot(np.log(spread[..., end]), more) for end in (0, 1))
    return np.exp(np.stack([-low, high], axis=-1))
