"""Whether an estimate keeps a limit, and how sure that is.

A limit is met with the interval's confidence when the interval's bad end keeps it, probably when the value does and
that end does not, and is not met otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from forerun.prediction import Estimate

MEETS, PROBABLY, DOES_NOT = "meets", "probably", "does not"
#: From best to worst.
VERDICTS = (MEETS, PROBABLY, DOES_NOT)


def verdict_places(values: np.ndarray, bad_ends: np.ndarray, limit: float, at_most: bool = True) -> np.ndarray:
    """The verdict of every value, as its place in VERDICTS; a value that is not known does not keep the limit."""

    def kept(ends: np.ndarray) -> np.ndarray:
        ends = np.asarray(ends, dtype=float)
        return ends <= limit if at_most else ends >= limit

    return np.select([kept(values) & kept(bad_ends), kept(values)], [0, 1], 2)


def verdict(estimate: Estimate, limit: float, at_most: bool = True, *, learned: bool = True) -> str:
    """The verdict of one estimate; one that no measurement stands behind (`learned=False`) is 'probably' at best."""
    bad_end = estimate.high if at_most else estimate.low
    found = VERDICTS[int(verdict_places(np.array(estimate.value), np.array(bad_end), limit, at_most))]
    return PROBABLY if found == MEETS and not learned else found


def worst(verdicts: Iterable[str]) -> str:
    """The verdict of several limits together; 'meets' where there is none."""
    return max(verdicts, key=VERDICTS.index, default=MEETS)
