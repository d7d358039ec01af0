"""The test set: families and one GPU on which nothing is tuned.

They were drawn by a seed on 2026-11-16. Since then no constant, step count or width is chosen on them: tuning looks at
the other families (`forerun evaluate`), and `forerun evaluate --exam` is for the figures that are quoted. Constants
that were chosen before that day had their rows in view (docs/SCOREBOARD.md lists them). The shipped weights are fitted
to their rows too, but every figure on the test set is by a predictor that was fitted without them.
"""

from __future__ import annotations

import hashlib

import pandas as pd

SEED = "forerun exam 2026-11-16"
SHARE = 10  # one family in ten
#: Of the GPUs of the published sets on the day of the seed, the one with the smallest `_number`; written down, so that
#: a new set does not change it.
GPU = "rtx4060ti-16gb"


def is_test_family(family: str) -> bool:
    """Whether a family of models belongs to the test set; decided by its name alone, so that new families may too."""
    return _number(family) % SHARE == 0


def in_test_set(rows: pd.DataFrame) -> pd.Series:
    """Which rows are of families of the test set."""
    names = rows["family"].fillna("unknown")
    return names.map({name: is_test_family(str(name)) for name in names.unique()}).astype(bool)


def _number(name: str) -> int:
    return int(hashlib.sha256(f"{SEED}/{name}".encode()).hexdigest(), 16)
