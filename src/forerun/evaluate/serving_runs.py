"""Fits the law of transformers' continuous batching to measured runs, and judges it with one model held out at a time.

The law knows iterations of the other models, and of the model that is held out only our predictor's times of its decode
step and its config. Every run of it is replayed with these iterations and compared with what was measured: on a host
as fast as usual, which is all that is known without a probe, and on one as fast as its own probes say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forerun.api.predict import predict
from forerun.data import serving
from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate.generations import launch_us
from forerun.evaluate.results import Section
from forerun.evaluate.serving_replay import Replay
from forerun.measure.core.serving_metrics import Window
from forerun.predictors.laws.batching import BatchingLaw, Served

QUANTITIES = ("itl_ms", "ttft_ms", "output_tokens_per_s")
#: Columns of the table that are shares.
SHARE_COLUMNS = ("mape", "host probed", "median, host probed", "repeats differ by")
#: Columns of an iteration that the law asks for.
_LOAD = ("decode", "context", "prefill", "finished")
_GRID = (1, 8, 32, 64, 128, 256, 512, 1024, 2048)
_CACHED = 16  # tokens of the decode steps that are predicted: few, since attention is priced by the law
_PER_MODEL = 300  # iterations of a model that the law is fitted to
#: How strongly constants are held to where the fit begins, in logarithms.
_SHRINK = 0.02
#: What a replay knows of the host: nothing, or its probes.
_HOSTS = ("usual", "probed")
_KEPT = ("model", "arrivals", "rate", "concurrency", "prompt", "output", "repeat", "case_key")


@dataclass(frozen=True)
class Judged:
    """Held-out results: one line a run, with measured and predicted columns, and the law fitted to all models."""

    runs: pd.DataFrame
    iterations: dict[str, float]  # mean absolute error of an iteration's time by held-out model
    law: BatchingLaw

    @property
    def iteration_error(self) -> float:
        """Mean over models of the mean absolute relative error of an iteration's time."""
        return float(np.mean(list(self.iterations.values())))

    def errors(self) -> pd.DataFrame:
        """Absolute relative errors of replayed runs: mean, and median, by arrivals and of all, for each quantity."""
        lines = []
        for arrivals in (*sorted(self.runs["arrivals"].unique()), "all"):
            part = self.runs if arrivals == "all" else self.runs[self.runs["arrivals"] == arrivals]
            for name in QUANTITIES:
                usual, probed = (
                    (part[f"{kind}_{name}"].astype(float) / part[name] - 1).abs().dropna() for kind in _HOSTS
                )
                again = part.groupby("case_key")[name].agg(["min", "max", "size"])
                spread = (again["max"] / again["min"] - 1)[again["size"] > 1].mean()
                lines.append((arrivals, name, len(usual), usual.mean(), probed.mean(), probed.median(), spread))
        return pd.DataFrame(lines, columns=["arrivals", "quantity", "runs", *SHARE_COLUMNS])


def section(judged: Judged) -> Section:
    """The errors as a table of the scoreboard."""
    return Section(
        "serving_runs", "Serving runs, each model held out", judged.errors(),
        f"{len(judged.runs)} runs of {len(judged.iterations)} models with transformers' continuous batching, each "
        "replayed with its own requests. The law of an iteration is fitted to the other models; of the model itself it "
        "has our predictor's times of a decode step. An iteration is off by "
        f"{judged.iteration_error:.1%} on average on a host that was probed beside it.",
    )  # fmt: skip


def judge(store: Store, dataset: str = "", known: Mapping[str, Served] | None = None) -> Judged:
    """Holds out every model in turn. `known` are models whose times are predicted already."""
    runs = serving.rows(store, dataset)
    runs = runs[runs["attention"].fillna("").str.endswith("sdpa")]
    if runs["model"].nunique() < 2:
        raise ForerunError("the store has no serving runs of two models: forerun sweep sweeps/h200_serving_runs.yaml")
    served = {model: (known or {}).get(model) or served_of(part.iloc[0]) for model, part in runs.groupby("model")}
    runs = runs.assign(launches=_launches(runs))
    steps = {model: _iterations(part) for model, part in runs.groupby("model")}
    lines, by_model = [], {}
    for model, part in runs.groupby("model"):
        law = fit({name: steps[name] for name in steps if name != model}, served)
        by_model[model] = float(
            np.mean(np.abs(_predicted(law, served[model], steps[model]) / _whole(steps[model]) - 1))
        )
        lines += [_replayed(row, law, served[model]) for row in part.to_dict("records")]
    return Judged(pd.DataFrame(lines), by_model, fit(steps, served))


