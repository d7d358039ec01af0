"""The whole scoreboard from left-out predictions: baselines beside the default, and devices that were left out."""

from __future__ import annotations

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.evaluate import devices
from forerun.evaluate.scoreboard import Scoreboard, board, dummy, one_ratio
from forerun.training.cases import operator_cases
from forerun.training.default import SEEDS, Gathered

NOTES = """Printed by `forerun evaluate --out docs`. Every prediction is by weights that saw no row of the model's
family; several families are left out together. `dummy` is the median of the other families, `one ratio` the plain
roofline times one fitted number, `roofline` the plain roofline. `default, host probed` is told how slow the host was at
that moment (by the rows of other families measured within 90 s, as a probe would tell); `default` is not. Intervals of
a family are calibrated on the other families only. Repeats of a case are left out of the figures."""
_SHOWN = (
    ("latency_ms", "all"), ("latency_ms", "device-bound"), ("latency_ms", "host-bound"), ("device_ms", "all"),
    ("device_ms", "training, device-bound"), ("device_ms", "prefill"), ("device_ms", "decode"), ("energy_j", "all"),
)  # fmt: skip


def scoreboard(told: pd.DataFrame) -> Scoreboard:
    """All lines of the left-out families."""
    light = told["light_ms"].to_numpy(dtype=float)
    baselines: dict[str, dict[str, np.ndarray]] = {"dummy": {}, "roofline": {}, "one ratio": {}}
    for target in ("latency_ms", "device_ms", "energy_j"):
        baselines["dummy"][target] = dummy(told, target)
        if target != "energy_j":
            baselines["roofline"][target] = light
            baselines["one ratio"][target] = one_ratio(told, target, light)
    return board(told, baselines)


def summary(made: Scoreboard) -> pd.DataFrame:
    """The lines that people ask for."""
    lines = made.lines[made.lines["predictor"].isin(("one ratio", "default", "default, host probed"))]
    wanted = [lines[(lines["target"] == t) & (lines["regime"] == r)] for t, r in _SHOWN]
    found = pd.concat(wanted).drop(columns=["split", "rmse", "coverage"])
    for name in ("mape", "median_ape", "acc10", "interval_coverage", "interval_width"):
        found[name] = (100 * found[name]).round(1)
    return found


def left_out_devices(found: Gathered, store: Store, *, steps: int) -> dict[str, pd.DataFrame]:
    """Operators on GPUs of which no row was seen."""
    rows = store.read("operators")
    test = rows[rows["protocol"].fillna("").str.startswith("neusight/test") | (rows["device"] == "b200")]
    test = test[(test["status"] == "ok") & (test["device_ms"] > 0) & (test["devices"].fillna(1) <= 1)]
    by = ["dataset", "device", "op", "dtype", "runtime"]
    test = test.sample(frac=1, random_state=1).groupby(by, dropna=False).head(400)
    tested = operator_cases(test)
    lines = devices.operators_left_out(found, tested, seeds=SEEDS[:1], steps=steps)
    return {"Operators on a GPU that was left out": lines}
