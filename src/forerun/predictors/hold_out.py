"""How cases are held out when a predictor is evaluated: which splits, how many folds, which columns are stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HoldOut:
    """How `forerun train` and `forerun evaluate` evaluate a predictor; no prediction depends on it.

    The defaults suit most predictors. Others set their own (`Predictor.hold_out`).
    """

    #: The splits (evaluate/held_out.py) by which it is evaluated when it is trained; held-out predictions are stored.
    splits: tuple[str, ...] = ("family", "kind", "device")
    #: Number of folds that families or rows are held out in.
    folds: int = 16
    #: Whether a fit takes milliseconds, so that starting processes for several would take longer.
    cheap_to_fit: bool = False
    #: Whether GPUs and CPUs are fitted independently, so that rows of one do not change the fit of the other.
    fits_kinds_apart: bool = False
    #: Whether predictions are stored with all columns of the rows; False: with those that are needed to score them.
    keeps_all_columns: bool = True
