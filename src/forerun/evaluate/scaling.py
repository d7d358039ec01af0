"""Fits the law of DataParallel to published training steps on 1 to 4 GPUs, and judges it with one GPU type held out.

Every GPU has its own batch, so an ideal step takes as long on several as on one. The measured step on one GPU is given:
what is judged is the scaling. `host_ms` is predicted, for the reference host.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from forerun.advice.data_parallel import OneProcess, gradient_mb
from forerun.api.predict import predict_workload
from forerun.data.store import Store
from forerun.device import load_device
from forerun.device.links import link
from forerun.errors import ForerunError
from forerun.evaluate.results import Section
from forerun.workload import Workload

DATASET = "pytorch_gpu_benchmark"
#: Columns of the table that are shares.
SHARE_COLUMNS = ("mape", "one ratio", "ideal", "interval_coverage")


def measured(store: Store) -> pd.DataFrame:
    """Training steps on several GPUs, a line each: the step on one, its host time and the size of its weights."""
    rows = store.query(
        "select device, devices, dtype, model, batch // devices as batch, input_shape, latency_ms from models "
        f"where status = 'ok' and dataset = '{DATASET}' and mode = 'training' and dtype in ('fp32', 'fp16')"
    )
    case = ["device", "model", "dtype", "batch", "input_shape"]
    steps = rows.groupby([*case, "devices"], dropna=False)["latency_ms"].median().unstack("devices")
    if steps.empty or 1 not in steps or len(steps.columns) < 2:
        raise ForerunError(f"the store has no steps on several GPUs: forerun data import {DATASET} FOLDER")
    alone = steps[1].rename("alone_ms")
    several = steps.drop(columns=1).stack().dropna().rename("step_ms").reset_index()
    several = several.merge(alone.dropna().reset_index(), on=case)
    about = pd.DataFrame(
        [_about(*key) for key in several[["model", "dtype", "batch", "input_shape"]].drop_duplicates().to_numpy()]
    )
    several = several.merge(about, on=["model", "dtype", "batch", "input_shape"])
    rate = [link(load_device(d), n).rate_gbs(n) for d, n in zip(several["device"], several["devices"], strict=True)]
    return several.assign(gbs=rate)


def _about(model: str, dtype: str, batch: int, input_shape: str) -> dict[str, object]:
    shape = tuple(json.loads(input_shape)) if isinstance(input_shape, str) else None
    work = Workload(model, int(batch), dtype, "training", shape)
    answer = predict_workload(work, load_device("h200"), host="reference", measured=False)
    assert answer.host_ms is not None
    name = {"model": model, "dtype": dtype, "batch": batch, "input_shape": input_shape}
    return {**name, "host_ms": answer.host_ms.value, "weights_mb": gradient_mb(answer.parameters, dtype)}


def _values(law: OneProcess, rows: pd.DataFrame) -> np.ndarray:
    given = (rows[name].to_numpy(dtype=float) for name in ("alone_ms", "host_ms", "weights_mb", "gbs", "devices"))
    return np.asarray(law.step_ms(*given))


def fitted(rows: pd.DataFrame, errors: tuple[float, float] = (1.0, 1.0)) -> OneProcess:
    """Both constants, fitted to logarithms; every GPU type weighs the same."""
    from scipy.optimize import least_squares

    logs = np.log(rows["step_ms"].to_numpy(dtype=float))
    weight = 1 / np.sqrt(rows.groupby("device")["step_ms"].transform("size").to_numpy(dtype=float))

    def misses(x: np.ndarray) -> np.ndarray:
        tried = OneProcess(float(np.exp(x[0])), float(np.exp(x[1])), errors)
        return np.asarray((np.log(_values(tried, rows)) - logs) * weight)

    python, copies = np.exp(least_squares(misses, [0.0, 0.0], loss="soft_l1", f_scale=0.1).x)
    return OneProcess(float(python), float(copies), errors)


def held_out(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with predictions by constants fitted without the row's GPU type, and by one ratio for each count."""
    parts = []
    for device in rows["device"].unique():
        rest, own = rows[rows["device"] != device], rows[rows["device"] == device]
        ratio = np.log(rest["step_ms"] / rest["alone_ms"]).groupby(rest["devices"]).mean()
        simple = own["alone_ms"] * np.exp(own["devices"].map(ratio))
        parts.append(own.assign(law=_values(fitted(rest), own), one_ratio=simple))
    judged = pd.concat(parts, ignore_index=True)
    return judged.assign(log_ratio=np.log(judged["step_ms"] / judged["law"]))


def law(rows: pd.DataFrame) -> OneProcess:
    """The law of all rows, with the interval of what was held out."""
    low, high = np.exp(held_out(rows)["log_ratio"].quantile([0.05, 0.95]))
    return fitted(rows, (float(low), float(high)))


def section(rows: pd.DataFrame) -> Section:
    """The table: by GPU type and number, each type held out."""
    judged = held_out(rows)
    ends = {
        d: judged.loc[judged["device"] != d, "log_ratio"].quantile([0.05, 0.95]).to_numpy()
        for d in judged["device"].unique()
    }
    inside = [ends[d][0] <= miss <= ends[d][1] for d, miss in zip(judged["device"], judged["log_ratio"], strict=True)]
    judged = judged.assign(
        inside=inside, efficiency=judged["alone_ms"] / judged["step_ms"], said=judged["alone_ms"] / judged["law"]
    )
    lines = []
    for (device, count), one in [*judged.groupby(["device", "devices"]), (("all", "2 to 4"), judged)]:

        def off(name: str, one: pd.DataFrame = one) -> float:
            return float((one[name] / one["step_ms"] - 1).abs().mean())

        lines.append({
            "GPU": device, "GPUs": str(count), "n": len(one), "efficiency measured": f"{one['efficiency'].mean():.0%}",
            "predicted": f"{one['said'].mean():.0%}", "mape": off("law"), "one ratio": off("one_ratio"),
            "ideal": off("alone_ms"), "interval_coverage": float(one["inside"].mean()),
        })  # fmt: skip
    return Section(
        "scaling", "Training on 2 to 4 GPUs with DataParallel, each GPU type held out", pd.DataFrame(lines),
        f"Steps of torchvision's image classifiers with DataParallel as {DATASET} publishes them, each GPU with a "
        "batch of its own, given the measured step on one GPU. `efficiency` is the throughput over that of as many "
        "independent GPUs, the mean over the models; `one ratio` is the mean slowdown for that number of GPUs, `ideal` "
        "the step on one.",
    )  # fmt: skip
