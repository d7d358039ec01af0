"""How far the predictions of a newly fitted predictor are from those of the shipped one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.predictors.base import Predictor
from forerun.predictors.cases import Cases
from forerun.predictors.registry import load_predictor


def drift(new: Predictor, models: Cases, held_out: pd.DataFrame) -> dict[str, Any]:
    """The held-out error, and the change of latency against the shipped predictor of the same name."""
    error = np.abs(held_out["predicted_latency_ms"] / held_out["latency_ms"] - 1)
    out: dict[str, Any] = {
        "rows": len(held_out),
        "latency, held out": f"mean error {error.mean():.1%}, median {error.median():.1%}",
    }
    if "predicted_device_ms" in held_out:
        error = np.abs(held_out["predicted_device_ms"] / held_out["device_ms"] - 1)
        out["device time, held out"] = f"mean error {error.mean():.1%}, median {error.median():.1%}"
    title = "latency against the shipped predictor"
    try:
        before = load_predictor(new.name).predict_cases(models)["predicted_latency_ms"]
    except ForerunError as reason:
        return {**out, title: f"nothing to compare with ({reason})"}
    moved = np.abs(new.predict_cases(models)["predicted_latency_ms"] / before - 1)
    return {**out, title: f"moved by {moved.mean():.1%} on average, by {moved.max():.1%} at most"}
