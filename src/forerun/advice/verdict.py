"""Whether an estimate keeps a limit, and how sure that is.

A limit is met with the interval's confidence when the interval's bad end keeps it, probably when the value does and
that end does not, and is not met otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import numpy as np

from forerun.prediction import Estimate


class Verdict(StrEnum):
    """From best to worst; an array holds the place of each."""

    MEETS = "meets"
    PROBABLY = "probably"
    DOES_NOT = "does not"

    @property
    def place(self) -> int:
        return _ORDER.index(self)

    @classmethod
    def at(cls, place: int) -> Verdict:
        return _ORDER[place]


_ORDER = tuple(Verdict)
MEETS, PROBABLY, DOES_NOT = _ORDER


def verdict_places(values: np.ndarray, bad_ends: np.ndarray, limit: float, at_most: bool = True) -> np.ndarray:
    """The place of every value's verdict; a value that is not known does not keep the limit."""

    def kept(ends: np.ndarray) -> np.ndarray:
        ends = np.asarray(ends, dtype=float)
        return ends <= limit if at_most else ends >= limit

    return np.select([kept(values) & kept(bad_ends), kept(values)], [MEETS.place, PROBABLY.place], DOES_NOT.place)


def verdict(estimate: Estimate, limit: float, at_most: bool = True, *, learned: bool = True) -> Verdict:
    """The verdict of one estimate; one that no measurement stands behind (`learned=False`) is 'probably' at best."""
    bad_end = estimate.high if at_most else estimate.low
    found = Verdict.at(int(verdict_places(np.array(estimate.value), np.array(bad_end), limit, at_most)))
    return PROBABLY if found == MEETS and not learned else found


def held_back(alone: str, first: str, goal: str, of_alone: str, of_first: str) -> str:
    """The sentence for a device that would come first by the goal alone, and that no measurement shows."""
    return (
        f"by the goal alone {alone} would come first ({goal} {of_alone}, {first} has {of_first}), but nothing like it "
        "was measured, so it ranks after what was"
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of several limits together; 'meets' where there is none."""
    return max(verdicts, key=lambda one: one.place, default=MEETS)
