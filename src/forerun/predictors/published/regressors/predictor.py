"""Linear models, support vectors, trees and their ensembles on numbers of model and device.

Features are logarithms of the numbers, scaled, and turned to their principal components where that is asked for;
targets are logarithms. Fitted models are stored as arrays (`fitted.py`), so predictions need no scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from forerun.errors import ForerunError, did_you_mean
from forerun.predictors.hold_out import HoldOut
from forerun.predictors.published.regressors import fitted, models
from forerun.predictors.published.whole_model import numbers
from forerun.predictors.published.whole_model.base import ByNumbers
from forerun.predictors.published.whole_model.numbers import Numbers

if TYPE_CHECKING:
    from optuna import Trial

    from forerun.predictors.cases import Cases, TrainingCases

SCALINGS = ("standard", "minmax")
#: Predictions are clipped to this far beyond the measured range, as logarithms: linear models are unbounded.
_BEYOND = 3.0


class RegressorsPredictor(ByNumbers):
    """Latency, memory and energy by a regressor of scikit-learn."""

    name = "regressors"
    sees_devices = True
    hold_out = HoldOut(splits=("random", "family", "device"), keeps_all_columns=False)

    def __init__(
        self, model: str = "stacked", scaling: str = "standard", pca: int = 0, noise: float = 0.0, copies: int = 2,
        features: Sequence[str] | None = None, trees: int = 100, depth: int = 0, leaf: int = 2,
        learning_rate: float = 0.1, strength: float = 1e-3, cost: float = 10.0, seed: int = 0,
    ) -> None:  # fmt: skip
        self.model = model
        self.scaling = scaling
        self.pca = pca  # principal components; 0: none are taken
        self.noise = noise  # standard deviation of the factor on every number of a copied row; 0: no row is copied
        self.copies = copies
        self.features = features  # names of numbers; None: all but those of the host
        self.trees = trees
        self.depth = depth  # of a tree; 0: no limit (boosting: 4)
        self.leaf = leaf  # rows that a leaf holds at least
        self.learning_rate = learning_rate  # of boosting
        self.strength = strength  # of the penalty of ridge and lasso
        self.cost = cost  # of an error of the support vectors
        self.seed = seed

    feature_scale_: np.ndarray  # [2, features]: what is subtracted, what is divided by
    components_: np.ndarray  # [features, components]; only with principal components
    target_range_: np.ndarray  # [2, targets]: least and largest logarithm that was measured

    @property
    def seen(self) -> tuple[str, ...]:
        """The names of the features."""
        chosen = tuple(self.features) if self.features else numbers.ALL_NUMBERS
        for name in chosen:
            if name not in numbers.KNOWN_NUMBERS:
                hint = did_you_mean(name, numbers.KNOWN_NUMBERS)
                raise ForerunError(f"no number of a model, device or host is called {name!r}.{hint}")
        return chosen

    def prepare(self, cases: TrainingCases) -> None:
        models.check_installed()  # once, and not in every process that fits

    def learn(self, cases: Cases) -> None:
        self._check_settings()
        raw = np.nan_to_num(numbers.matrix(numbers.of_rows(cases.rows, cases.devices), self.seen, logarithms=False))
        measured = cases.rows[list(self.targets)].to_numpy(dtype=float)
        targets = np.log(np.where(measured > 0, measured, np.nan))
        self.target_range_ = np.stack([np.nanmin(targets, axis=0), np.nanmax(targets, axis=0)])
        self._learn_scale(np.log1p(raw))
        for target, logs in zip(self.targets, targets.T, strict=True):
            known = np.isfinite(logs)
            lines, wanted = self._with_copies(raw[known], logs[known])
            made = models.fit(self, self.prepared(np.log1p(lines)), wanted)
            for name in [n for n in vars(self) if n.startswith(f"{target}_") and n.endswith("_")]:
                delattr(self, name)  # of an earlier fit
            for name, values in fitted.arrays(made).items():
                setattr(self, f"{target}_{name}_", values)

    def values(self, lines: Numbers) -> dict[str, np.ndarray]:
        prepared = self.prepared(numbers.matrix(lines, self.seen, logarithms=True))
        low, high = self.target_range_
        out = {}
        for at, target in enumerate(self.targets):
            logs = fitted.answers(self.arrays(target), prepared)
            out[target] = np.exp(np.clip(logs, low[at] - _BEYOND, high[at] + _BEYOND))
        return out

    def arrays(self, target: str) -> fitted.Arrays:
        """The fitted model of a target."""
        selected = [name for name in vars(self) if name.startswith(f"{target}_") and name.endswith("_")]
        return {name.removeprefix(f"{target}_").removesuffix("_"): getattr(self, name) for name in selected}

    def _check_settings(self) -> None:
        if self.scaling not in SCALINGS:
            raise ForerunError(f"scaling must be {' or '.join(SCALINGS)}, got {self.scaling!r}")
        if not 0 <= self.pca <= len(self.seen):
            raise ForerunError(f"pca must be from 0 (none) to {len(self.seen)} components, got {self.pca}")

    def _learn_scale(self, logs: np.ndarray) -> None:
        """The scaling of features; a constant feature is scaled to 0."""
        if self.scaling == "standard":
            start, width = logs.mean(axis=0), logs.std(axis=0)
        else:
            start, width = logs.min(axis=0), np.ptp(logs, axis=0)
        self.feature_scale_ = np.stack([start, np.where(width > 1e-9, width, np.inf)])
        if self.pca:
            scaled = (logs - self.feature_scale_[0]) / self.feature_scale_[1]
            self.components_ = np.linalg.svd(scaled - scaled.mean(axis=0), full_matrices=False)[2][: self.pca].T

    def prepared(self, logs: np.ndarray) -> np.ndarray:
        """Logarithms of the numbers, scaled as input of the model."""
        scaled = (logs - self.feature_scale_[0]) / self.feature_scale_[1]
        return scaled @ self.components_ if self.pca else scaled

    def _with_copies(self, raw: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows, and copies of them whose numbers are multiplied by noise."""
        if not self.noise or not self.copies:
            return raw, targets
        rng = np.random.default_rng(self.seed)
        noisy = [raw * np.exp(self.noise * rng.standard_normal(raw.shape)) for _ in range(self.copies)]
        return np.concatenate([raw, *noisy]), np.tile(targets, 1 + self.copies)

    @classmethod
    def load(cls, folder: Path) -> Self:
        out = super().load(folder)
        try:
            width = out.components_.shape[1] if out.pca else len(out.seen)
            if out.feature_scale_.shape != (2, len(out.seen)) or out.target_range_.shape != (2, len(out.targets)):
                raise ValueError("its arrays do not fit its features")
            for target in out.targets:
                fitted.check(out.arrays(target), width)
        except (AttributeError, KeyError, ValueError, IndexError) as error:
            raise ForerunError(f"{folder} holds no whole predictor {cls.name}: {error}") from error
        return out

    @classmethod
    def search_space(cls, trial: Trial) -> dict[str, Any]:
        model = trial.suggest_categorical("model", models.MODELS)
        out: dict[str, Any] = {"model": model, "scaling": trial.suggest_categorical("scaling", SCALINGS)}
        if model in ("ridge", "lasso"):
            out["strength"] = trial.suggest_float("strength", 1e-5, 1.0, log=True)
        if model == "svr":
            out["cost"] = trial.suggest_float("cost", 0.1, 300.0, log=True)
        if model in ("tree", "forest", "boosting", "stacked"):
            out |= {"depth": trial.suggest_int("depth", 3, 12), "leaf": trial.suggest_int("leaf", 1, 5)}
        if model in ("boosting", "stacked"):
            out["learning_rate"] = trial.suggest_float("learning_rate", 0.02, 0.3, log=True)
        return out
