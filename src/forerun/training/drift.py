"""How far new weights move the answers of the shipped ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from forerun.errors import ForerunError
from forerun.predictors.default import DefaultPredictor
from forerun.training.cases import Cases


def drift(new: DefaultPredictor, models: Cases, told: pd.DataFrame) -> dict[str, Any]:
    """Error on left-out families with the new weights, and the change of device time against the shipped ones."""
    error = np.abs(told["told_device"] / told["device_ms"] - 1)
    out = {
        "rows": len(told),
        "device time, left-out families": f"mean error {error.mean():.1%}, median {error.median():.1%}",
    }
    try:
        old = DefaultPredictor().weights.networks["gpu"]
    except ForerunError as error:
        return {**out, "drift": f"nothing to compare with ({error})"}
    before = models.sum(old.seconds(models.ops))
    after = models.sum(new.weights.networks["gpu"].seconds(models.ops))
    moved = np.abs(after / before - 1)
    return {**out, "drift of device time": f"mean {moved.mean():.1%}, largest {moved.max():.1%}"}
