"""The models of scikit-learn that the predictor `regressors` fits, each by its name."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np

from forerun._util.extras import needed
from forerun.errors import ForerunError, did_you_mean

MODELS = ("linear", "ridge", "lasso", "svr", "tree", "forest", "boosting", "stacked")


class Settings(Protocol):
    """The settings of a model; RegressorsPredictor says what each of these means."""

    model: str
    trees: int
    depth: int
    leaf: int
    learning_rate: float
    strength: float
    cost: float
    seed: int


def fit(settings: Settings, features: np.ndarray, target: np.ndarray) -> Any:
    """The chosen model, fitted; the same rows and seed give the same model."""
    made = _unfitted(settings, features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a lasso that has not converged to the last digit
        return made.fit(features, target)


def check_installed() -> None:
    """Imports scikit-learn, which is an extra."""
    with needed("the predictor regressors"):
        import sklearn.ensemble
        import sklearn.svm  # noqa: F401


def _unfitted(settings: Settings, features: np.ndarray) -> Any:
    check_installed()
    from sklearn import ensemble, linear_model, model_selection, svm, tree

    seed, depth = settings.seed, settings.depth or None
    leaves: dict[str, Any] = {"min_samples_leaf": settings.leaf, "random_state": seed}

    def forest() -> Any:
        return ensemble.RandomForestRegressor(settings.trees, max_depth=depth, max_features=0.5, **leaves)

    def boosting() -> Any:
        return ensemble.GradientBoostingRegressor(
            n_estimators=settings.trees, max_depth=settings.depth or 4, learning_rate=settings.learning_rate,
            subsample=0.8, **leaves,
        )  # fmt: skip

    def stacked() -> Any:
        both = [("forest", forest()), ("boosting", boosting())]
        parts = model_selection.KFold(4, shuffle=True, random_state=seed)  # rows are in the order of their devices
        return ensemble.StackingRegressor(both, linear_model.LinearRegression(), cv=parts)

    # What scikit-learn calls gamma="scale"; a feature that never changes leaves no variance to divide by.
    gamma = 1.0 / (features.shape[1] * max(float(features.var()), 1e-12))
    made = {
        "linear": linear_model.LinearRegression,
        "ridge": lambda: linear_model.Ridge(settings.strength),
        "lasso": lambda: linear_model.Lasso(settings.strength, max_iter=5000, random_state=seed),
        "svr": lambda: svm.SVR(C=settings.cost, gamma=gamma, epsilon=0.01),
        "tree": lambda: tree.DecisionTreeRegressor(max_depth=depth, **leaves),
        "forest": forest,
        "boosting": boosting,
        "stacked": stacked,
    }
    if settings.model not in made:
        hint = did_you_mean(settings.model, MODELS)
        raise ForerunError(f"there is no regressor {settings.model!r}; choose {', '.join(MODELS)}.{hint}")
    return made[settings.model]()
