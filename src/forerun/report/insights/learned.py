"""Boosted trees fitted to the rows, what each feature does to their predictions, and which features are enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun._util.readable import short
from forerun.data.splits import hold_out, independent
from forerun.errors import ForerunError, did_you_mean
from forerun.predictors.published.trees import boosters
from forerun.report.insights.rows import NUMBERS, TARGETS, Rows

SETTINGS: dict[str, Any] = {
    "max_depth": 6, "eta": 0.15, "subsample": 0.8, "colsample_bytree": 0.8, "min_child_weight": 3, "seed": 0,
}  # fmt: skip
ROUNDS, FOLDS = 100, 4
#: Rows that are explained, rows that a dependence is averaged over, and values of a number that it is drawn at.
EXPLAINED, AVERAGED, VALUES = 1000, 300, 12
#: Names of a setting with fewer rows are none of the fitted columns.
LEAST_OF_NAME = 10
#: Cases beyond these are sampled where families are held out, and how many features a selection tries.
JUDGED = 5000
SIZES = (1, 2, 3, 4, 5, 6, 8)
#: A selection is enough where its median error is at most this many times the least, or this much above it.
ENOUGH, BESIDE = 1.05, 0.01


@dataclass(frozen=True)
class Columns:
    """Features as a matrix; a setting of names has a column for each."""

    matrix: np.ndarray
    features: np.ndarray  # the feature of each column
    names: tuple[str, ...]  # of each column: of a name, which; else empty

    def at(self, features: Sequence[str]) -> np.ndarray:
        return np.flatnonzero(np.isin(self.features, list(features)))


@dataclass(frozen=True)
class Dependence:
    """The mean prediction where one feature has one value in every case, and all others are as they were."""

    target: str
    feature: str
    values: tuple[Any, ...]
    predicted: tuple[float, ...]


@dataclass(frozen=True)
class Explained:
    """One quantity: the error on held-out families, SHAP values of its logarithm, and partial dependence."""

    target: str
    cases: int
    error: float  # median, relative, on families that were held out
    shares: pd.DataFrame  # [cases, features], the strongest feature first
    values: pd.DataFrame  # the features of these cases; NaN for names
    dependence: tuple[Dependence, ...]

    @property
    def strength(self) -> pd.Series:
        """By feature, the mean factor that it puts on a prediction, up or down."""
        return np.exp(self.shares.abs().mean())


def columns(frame: pd.DataFrame, features: Sequence[str]) -> Columns:
    """The features of the lines of a table."""
    parts: list[np.ndarray] = []
    of: list[str] = []
    called: list[str] = []
    for feature in features:
        if feature in NUMBERS:
            parts.append(frame[feature].to_numpy(dtype=float))
            of.append(feature)
            called.append("")
            continue
        counts = frame[feature].value_counts()
        for name in counts.index[counts >= LEAST_OF_NAME]:
            parts.append((frame[feature] == name).to_numpy(dtype=float))
            of.append(feature)
            called.append(str(name))
    if not parts:
        raise ForerunError(f"no value of {', '.join(features)} has {LEAST_OF_NAME} cases: there is nothing to study")
    return Columns(np.column_stack(parts), np.array(of), tuple(called))


def explain(rows: Rows, target: str) -> Explained | None:
    """What matters for a quantity; None where too few cases state it."""
    known = rows.known(target)
    if len(known) < FOLDS * LEAST_OF_NAME:
        return None
    features = columns(known, rows.features)
    logs = np.log(known[target].to_numpy(dtype=float))
    fitted = boosters.trained(features.matrix, logs, ROUNDS, SETTINGS)
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.permutation(len(known))[:EXPLAINED])
    found = boosters.contributions(fitted, features.matrix[chosen])[:, :-1]
    shares = pd.DataFrame({f: found[:, features.at([f])].sum(axis=1) for f in rows.features})
    shares = shares[shares.abs().mean().sort_values(ascending=False, kind="stable").index]
    lines = known.iloc[chosen].reset_index(drop=True)
    values = pd.DataFrame({f: lines[f] if f in NUMBERS else np.nan for f in shares}, dtype=float)
    curves = [_dependence(fitted, features, known, feature, target) for feature in shares]
    some = np.sort(rng.permutation(len(known))[:JUDGED])
    error = _errors(features.matrix[some], logs[some], _folds(known.iloc[some]))
    return Explained(target, len(known), float(np.median(error)), shares, values, tuple(filter(None, curves)))


def _dependence(
    fitted: Any, features: Columns, known: pd.DataFrame, feature: str, target: str
) -> Dependence | None:  # fmt: skip
    """The mean over cases that have the feature; numbers between their second and 98th percentile."""
    stated = np.flatnonzero(known[feature].notna())
    at = features.at([feature])
    if len(stated) < LEAST_OF_NAME or not len(at):
        return None
    lines = features.matrix[np.sort(np.random.default_rng(0).permutation(stated)[:AVERAGED])]
    if feature in NUMBERS:
        grid = known[feature].iloc[stated].quantile(np.linspace(0.02, 0.98, VALUES), interpolation="nearest")
        values: list[Any] = sorted({float(value) for value in grid})
        settings = [np.array([value]) for value in values]
    else:
        values = [features.names[place] for place in at]
        settings = [(at == place).astype(float) for place in at]
    if len(values) < 2:
        return None
    means = []
    for setting in settings:
        changed = lines.copy()
        changed[:, at] = setting
        means.append(float(np.exp(boosters.predicted(fitted, changed).mean())))
    return Dependence(target, feature, tuple(values), tuple(means))


@dataclass(frozen=True)
class Selection:
    """The features of a quantity in order, and the error on held-out families with the first 1, 2, 3 … of them."""

    target: str
    cases: int
    families: int
    order: tuple[str, ...]
    strength: tuple[float, ...]  # mean factor on a prediction
    errors: tuple[dict[str, float], ...]  # features, median, mean: relative
    enough: tuple[str, ...]  # the fewest that are as good as all

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target, "cases": self.cases, "families": self.families,
            "features": [
                {"feature": f, "mean_factor": s} for f, s in zip(self.order, self.strength, strict=True)
            ],
            "errors": list(self.errors), "enough": list(self.enough),
        }  # fmt: skip


def check_target(target: str) -> None:
    """Raises a ForerunError where a target is not known."""
    if target not in TARGETS:
        raise ForerunError(
            f"there is no target {short(target)}.{did_you_mean(target, TARGETS)} Choose from {', '.join(TARGETS)}"
        )


def select(rows: Rows, target: str) -> Selection:
    """Feature selection: features in the order of their SHAP values, and how many are enough. Features are ordered in
    each training part alone; the order that is shown is that over all rows."""
    check_target(target)
    known = rows.known(target)
    known = known.sample(n=min(JUDGED, len(known)), random_state=0).sort_index()
    families = int(independent(known).nunique())
    if len(known) < FOLDS * LEAST_OF_NAME or families < 2:
        raise ForerunError(
            f"{len(known)} cases of {families} families state {target}; a selection needs {FOLDS * LEAST_OF_NAME} "
            "cases of two families"
        )
    features = columns(known, rows.features)
    logs = np.log(known[target].to_numpy(dtype=float))
    whole = _strengths(features, logs, rows.features)
    folds = _folds(known)
    orders = [_order(_strengths(_part(features, train), logs[train], rows.features)) for train, _ in folds]
    lines: list[dict[str, float]] = []
    for many in [size for size in SIZES if size < len(rows.features)] + [len(rows.features)]:
        chosen = [features.at(order[:many]) for order in orders]
        error = np.concatenate([
            _error(features.matrix[:, at], logs, train, test)
            for at, (train, test) in zip(chosen, folds, strict=True)
        ])  # fmt: skip
        lines.append({"features": many, "median": float(np.median(error)), "mean": float(np.mean(error))})
    least = min(line["median"] for line in lines)
    many = int(next(line["features"] for line in lines if line["median"] <= max(ENOUGH * least, least + BESIDE)))
    order = _order(whole)
    return Selection(
        target, len(known), families, tuple(order), tuple(float(np.exp(whole[name])) for name in order), tuple(lines),
        tuple(order[:many]),
    )  # fmt: skip


def _part(features: Columns, lines: np.ndarray) -> Columns:
    return Columns(features.matrix[lines], features.features, features.names)


def _strengths(features: Columns, logs: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """By feature, the mean absolute SHAP value over some of the lines."""
    fitted = boosters.trained(features.matrix, logs, ROUNDS, SETTINGS)
    chosen = np.random.default_rng(0).permutation(len(logs))[: EXPLAINED // 2]
    found = boosters.contributions(fitted, features.matrix[chosen])[:, :-1]
    return {name: float(np.abs(found[:, features.at([name])].sum(axis=1)).mean()) for name in names}


def _order(strengths: Mapping[str, float]) -> list[str]:
    return sorted(strengths, key=lambda name: -strengths[name])


def _folds(known: pd.DataFrame) -> list[tuple[np.ndarray, np.ndarray]]:
    groups = independent(known)
    return list(hold_out(groups, min(FOLDS, max(2, int(groups.nunique())))))


def _errors(matrix: np.ndarray, logs: np.ndarray, folds: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Relative errors on families that were held out."""
    return np.concatenate([_error(matrix, logs, train, test) for train, test in folds])


def _error(matrix: np.ndarray, logs: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    if not train.any():
        return np.zeros(0)
    fitted = boosters.trained(matrix[train], logs[train], ROUNDS, SETTINGS)
    return np.abs(np.exp(boosters.predicted(fitted, matrix[test]) - logs[test]) - 1)
