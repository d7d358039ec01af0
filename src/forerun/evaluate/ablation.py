"""What each part of a predictor buys: the same held-out rows, predicted with more and more of it.

The constants of the first line were once read off H200 rows (predictors/laws/kernels.py), so it is no bare spec sheet.
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
from forerun.predictors.base import Predictor
from forerun.predictors.cases import TrainingCases
from forerun.predictors.registry import predictor_class

#: The lines of every predictor; those of its own simpler forms (`Predictor.ablation`) stand between the first two.
PHYSICS, FULL, UNPUBLISHED = "physics only", "full", "full without published data"
#: The columns: which quantity, and for which rows.
SHOWN = (
    ("device_ms", "all"), ("device_ms", "device-bound"), ("latency_ms", "all"), ("latency_ms", "device-bound"),
    ("latency_ms", "host-bound"),
)  # fmt: skip
FIGURES = ("mape", "median_ape")

#: (device_ms, latency_ms) of every row.
Times = tuple[np.ndarray, np.ndarray]


def ablation(
    predictor: Predictor, cases: TrainingCases, full: pd.DataFrame, *, folds: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:  # fmt: skip
    """One line per part, each on families that were held out; errors as shares of what was measured.

    `full` has the full predictor's answers (`evaluate.left_out` of the same cases); for a fair last line it was made
    with the same folds and parameters.
    """
    models, folds = cases.models, folds or predictor.hold_out.folds
    same = ["case_key", "repeat"]
    if len(full) != len(models.rows) or (full[same].to_numpy() != models.rows[same].to_numpy()).any():
        raise ForerunError("the left-out predictions are not of these rows: run evaluate.left_out on these cases")
    parts = {
        PHYSICS: predictor_class("roofline")().predict_cases(models),
        **predictor.ablation(cases, list(leave_out(independent(models.rows), folds))),
        FULL: full,
    }
    if cases.published_operators is not None:
        own = replace(cases, published_operators=None, published_models=None)
        parts[UNPUBLISHED] = left_out(predictor, own, folds=folds, progress=progress)
    return pd.DataFrame([line(name, times_in(answers), full) for name, answers in parts.items()])


def times_in(answers: pd.DataFrame) -> Times:
    """Predicted device time and latency of a table of predictions; NaN where it has none."""
    known = answers.reindex(columns=["predicted_device_ms", "predicted_latency_ms"]).to_numpy(dtype=float)
    return known[:, 0], known[:, 1]


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
