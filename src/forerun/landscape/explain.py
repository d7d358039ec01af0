"""What matters: SHAP, permutation importance and LIME of a fitted estimator, and features chosen by SHAP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.extras import needed
from forerun.errors import ForerunError, did_you_mean
from forerun.landscape.encode import ENCODINGS, Arrays, encoded
from forerun.landscape.judge import figures, splits
from forerun.landscape.learn import estimator
from forerun.landscape.lime import conditions
from forerun.landscape.rows import Rows

ESTIMATOR = "gradient boosting"
#: Numbers of features that a selection tries.
SELECTIONS = (1, 3, 5, 8, 12, 20)
_REPEATS = 3


@dataclass(frozen=True)
class Explained:
    """What each feature does to the decimal logarithm of a target. Columns of names are summed."""

    target: str
    shares: pd.DataFrame  # SHAP values: a row per model, a column per feature, the most important first
    values: pd.DataFrame  # what the features are (ranks 0 to 1); NaN for names
    models: tuple[str, ...]
    permuted: pd.DataFrame  # feature, loss of R² on held-out models
    single: dict[str, list[tuple[str, float]]]  # LIME: conditions and weights, by model
    selected: pd.DataFrame  # features, R² and share within a factor of 2 with that many of the best


def explain(rows: Rows, single: Sequence[str] = ()) -> Explained:
    """Explains gradient boosting fitted to all rows; importance and selection are judged on held-out models."""
    every = np.arange(len(rows))
    whole = encoded(rows, every, every, ENCODINGS["standard scaler"])
    fitted = estimator(ESTIMATOR).fit(whole.train, whole.known_train)
    shares = _shap(fitted, whole)
    order = shares.abs().mean().sort_values(ascending=False).index
    ranks = rows.frame[[name for name in order if name in rows.numbers]].rank(pct=True)
    parts = [encoded(rows, train, test, ENCODINGS["standard scaler"])
             for train, test in splits("models", rows.model, rows.organisation, rows.year)]  # fmt: skip
    left = [estimator(ESTIMATOR).fit(part.train, part.known_train) for part in parts]
    return Explained(
        rows.target, shares[order], ranks.reindex(columns=order), tuple(rows.model), _permuted(parts, left),
        {name: _lime(fitted, whole, rows, name) for name in single}, _selected(parts, left),
    )  # fmt: skip


def _columns(part: Arrays) -> list[str]:
    """The columns that encoded ones belong to: 'organisation_Google' is of organisation; 'chip_year' is a number."""
    numbers = part.names[: len(part.centre)]
    return [
        name if name in numbers else next((of for of in _NAMES if name.startswith(f"{of}_")), name)
        for name in part.names
    ]


_NAMES = ("organisation", "country", "domain", "chip", "category", "accessibility", "confidence", "format",
          "manufacturer", "kind", "foundry")  # fmt: skip


def _shap(fitted: Any, part: Arrays) -> pd.DataFrame:
    """SHAP values of the training rows, summed by column."""
    with needed("an explanation", "landscape"):
        import shap

    values = shap.TreeExplainer(fitted).shap_values(part.train, check_additivity=False)
    by_column = pd.DataFrame(values).T.groupby(_columns(part)).sum().T
    by_column.columns = by_column.columns.astype(str)
    return by_column


def _permuted(parts: list[Arrays], left: list[Any]) -> pd.DataFrame:
    """How much R² on held-out models falls when a column is shuffled, the largest loss first."""
    generator = np.random.default_rng(0)
    lost: dict[str, list[float]] = {}
    for part, fitted in zip(parts, left, strict=True):
        base = figures(part.known_test, fitted.predict(part.test), 0.0)["r2"]
        columns = np.array(_columns(part))
        for column in np.unique(columns):
            at = np.flatnonzero(columns == column)
            drops = []
            for _ in range(_REPEATS):
                mixed = part.test.copy()
                mixed[:, at] = mixed[generator.permutation(len(mixed))][:, at]
                drops.append(base - figures(part.known_test, fitted.predict(mixed), 0.0)["r2"])
            lost.setdefault(str(column), []).append(float(np.mean(drops)))
    losses = pd.DataFrame({"feature": list(lost), "loss of R²": [float(np.mean(values)) for values in lost.values()]})
    return losses.sort_values("loss of R²", ascending=False, ignore_index=True)


def _lime(fitted: Any, part: Arrays, rows: Rows, model: str) -> list[tuple[str, float]]:
    """The conditions that decide about one model, by LIME."""
    places = np.flatnonzero(rows.model == model)
    if not len(places):
        raise ForerunError(f"{model!r} does not state {rows.target}.{did_you_mean(model, rows.model)}")
    return conditions(fitted, part, part.train[places[0]], rows)


def _selected(parts: list[Arrays], left: list[Any]) -> pd.DataFrame:
    """R² on held-out models with the best 1, 2, 3 … encoded features by SHAP, chosen in each training part alone."""
    orders = []
    with needed("an explanation", "landscape"):
        import shap
    for part, fitted in zip(parts, left, strict=True):
        shapley = shap.TreeExplainer(fitted).shap_values(part.train, check_additivity=False)
        orders.append(np.argsort(-np.abs(shapley).mean(axis=0)))
    most = min(len(part.names) for part in parts)
    lines = []
    for many in (*(size for size in SELECTIONS if size < most), most):
        known = np.concatenate([part.known_test for part in parts])
        values = np.concatenate([
            estimator(ESTIMATOR).fit(part.train[:, order[:many]], part.known_train).predict(part.test[:, order[:many]])
            for part, order in zip(parts, orders, strict=True)
        ])  # fmt: skip
        judged = figures(known, values, 0.0)
        lines.append({"features": many, "r2": judged["r2"], "within 2": judged["within 2"]})
    return pd.DataFrame(lines)
