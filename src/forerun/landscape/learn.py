"""The estimators that are compared, their parameters, and the search for these inside the training period."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from forerun._util.extras import needed
from forerun.errors import ForerunError, did_you_mean
from forerun.landscape.encode import Encoding, encoded
from forerun.landscape.rows import Rows

#: What each estimator starts from; a search may replace some of it.
DEFAULTS: dict[str, dict[str, Any]] = {
    "linear": {},
    "ridge": {"alpha": 1.0},
    "lasso": {"alpha": 0.01, "max_iter": 20_000},
    "SVR": {"C": 10.0, "gamma": "scale", "epsilon": 0.05},
    "decision tree": {"min_samples_leaf": 2, "random_state": 0},
    "random forest": {"n_estimators": 60, "min_samples_leaf": 1, "max_features": 0.5, "random_state": 0},
    "gradient boosting": {"n_estimators": 100, "learning_rate": 0.1, "max_depth": 3, "subsample": 0.8,
                          "max_features": 0.5, "random_state": 0},
    "histogram boosting": {"max_iter": 60, "learning_rate": 0.15, "min_samples_leaf": 10, "random_state": 0},
    "stacked": {"random_state": 0},
}  # fmt: skip
ESTIMATORS = tuple(DEFAULTS)
#: Those with parameters worth a search, and the range of each.
SPACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "ridge": lambda trial: {"alpha": trial.suggest_float("alpha", 1e-2, 1e3, log=True)},
    "lasso": lambda trial: {"alpha": trial.suggest_float("alpha", 1e-3, 0.3, log=True)},
    "SVR": lambda trial: {
        "C": trial.suggest_float("C", 0.1, 300, log=True), "gamma": trial.suggest_float("gamma", 1e-4, 0.1, log=True),
    },
    "random forest": lambda trial: {
        "min_samples_leaf": trial.suggest_int("min_samples_leaf", 1, 8),
        "max_features": trial.suggest_float("max_features", 0.1, 1.0),
    },
    "gradient boosting": lambda trial: {
        "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.3, log=True),
        "max_depth": trial.suggest_int("max_depth", 2, 5),
        "max_features": trial.suggest_float("max_features", 0.1, 1.0),
    },
}  # fmt: skip
_FOLDS = 3


def estimator(name: str, settings: Mapping[str, Any] | None = None) -> Any:
    """An estimator of scikit-learn, not fitted."""
    if name not in DEFAULTS:
        raise ForerunError(f"unknown estimator {name!r}.{did_you_mean(name, DEFAULTS)} Known: {', '.join(DEFAULTS)}")
    with needed("the landscape study", "landscape"):
        from sklearn import ensemble, linear_model, svm, tree

    chosen = {**DEFAULTS[name], **(settings or {})}
    if name == "stacked":
        parts = [(of.replace(" ", "_"), estimator(of)) for of in ("random forest", "gradient boosting")]
        parts = [(of, part.set_params(n_estimators=40)) for of, part in parts]
        return ensemble.StackingRegressor(parts, final_estimator=linear_model.RidgeCV(), cv=3)
    kinds = {
        "linear": linear_model.LinearRegression, "ridge": linear_model.Ridge, "lasso": linear_model.Lasso,
        "SVR": svm.SVR, "decision tree": tree.DecisionTreeRegressor, "random forest": ensemble.RandomForestRegressor,
        "gradient boosting": ensemble.GradientBoostingRegressor,
        "histogram boosting": ensemble.HistGradientBoostingRegressor,
    }  # fmt: skip
    return kinds[name](**chosen)


def ordered_folds(year: np.ndarray, folds: int = _FOLDS) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(earlier, later) parts: the later half of the rows in folds by time, each judged by what came before it."""
    edges = np.quantile(year, np.linspace(0.5, 1.0, folds + 1))
    for low, high, last in zip(edges[:-1], edges[1:], range(folds), strict=False):
        later = (year >= low) & ((year < high) | (last == folds - 1))
        earlier = year < low
        if later.any() and earlier.sum() > 1:
            yield np.flatnonzero(earlier), np.flatnonzero(later)


def tune(rows: Rows, train: np.ndarray, name: str, encoding: Encoding, trials: int) -> dict[str, Any]:
    """The settings with the least mean error on later rows of the training part; the defaults where none is better."""
    if name not in SPACES:
        return {}
    with needed("the landscape study", "landscape"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    parts = [
        encoded(rows, train[earlier], train[later], encoding) for earlier, later in ordered_folds(rows.year[train])
    ]

    def error(settings: Mapping[str, Any]) -> float:
        wrong = [
            np.abs(estimator(name, settings).fit(part.train, part.known_train).predict(part.test) - part.known_test)
            for part in parts
        ]
        return float(np.concatenate(wrong).mean())

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(lambda trial: error(SPACES[name](trial)), n_trials=trials)
    return dict(study.best_params) if study.best_value < error({}) else {}
