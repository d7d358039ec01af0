"""What each part of the default predictor buys: the same left-out rows, predicted with more and more of it.

The constants of the first line were once read off H200 rows (predictors.kernels), so it is no bare spec sheet; the
scoreboard's line `roofline` is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from forerun.data.splits import independent, leave_out
from forerun.errors import ForerunError
from forerun.evaluate.left_out import left_out
from forerun.evaluate.metrics import figures
from forerun.evaluate.scoreboard import first_of_cases, regimes
from forerun.predictors.cases import Cases, TrainingCases
from forerun.predictors.default import DefaultPredictor
from forerun.predictors.default.fit import device_ms, fit_costs, fit_networks, group_names
from forerun.predictors.roofline import RooflinePredictor

PHYSICS, OPERATORS, HOST = "physics only", "+ operator efficiencies", "+ host model"
FULL, UNPUBLISHED = "+ graph correction (full)", "full without published data"
#: The columns: which quantity, and for which rows.
SHOWN = (
    ("device_ms", "all"), ("device_ms", "device-bound"), ("latency_ms", "all"), ("latency_ms", "device-bound"),
    ("latency_ms", "host-bound"),
)  # fmt: skip
FIGURES = ("mape", "median_ape")

#: (device_ms, latency_ms) of every row.
Times = tuple[np.ndarray, np.ndarray]


def ablation(
    cases: TrainingCases,
    full: pd.DataFrame,
    *,
    steps: int,
    folds: int = DefaultPredictor.folds,
    seeds: tuple[int, ...] = (0,),
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """One line per part, each on families that were left out; errors as shares of what was measured.

    `full` has the full predictor's answers (`evaluate.left_out` of the same cases); for a fair last line it was made
    with the same folds, steps and seeds.
    """
    models = cases.models
    same = ["case_key", "repeat"]
    if len(full) != len(models.rows) or (full[same].to_numpy() != models.rows[same].to_numpy()).any():
        raise ForerunError("the left-out predictions are not of these rows: run evaluate.left_out on these cases")
    physics = RooflinePredictor().predict_cases(models)
    host_ms = physics["predicted_host_ms"].to_numpy()
    # No row of a model is learned from, so one fit serves for every family.
    nothing = replace(cases, models=models.take(np.zeros(len(models.rows), dtype=bool)), published_models=None)
    networks = fit_networks(nothing, fit_costs(models), group_names(nothing), seeds=seeds, steps=steps)
    learned = device_ms(networks, models)
    parts: dict[str, Times] = {
        PHYSICS: times_in(physics),
        OPERATORS: (learned, np.maximum(learned, host_ms)),
        HOST: (learned, hosted_ms(models, learned, folds)),
        FULL: times_in(full),
    }
    if cases.published_operators is not None:
        own = replace(cases, published_operators=None, published_models=None)
        parts[UNPUBLISHED] = times_in(
            left_out(DefaultPredictor(steps=steps, seeds=seeds), own, folds=folds, progress=progress)
        )
    return pd.DataFrame([line(name, values, full) for name, values in parts.items()])


def hosted_ms(models: Cases, device: np.ndarray, folds: int) -> np.ndarray:
    """Latency from given device times and launch costs that were fitted to the other families."""
    out = np.full(len(models.rows), np.nan)
    for train, test in leave_out(independent(models.rows), folds):
        host = fit_costs(models.take(train))
        out[test] = host.latency_ms(models.launches[test], device[test])
    return out


def times_in(left_out: pd.DataFrame) -> Times:
    """Predicted device time and latency of a table of predictions."""
    return left_out["predicted_device_ms"].to_numpy(dtype=float), left_out["predicted_latency_ms"].to_numpy(dtype=float)


def line(part: str, predicted: Times, rows: pd.DataFrame) -> dict[str, str | float]:
    """The figures of one part; repeats of a case do not count twice."""
    first = first_of_cases(rows, rows["device_ms"].to_numpy(dtype=float))
    groups = regimes(rows)
    values = dict(zip(("device_ms", "latency_ms"), predicted, strict=True))
    out: dict[str, str | float] = {"part": part}
    for target, group in SHOWN:
        mine = first & groups[group]
        errors = figures(values[target][mine], rows[target].to_numpy(dtype=float)[mine])
        out |= {f"{target}, {group}: {name}": errors.get(name, float("nan")) for name in FIGURES}
    return out | {"n": int(first.sum())}


def readable(lines: pd.DataFrame) -> pd.DataFrame:
    """The table as text: MAPE and median APE in one cell, in per cent."""

    def cell(row: pd.Series, column: str) -> str:
        mape, median = (100 * row[f"{column}: {name}"] for name in FIGURES)
        return f"{mape:.1f} / {median:.1f} %"

    columns = [f"{target}, {group}" for target, group in SHOWN]
    shown = {c: [cell(row, c) for _, row in lines.iterrows()] for c in columns}
    return pd.DataFrame({"MAPE / median APE": lines["part"], **shown, "n": lines["n"].to_numpy()})
