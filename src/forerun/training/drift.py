"""How far a newly fitted predictor moves the answers of the one that ships."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from forerun.predictors.base import Predictor
from forerun.predictors.cases import Cases
from forerun.predictors.saved import SHIPPED


def drift(new: Predictor, models: Cases, left_out: pd.DataFrame) -> dict[str, Any]:
    """Error on left-out families, and the change of latency against the shipped predictor of the same name."""
    error = np.abs(left_out["predicted_latency_ms"] / left_out["latency_ms"] - 1)
    out: dict[str, Any] = {
        "rows": len(left_out),
        "latency, left-out families": f"mean error {error.mean():.1%}, median {error.median():.1%}",
    }
    if "predicted_device_ms" in left_out:
        error = np.abs(left_out["predicted_device_ms"] / left_out["device_ms"] - 1)
        out["device time, left-out families"] = f"mean error {error.mean():.1%}, median {error.median():.1%}"
    if not (SHIPPED / new.name).is_dir():
        return {**out, "drift": "nothing to compare with: no fitted predictor of this name ships"}
    before = type(new).shipped().predict_cases(models)["predicted_latency_ms"]
    moved = np.abs(new.predict_cases(models)["predicted_latency_ms"] / before - 1)
    return {**out, "drift of latency": f"mean {moved.mean():.1%}, largest {moved.max():.1%}"}
