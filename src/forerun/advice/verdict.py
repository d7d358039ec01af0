"""Whether an estimate meets a limit, and with what confidence.

A limit is met with the interval's confidence when the interval's worse end meets it, probably when only the value
does, and is not met otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import numpy as np

from forerun.prediction import Estimate


class Verdict(StrEnum):
    """From best to worst; arrays hold their places."""

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
    """The place of every value's verdict; an unknown value does not meet the limit."""

    def keeps(ends: np.ndarray) -> np.ndarray:
        ends = np.asarray(ends, dtype=float)
        return ends <= limit if at_most else ends >= limit

    return np.select([keeps(values) & keeps(bad_ends), keeps(values)], [MEETS.place, PROBABLY.place], DOES_NOT.place)


def verdict(estimate: Estimate, limit: float, at_most: bool = True, *, learned: bool = True) -> Verdict:
    """The verdict of one estimate; one without measurements behind it (`learned=False`) is 'probably' at best."""
    bad_end = estimate.high if at_most else estimate.low
    of_estimate = Verdict.at(int(verdict_places(np.array(estimate.value), np.array(bad_end), limit, at_most)))
    return PROBABLY if of_estimate == MEETS and not learned else of_estimate


def held_back(alone: str, first: str, goal: str, of_alone: str, of_first: str) -> str:
    """The note for a device of an unmeasured generation that would come first by the goal alone."""
    return (
        f"by the goal alone {alone} would come first ({goal} {of_alone}, {first} has {of_first}), but nothing like it "
        "was measured, so it ranks after what was"
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of several limits together; 'meets' where there is none."""
    return max(verdicts, key=lambda each: each.place, default=MEETS)
