"""Simpler forms of the default predictor, for its ablation study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from forerun.predictors.baselines.roofline import RooflinePredictor
from forerun.predictors.cases import Cases, TrainingCases
from forerun.predictors.default.fit import device_ms, fit_costs, fit_networks, group_names

OPERATORS, HOST = "+ operator efficiencies", "+ host model"


def simpler_forms(
    cases: TrainingCases, folds: Sequence[tuple[np.ndarray, np.ndarray]], *, seeds: tuple[int, ...], steps: int
) -> dict[str, pd.DataFrame]:
    """Device time and latency of every model: by networks fitted to operators alone, then with a fitted host model."""
    models = cases.models
    # No model is in training, so one fit is enough for every family.
    nothing = replace(cases, models=models.take(np.zeros(len(models.rows), dtype=bool)), published_models=None)
    networks = fit_networks(nothing, fit_costs(models), group_names(nothing), seeds=seeds, steps=steps)
    learned = device_ms(networks, models)
    host_ms = RooflinePredictor().predict_cases(models)["predicted_host_ms"].to_numpy()
    latencies = {OPERATORS: np.maximum(learned, host_ms), HOST: _hosted_ms(models, learned, folds)}
    return {
        name: pd.DataFrame({"predicted_device_ms": learned, "predicted_latency_ms": latency})
        for name, latency in latencies.items()
    }


def _hosted_ms(models: Cases, device: np.ndarray, folds: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Latency from given device times and launch costs that were fitted to the other parts."""
    out = np.full(len(models.rows), np.nan)
    for train, test in folds:
        host = fit_costs(models.take(train))
        out[test] = host.latency_ms(models.launches[test], device[test])
    return out
