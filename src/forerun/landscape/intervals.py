"""The width of a prediction interval: a quantile of held-out errors."""

from __future__ import annotations

import numpy as np

#: The coverage of an interval.
CONFIDENCE = 0.9


def conformal(errors: np.ndarray) -> float:
    """The absolute error that 90 % stay within: of n sorted ones, that at 0.9 (n + 1), the correction for few of
    them."""
    sizes = np.sort(np.abs(errors))
    return float(sizes[min(int(np.ceil(CONFIDENCE * (len(sizes) + 1))), len(sizes)) - 1])