def _launches(runs: pd.DataFrame) -> np.ndarray:
    """How many times as long as usual a launch took around each run; 1 where none was timed."""
    launch = np.array([launch_us(row) for row in runs.to_dict("records")])
    usual = np.nanmedian(launch) if np.isfinite(launch).any() else 1.0
    return np.nan_to_num(launch / usual, nan=1.0)


def served_of(row: Any) -> Served:
    """The model of a run as the law knows it: its config, and our predictor's times of its decode step."""
    case = json.loads(row["case"])
    config, device = dict(case["config"]), load_device(row["device"])
    steps = [
        predict(config, device, mode="decode", batch=n, seq_len=_CACHED, dtype=row["dtype"], measured=False)
        for n in _GRID
    ]
    heads = int(config["num_attention_heads"])
    kinds = 2 if config.get("layer_types") or config["model_type"] == "gemma2" else 1
    assert steps[0].host_ms is not None
    return Served(
        host_ms=float(steps[0].host_ms.value),
        tokens=tuple(map(float, _GRID)),
        device_ms=tuple(float(step.device_ms.value) for step in steps if step.device_ms is not None),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        width=int(config.get("head_dim") or config["hidden_size"] // heads),
        masks=kinds,
        bandwidth_gbs=float(device.bandwidth_gbs or 0.0),
        tflops=float(device.peak("bf16") or 0.0),
    )


def fit(steps: Mapping[str, pd.DataFrame], served: Mapping[str, Served]) -> BatchingLaw:
    """The constants for which the logarithms of the parts' times are closest, every model with the same weight."""
    from scipy.optimize import least_squares

    start = BatchingLaw()
    origin = np.log(start.values())

    def residuals(logs: np.ndarray) -> np.ndarray:
        law = start.with_values(np.exp(logs))
        off = [part / np.sqrt(len(part)) for name in steps for part in _residuals(law, served[name], steps[name])]
        return np.concatenate([*off, _SHRINK * (logs - origin)])

    found = least_squares(residuals, origin, loss="soft_l1", f_scale=0.1, bounds=(origin - 8, origin + 8))
    return start.with_values(np.exp(found.x))


def _residuals(law: BatchingLaw, served: Served, steps: pd.DataFrame) -> list[np.ndarray]:
    decode, context, prefill, finished = (steps[name].to_numpy(float) for name in _LOAD)
    law = law.slowed(steps["launches"].to_numpy(float))
    step = law.step(served, decode + prefill, context + prefill)
    prepare = law.prepare(served, decode, context, prefill, finished)
    update = law.update(decode, finished)
    whole = steps["prepare_ms"] + steps["step_ms"] + steps["update_ms"]
    # Parts by their share of the whole, so that a part that is short may be further off.
    return [
        np.log(step / steps["step_ms"].to_numpy(float)),
        (prepare - steps["prepare_ms"].to_numpy(float)) / whole.to_numpy(float),
        (update - steps["update_ms"].to_numpy(float)) / whole.to_numpy(float),
    ]


def _iterations(runs: pd.DataFrame) -> pd.DataFrame:
    """Iterations of the runs of one model, some of them where there are many."""
    each = [serving.iterations(row).assign(launches=row["launches"]) for row in runs.to_dict("records")]
    steps = pd.concat(each, ignore_index=True)
    steps = steps[steps["step_ms"] > 0].dropna(subset=list(_LOAD))
    return steps.sample(min(len(steps), _PER_MODEL), random_state=0)


def _whole(steps: pd.DataFrame) -> np.ndarray:
    return (steps["prepare_ms"] + steps["step_ms"] + steps["update_ms"]).to_numpy(float)


def _predicted(law: BatchingLaw, served: Served, steps: pd.DataFrame) -> np.ndarray:
    slowed = law.slowed(steps["launches"].to_numpy(float))
    return slowed.latency_ms(served, *(steps[name].to_numpy(float) for name in _LOAD))


def _replayed(row: dict[str, Any], law: BatchingLaw, served: Served) -> dict[str, Any]:
    case, (_, window) = json.loads(row["case"]), serving.trace(row)
    out = {name: row[name] for name in (*_KEPT, *QUANTITIES)}
    for kind, host in zip(_HOSTS, (law, law.slowed(row["launches"])), strict=True):

        def iteration_ms(*load: int, host: BatchingLaw = host) -> float:
            return float(host.latency_ms(served, *(np.array([float(n)]) for n in load))[0])

        replay = Replay(case, int(case["config"]["vocab_size"]), iteration_ms, int(row["max_requests_per_batch"]))
        got = replay.until(Window(0.0, *window))
        out |= {f"{kind}_{name}": got[name] for name in QUANTITIES}
    return out
