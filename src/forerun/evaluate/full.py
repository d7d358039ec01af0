"""The whole scoreboard from left-out predictions: baselines beside the default, and devices that were left out."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import ablation as parts
from forerun.evaluate import devices
from forerun.evaluate.metrics import figures
from forerun.evaluate.scoreboard import Scoreboard, board, dummy, one_ratio
from forerun.graph.sources import load_graph
from forerun.measure.cases import workload_of
from forerun.predictors.memory import estimate
from forerun.training.cases import operator_cases
from forerun.training.default import SEEDS, Gathered, scores

NOTES = """Printed by `forerun evaluate --out docs`. Every prediction of time and energy is by weights that saw no
row of the model's family (families that share a graph count as one; several are left out together);
single operators, some of them at shapes of well-known models, stay in training. `dummy` is the median of
the other families, `one ratio` the plain roofline times one fitted number, `roofline` the plain roofline.
`default` takes the host to be a little faster than the median, which errs least. `default, host probed`
is told how slow the host was at that moment: by a tiny launch timed just before the case or, on rows
older than that, by how far the latencies of other families measured within 20 s lie from what was
predicted for them. Published times of models on other GPUs teach too, without the families that are asked
for: by family, and by the letters that a model's name begins with, so near relatives under another name
(resnetaa beside resnet) stay. Intervals of a family are calibrated on the other families only.
Memory has no learned weights; the constants of its workspaces were read off these rows, as was how much longer
a call takes by itself than in a loop, over which energy is measured. Repeats of a case are left out of the
figures.
Of a GPU that is left out, its spec sheet is known, and what the power limit yields per watt in its generation
(`_PER_WATT` in predictors/specs.py), read off other GPUs. The number for fp32 on Ada follows a rule, but was
set with the L4's rows in view: the L4's matrix products are no blind test."""
_OPERATORS = """Operators on a GPU that was left out

Most lines are of single rows, which are harder than sums, where errors cancel. Those of sums of a class over a model
are NeuSight's own rows (fp32, forward); there, `NeuSight` is what its authors published for these very rows."""
_MODELS = """Models on a GPU that was left out

Times that others published; what copying images takes where it was timed is known to every predictor. `one ratio` is
told by the other GPUs measured in the same way how far times lie above the roofline, `default, hosts of the set` how
slow hosts are where enough calls show it: in the runs of 50 iterations of pytorch_gpu_benchmark, eight processes load
images meanwhile. `default` is told neither. How much an unseen device widens an interval was chosen on these rows.
Operators of another card with the same chip may have taught (the A100 of 80 GB beside that of 40)."""
_SHOWN = (
    ("latency_ms", "all"), ("latency_ms", "device-bound"), ("latency_ms", "host-bound"), ("device_ms", "all"),
    ("device_ms", "training, device-bound"), ("device_ms", "prefill"), ("device_ms", "decode"), ("energy_j", "all"),
    ("memory_mb", "all"), ("memory_allocated_mb", "all"),
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


def cpu_lines(told: pd.DataFrame) -> pd.DataFrame:
    """Latency on the CPU, for families that were left out."""
    real = told["latency_ms"].to_numpy(dtype=float)
    first = (told["repeat"] == 0).to_numpy()
    said = {
        "one ratio": one_ratio(told, "latency_ms", told["light_ms"].to_numpy(dtype=float)),
        "default": told["told_latency"].to_numpy(dtype=float),
    }
    lines = []
    for mode in ("all", *sorted(told["mode"].unique())):
        mine = first & ((told["mode"] == mode).to_numpy() | (mode == "all"))
        for predictor, values in said.items():
            lines.append({"regime": mode, "predictor": predictor, **figures(values[mine], real[mine])})
    return pd.DataFrame(lines).drop(columns=["rmse"])


def misfits(store: Store) -> pd.DataFrame:
    """Cases that were run: how many fit the device, and what was said of those that did not."""
    rows = store.read("models")
    own = rows[rows["protocol"].fillna("").str.startswith("forerun/") & rows["status"].isin(("ok", "oom"))]
    own = own[own["case"].notna() & (own["source"] != "tabular") & (own["repeat"] == 0)]
    lines = []
    for device, mine in own.groupby("device"):
        failed = mine[mine["status"] == "oom"]
        wrong = sum(_told_to_fit(case, str(device)) for case in failed["case"])
        lines.append({"device": device, "cases": f"{len(mine):,}", "did not fit": len(failed),
                      "of these told to fit": wrong, "share of cases": f"{wrong / len(mine):.2%}"})  # fmt: skip
    return pd.DataFrame(lines)


def _told_to_fit(case: str, device: str) -> bool:
    try:
        return estimate(load_graph(workload_of(json.loads(case))), load_device(device)).fits is True
    except ForerunError:  # a model or a device of the user's that is no longer known
        return False


def summary(made: Scoreboard) -> pd.DataFrame:
    """The lines that people ask for."""
    lines = made.lines[made.lines["predictor"].isin(("one ratio", "default", "default, host probed"))]
    wanted = [lines[(lines["target"] == t) & (lines["regime"] == r)] for t, r in _SHOWN]
    found = pd.concat(wanted).drop(columns=["split", "rmse", "coverage"])
    for name in ("mape", "median_ape", "acc10", "interval_coverage", "interval_width"):
        found[name] = (100 * found[name]).round(1)
    return found


def ablation(found: Gathered, told: pd.DataFrame, *, folds: int, steps: int) -> pd.DataFrame:
    """What each part of the predictor buys, as text."""
    return parts.readable(parts.ablation(found, told, folds=folds, steps=steps))


def left_out_devices(found: Gathered, told: pd.DataFrame, store: Store, *, steps: int) -> dict[str, pd.DataFrame]:
    """Operators and whole models on GPUs of which no row was seen; intervals from the left-out families' errors."""
    rows = store.read("operators")
    test = rows[rows["protocol"].fillna("").str.startswith("neusight/test") | (rows["device"] == "b200")]
    test = test[(test["status"] == "ok") & (test["device_ms"] > 0) & (test["devices"].fillna(1) <= 1)]
    by = ["dataset", "device", "op", "dtype", "runtime"]
    test = test.sample(frac=1, random_state=1).groupby(by, dropna=False).head(400)
    tested = operator_cases(test)
    lines = devices.operators_left_out(found, tested, store.read("models"), seeds=SEEDS, steps=steps)
    models = devices.models_left_out(found, seeds=SEEDS, steps=steps, calibration=scores(told))
    return {
        _OPERATORS: lines.drop(columns=["rmse", "coverage"], errors="ignore"),
        _MODELS: devices.shown(models),
    }
