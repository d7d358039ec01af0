"""How cases are held out when a predictor is judged: which parts, in how many folds, what is kept of the answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HoldOut:
    """What `forerun train` and `forerun evaluate` do with a predictor; no prediction depends on it.

    The defaults suit most predictors. One that is fitted in another way names its own (`Predictor.hold_out`).
    """

    #: The splits (evaluate/left_out.py) that it is judged by when it is trained; their answers are kept with it.
    splits: tuple[str, ...] = ("family", "kind", "device")
    #: How many parts families or rows are held out in.
    folds: int = 16
    #: Whether a fit takes milliseconds, so that starting processes for several would take longer.
    cheap_to_fit: bool = False
    #: Whether GPUs and CPUs are fitted independently, so that a part of one leaves the fit of the other as it is.
    fits_kinds_apart: bool = False
    #: Whether the answers are kept with all columns of the rows; False: with those that are needed to score them.
    keeps_all_columns: bool = True
