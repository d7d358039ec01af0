"""Feature importance of fitted trees over many cases: SHAP values of the logarithm of a quantity."""

from __future__ import annotations

import numpy as np
import pandas as pd

from forerun.predictors.cases import Cases
from forerun.predictors.published.trees import boosters
from forerun.predictors.published.trees.predictor import TreesPredictor
from forerun.predictors.published.whole_model import numbers


def shares(
    predictor: TreesPredictor, cases: Cases, target: str = "latency_ms"
) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    """[cases, features]: the SHAP value of each feature for the logarithm of the target, and the feature's value."""
    lines = numbers.matrix(numbers.of_rows(cases.rows, cases.devices), predictor.seen, logarithms=False)
    found = boosters.contributions(predictor.boosters_[target], lines)[:, :-1]
    names = list(predictor.seen)
    return pd.DataFrame(found, columns=names), pd.DataFrame(lines, columns=names)


def summary(predictor: TreesPredictor, cases: Cases, target: str = "latency_ms") -> pd.DataFrame:
    """By feature, the strongest first: its mean absolute SHAP value, and the same as a factor."""
    found, _ = shares(predictor, cases, target)
    strength = found.abs().mean().sort_values(ascending=False, kind="stable")
    logs = strength.to_numpy()
    return pd.DataFrame({"feature": strength.index, "mean_log": logs, "mean_factor": np.exp(logs)})
