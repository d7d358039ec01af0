"""Feature selection: the features that change the predictions of a fitted regressor most."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.predictors.cases import Cases
from forerun.predictors.published.regressors import fitted
from forerun.predictors.published.regressors.predictor import RegressorsPredictor
from forerun.predictors.published.whole_model import numbers

#: Cases that features are judged on, and cases that they are compared with.
_JUDGED, _COMPARED = 24, 10


def importance(predictor: RegressorsPredictor, cases: Cases, target: str = "latency_ms", seed: int = 0) -> pd.Series:
    """By feature, the mean absolute SHAP value of the logarithm of a target over some of the cases, largest first.

    Without the package `shap`, how much the answers change when the values of a feature change places.
    """
    rng = np.random.default_rng(seed)
    lines = numbers.matrix(numbers.of_rows(cases.rows, cases.devices), predictor.seen, logarithms=True)
    model = predictor.arrays(target)

    def answers(features: np.ndarray) -> np.ndarray:
        return fitted.answers(model, predictor.prepared(features))

    judged = lines[rng.permutation(len(lines))[:_JUDGED]]
    compared = lines[rng.permutation(len(lines))[:_COMPARED]]
    try:
        import shap
    except ImportError:
        strength = _by_exchange(answers, judged, rng)
    else:
        explain = shap.PermutationExplainer(answers, compared, seed=seed)
        strength = np.abs(explain(judged, max_evals=2 * lines.shape[1] + 1, silent=True).values).mean(axis=0)
    return pd.Series(strength, index=list(predictor.seen)).sort_values(ascending=False, kind="stable")


def select_features(predictor: RegressorsPredictor, cases: Cases, keep: int = 10) -> list[str]:
    """The `keep` numbers that change the predicted latency most, for the parameter `features` of another fit."""
    if keep < 1:
        raise ForerunError(f"at least one feature must be kept, got {keep}")
    found = importance(predictor, cases)
    return [str(name) for name in found.index[:keep]]


def _by_exchange(
    answers: Callable[[np.ndarray], np.ndarray], lines: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    before = answers(lines)
    out = np.zeros(lines.shape[1])
    for at in range(lines.shape[1]):
        changed = lines.copy()
        changed[:, at] = rng.permutation(changed[:, at])
        out[at] = np.abs(answers(changed) - before).mean()
    return out
