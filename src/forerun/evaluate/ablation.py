"""An ablation study: the same held-out rows, predicted with more and more parts of a predictor.

The constants of the first line were fitted to H200 rows (predictors/laws/kernels.py), so it knows more than a spec
sheet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from forerun.data.splits import hold_out, independent
from forerun.errors import ForerunError
from forerun.evaluate.held_out import held_out
from forerun.evaluate.metrics import figures
from forerun.evaluate.scoreboard import first_of_cases, regimes
from forerun.predictors.base import Predictor
from forerun.predictors.cases import TrainingCases
from forerun.predictors.registry import predictor_class

#: The lines of every predictor; those of its own simpler forms (`Predictor.ablation`) come between the first two.
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
    """One line per part, each on held-out families; errors are relative to the measurement.

    `full` has the full predictor's predictions (`evaluate.held_out` of the same cases); for a fair last line it was
    made with the same folds and parameters.
    """
    models, folds = cases.models, folds or predictor.hold_out.folds
    same = ["case_key", "repeat"]
    if len(full) != len(models.rows) or (full[same].to_numpy() != models.rows[same].to_numpy()).any():
        raise ForerunError("the held-out predictions are not of these rows: run evaluate.held_out on these cases")
    parts = {
        PHYSICS: predictor_class("roofline")().predict_cases(models),
        **predictor.ablation(cases, list(hold_out(independent(models.rows), folds))),
        FULL: full,
    }
    if cases.published_operators is not None:
        own = replace(cases, published_operators=None, published_models=None)
        parts[UNPUBLISHED] = held_out(predictor, own, folds=folds, progress=progress)
    return pd.DataFrame([line(name, times_in(predictions), full) for name, predictions in parts.items()])


def times_in(predictions: pd.DataFrame) -> Times:
    """Predicted device time and latency of a table of predictions; NaN where it has none."""
    known = predictions.reindex(columns=["predicted_device_ms", "predicted_latency_ms"]).to_numpy(dtype=float)
    return known[:, 0], known[:, 1]


def line(part: str, predicted: Times, rows: pd.DataFrame) -> dict[str, str | float]:
    """The figures of one part; repeats of a case do not count twice."""
    first = first_of_cases(rows, rows["device_ms"].to_numpy(dtype=float))
    groups = regimes(rows)
    values = dict(zip(("device_ms", "latency_ms"), predicted, strict=True))
    out: dict[str, str | float] = {"part": part}
    for target, group in SHOWN:
        chosen = first & groups[group]
        errors = figures(values[target][chosen], rows[target].to_numpy(dtype=float)[chosen])
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
