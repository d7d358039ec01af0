"""Accuracy and cost of the regressors: errors over several random splits, the time of a fit and of a prediction, and
the memory of a fit."""

from __future__ import annotations

import multiprocessing
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.predictors.cases import Cases, TrainingCases
from forerun.predictors.published.regressors.models import MODELS
from forerun.predictors.published.whole_model import numbers
from forerun.predictors.published.whole_model.base import WholeModelPredictor

if TYPE_CHECKING:
    from forerun.predictors.published.regressors.predictor import RegressorsPredictor

#: Predictions are repeated for at least this many seconds, which a clock can resolve.
_LEAST_S = 0.2


def errors_over_splits(
    predictor: WholeModelPredictor, cases: TrainingCases, *, splits: int = 5, test_share: float = 0.2, seed: int = 0
) -> pd.DataFrame:
    """A row for each random split and target: n, mape, and r2 of the logarithms, on cases that were held out.

    Repeats of a case are held out together. Near relatives stay in training, so this is optimistic for any predictor:
    `evaluate.held_out` says how it does on new families.
    """
    selected = predictor.cases_of(cases)
    keys = selected.rows["case_key"].to_numpy()
    names = np.unique(keys)
    rng = np.random.default_rng(seed)
    lines = []
    for number in range(splits):
        held_out = rng.permutation(names)[: max(1, round(test_share * len(names)))]
        test = np.isin(keys, held_out)
        fresh = type(predictor)(**predictor.parameters()).fit(_only(selected.take(~test)))
        asked = selected.take(test)
        found = fresh.predict_cases(asked)
        for target in predictor.targets:
            scores = _scores(asked.rows[target].to_numpy(dtype=float), found[f"predicted_{target}"].to_numpy())
            lines.append({"split": number, "target": target, **scores})
    return pd.DataFrame(lines)


def measured(
    cases: TrainingCases, models: Sequence[str] = MODELS, *, splits: int = 5, target: str = "latency_ms",
    **settings: Any,
) -> pd.DataFrame:  # fmt: skip
    """A row for each model: errors over splits, and time and memory of a fit to all cases in a process of its own.

    `peak_traced_mb` is what Python and numpy allocated at most during the fit, `peak_rss_mb` the most memory that the
    whole process had, with the cases and the libraries in it.
    """
    from forerun.predictors.published.regressors.predictor import RegressorsPredictor

    if "fork" not in multiprocessing.get_all_start_methods():
        raise ForerunError("memory is measured in forked processes, which this system does not have")
    lines = []
    for model in models:
        predictor = RegressorsPredictor(model=model, **settings)
        found = errors_over_splits(predictor, cases, splits=splits)
        selected = found[found["target"] == target]
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            costs = pool.submit(_costs, predictor, cases).result()
        lines.append({
            "model": model, "mape": selected["mape"].mean(),
            "mape_sd": selected["mape"].std(ddof=1) if splits > 1 else np.nan, "r2": selected["r2"].mean(), **costs,
        })  # fmt: skip
    return pd.DataFrame(lines)


def _costs(predictor: RegressorsPredictor, cases: TrainingCases) -> dict[str, float]:
    import resource
    import sys

    predictor.fit(cases)  # libraries are imported once
    began = time.perf_counter()
    predictor.fit(cases)
    training_s = time.perf_counter() - began
    selected = predictor.cases_of(cases)
    began, asked = time.perf_counter(), 0
    while time.perf_counter() - began < _LEAST_S:
        predictor.values_of_cases(selected)
        asked += len(selected)
    prediction_s = (time.perf_counter() - began) / asked
    # Most of the process's memory by now; tracing comes after, since it takes memory itself.
    unit = 1 if sys.platform == "darwin" else 1024
    peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    peak_traced = _traced_fit(predictor, selected)
    return {
        "training_s": training_s, "prediction_us_per_case": 1e6 * prediction_s, "peak_traced_mb": peak_traced / 2**20,
        "peak_rss_mb": peak_rss / 2**20,
    }  # fmt: skip


def _traced_fit(predictor: RegressorsPredictor, cases: Cases) -> int:
    """Bytes that fitting the model of the first target takes at most, beside the features, which all models share."""
    from forerun.predictors.published.regressors import models

    target = predictor.targets[0]
    lines = predictor.prepared(
        numbers.matrix(numbers.of_rows(cases.rows, cases.devices), predictor.seen, logarithms=True)
    )
    wanted = np.log(cases.rows[target].to_numpy(dtype=float))
    known = np.isfinite(wanted)
    lines, wanted = lines[known], wanted[known]
    tracemalloc.start()
    models.fit(predictor, lines, wanted)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _only(cases: Cases) -> TrainingCases:
    """These cases and nothing else."""
    return TrainingCases(cases, cases.take(np.zeros(len(cases), dtype=bool)))


def _scores(measured_values: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    known = np.isfinite(measured_values) & np.isfinite(predicted)
    truth, answer = measured_values[known], predicted[known]
    logs = np.log(truth)
    spread = ((logs - logs.mean()) ** 2).sum()
    r2 = 1 - ((np.log(answer) - logs) ** 2).sum() / spread if spread > 0 else np.nan
    return {"n": int(known.sum()), "mape": float(np.abs(answer / truth - 1).mean()), "r2": float(r2)}
