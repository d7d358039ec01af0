"""Iterative imputation of the hardware's numbers: every column from all others, in turn, in logarithms."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from forerun._util.extras import needed
from forerun.landscape.fill.filled import Filled, holes
from forerun.landscape.schema import HARDWARE, Tables, numbers

Trees = Literal["forest", "extra_trees"]
LEAST_KNOWN = 15  # a column with fewer known values is skipped
TREES, ROUNDS, SEED = 40, 2, 0


def impute(tables: Tables, columns: Sequence[str], trees: Trees) -> list[Filled]:
    """Missing values of some columns of the hardware, by random forests or by extra trees."""
    rows = tables.hardware
    used = [name for name in numbers(HARDWARE) if rows[name].notna().sum() >= LEAST_KNOWN]
    wanted = {name: at for name, at in holes(rows, [c for c in columns if c in used]).items() if len(at)}
    if not wanted:
        return []
    inputs = np.log10(rows[used]).assign(year=_years(rows["released"]))
    imputer = _imputer(trees)
    with warnings.catch_warnings():  # two rounds are meant to be few, and a chip that every tree saw has no prediction
        warnings.simplefilter("ignore", UserWarning)
        full = pd.DataFrame(imputer.fit_transform(inputs), index=rows.index, columns=inputs.columns)
    last = {inputs.columns[step.feat_idx]: step.estimator for step in imputer.imputation_sequence_}
    values: list[Filled] = []
    for column, empty in wanted.items():
        known = rows[column].notna().to_numpy()
        sure = _within_factor_2(last[column], inputs.loc[known, column].to_numpy()) if column in last else None
        sentence = (
            f"{len(inputs.columns) - 1} other numbers of the chip, and those of {known.sum()} chips with this one"
        )
        values += [
            Filled("hardware", name, column, float(10.0 ** full.loc[at, column]), trees, sentence, sure)
            for at, name in rows.loc[empty, "hardware"].items()
        ]
    return values


def _years(released: pd.Series) -> pd.Series:
    """When a chip was released, in years; nan where that is not known."""
    return released.dt.year + (released.dt.day_of_year - 1) / 365.25


def _within_factor_2(estimator: Any, known: np.ndarray) -> float:
    """The share of known values that out-of-bag trees predict within a factor of 2."""
    off = np.abs(estimator.oob_prediction_ - known)
    return float(np.mean(off[estimator.oob_prediction_ != 0] <= np.log10(2)))


def _imputer(trees: Trees) -> Any:
    """scikit-learn's imputer over trees whose out-of-bag predictions are kept."""
    with needed("filling by trees", "landscape"):
        from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
        from sklearn.experimental import enable_iterative_imputer  # noqa: F401
        from sklearn.impute import IterativeImputer
    kind = RandomForestRegressor if trees == "forest" else ExtraTreesRegressor
    estimator = kind(n_estimators=TREES, bootstrap=True, oob_score=True, random_state=SEED, n_jobs=1)
    return IterativeImputer(
        estimator=estimator, max_iter=ROUNDS, tol=1e-2, random_state=SEED, initial_strategy="median"
    )
