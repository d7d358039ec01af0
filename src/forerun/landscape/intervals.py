"""How wide an interval must be: what most errors of rows that were left out stay within."""

from __future__ import annotations

import numpy as np

#: How often an interval holds the truth.
CONFIDENCE = 0.9


def conformal(errors: np.ndarray) -> float:
    """The size of error that 90 % stay within: of n sorted sizes, the one at 0.9 (n + 1), for there are few of them."""
    sizes = np.sort(np.abs(errors))
    return float(sizes[min(int(np.ceil(CONFIDENCE * (len(sizes) + 1))), len(sizes)) - 1])
