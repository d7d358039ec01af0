"""Fits the law of pre-training steps to published runs on 8 to 1,024 GPUs, judged with a model or a GPU held out.

LLM Foundry trains MPT models with FSDP on A100 and H100; NVIDIA's tables of Megatron Bridge are tuned by the vendor.
The baselines know the same rows: one utilisation of the peak for each precision, and the peak itself.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import astuple, fields
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate.results import Section
from forerun.frontends import load_graph
from forerun.graph.language_model import LanguageModel, describe
from forerun.graph.layout import Layout
from forerun.predictors.laws.pretraining import Framework, Run, Work, fits, memory_mb, step, work
from forerun.workload import Workload

#: Data set -> the framework whose constants it gives.
SETS = {"llmfoundry_mfu": "llm-foundry", "nemo_megatron_perf": "megatron"}
#: Layers, width and heads of MPT models as LLM Foundry's configurations name them; 50,368 words.
_MPT = {
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20),
    "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56), "70b": (80, 8192, 64),
}  # fmt: skip
_WORDS = 50_368
#: Columns of the table that are shares.
SHARE_COLUMNS = ("mape", "one ratio", "roofline", "interval_coverage")
#: Constants of a framework beside its efficiencies: where the fit starts, and the least and most that makes sense.
_START = {
    "attention": (0.4, 0.2, 0.8), "experts": (0.7, 0.1, 1.0), "passes": (150.0, 20.0, 400.0),
    "logits": (5.0, 1.0, 20.0), "exposed": (0.6, 0.05, 1.0), "dispatch": (1.0, 0.3, 5.0),
}  # fmt: skip
_WORK = [f.name for f in fields(Work)]


def measured(store: Store) -> pd.DataFrame:
    """Steps of pre-training, a line each: what was run, its seconds, and the work that the constants multiply."""
    names = ", ".join(f"'{name}'" for name in SETS)
    rows = store.query(
        "select dataset, protocol, device, devices, model, parameters, dtype, amp, batch, seq_len, parallel, "
        f"throughput from models where dataset in ({names}) and throughput is not null"
    )
    if rows.empty:
        sets = " and ".join(f"forerun data import {name} FOLDER" for name in SETS)
        raise ForerunError(f"the store has no published pre-training: {sets}")
    rows = rows[rows["protocol"].isin(["llmfoundry_mfu", "nemo_megatron_perf/pre-training"])]
    lines = [line for row in rows.to_dict("records") if (line := _line(row)) is not None]
    return pd.DataFrame(lines)


def _line(row: dict[str, Any]) -> dict[str, Any] | None:
    """One published step; None where the model's configuration is not known, or the links of its machines."""
    parallel = json.loads(row["parallel"])
    ours = row["dataset"] == "llmfoundry_mfu"
    numbers = _mpt(row["model"].rpartition("-")[2], row["parameters"]) if ours else _known(row["model"])
    if numbers is None:
        return None
    run = _foundry(row, parallel) if ours else _megatron(row, parallel)
    device = load_device(row["device"])
    if run is None:
        return None
    try:
        done = work(numbers, device, run)
    except ForerunError:
        return None
    rate = row["throughput"] * (1 if ours else row["devices"])
    return {
        "framework": SETS[row["dataset"]], "device": device.id, "model": row["model"], "precision": run.precision,
        "devices": int(row["devices"]), "seconds": run.tokens / rate,
        "fits": fits(memory_mb(numbers, device, run), device),
        **dict(zip(_WORK, astuple(done), strict=True)),
    }  # fmt: skip


def _foundry(row: dict[str, Any], parallel: dict[str, Any]) -> Run | None:
    zero = {"full_shard": 3, "shard_grad_op": 2}.get(parallel["fsdp"], 0)
    precision = "fp8" if row["amp"] == "fp8" else "bf16"
    return Run(
        Layout(dp=int(row["devices"]), zero=zero), int(parallel["micro_batch"]), int(parallel["grad_accum"]),
        int(row["seq_len"]), precision, bool(parallel["checkpointing"]), pure=row["dtype"] == "bf16",
    )  # fmt: skip


def _megatron(row: dict[str, Any], parallel: dict[str, Any]) -> Run | None:
    def number(name: str) -> int:
        value = parallel.get(name)
        return int(value) if value else 1

    tp, pp, cp, ep = (number(name) for name in ("tp", "pp", "cp", "ep"))
    dp = int(row["devices"]) // (tp * pp * cp)
    micro_batches = int(row["batch"]) / (dp * number("micro_batch")) if dp else 0
    if micro_batches < 1 or micro_batches != int(micro_batches) or ep > dp * cp * tp:
        return None
    # Experts are divided among groups of their own, which need not be whole groups of tensor parallelism.
    ep = math.lcm(ep, tp) if ep > 1 and (tp * dp) % math.lcm(ep, tp) == 0 else 1
    layout = Layout(tp=tp, pp=pp, cp=cp, dp=dp, ep=ep, zero=3 if number("fsdp") > 1 else 1)
    return Run(
        layout, number("micro_batch"), int(micro_batches), int(row["seq_len"]), row["dtype"], False, number("vp")
    )


def _mpt(size: str, parameters: float) -> LanguageModel | None:
    if size not in _MPT:
        return None
    layers, width, heads = _MPT[size]
    # 12 width^2 weights in a layer; scores: width for queries times keys, and as much for values
    return LanguageModel(
        f"mpt-{size}", parameters, layers, width, 12 * layers * width**2, 0, 0, 0, 0, 2 * layers * width,
        2 * layers * width, heads, _WORDS,
    )  # fmt: skip


@functools.cache
def _known(model: str) -> LanguageModel | None:
    if model.startswith("nemo_megatron_perf/"):
        return None
    try:
        return describe(load_graph(Workload(model, dtype="bf16", seq_len=128, task="causal-lm")))
    except ForerunError:
        return None


def _seconds(rows: pd.DataFrame, by: Framework) -> np.ndarray:
    works = (Work(*values) for values in rows[_WORK].to_numpy(dtype=float).tolist())
    return np.array([step(one, p, by).seconds for one, p in zip(works, rows["precision"], strict=True)])


def fitted(rows: pd.DataFrame, errors: tuple[float, float] = (0.5, 2.0)) -> Framework:
    """The constants of one framework, fitted to logarithms; every model on every GPU weighs the same."""
    from scipy.optimize import least_squares

    precisions = sorted(rows["precision"].unique())
    weight = 1 / np.sqrt(rows.groupby(["device", "model"])["seconds"].transform("size").to_numpy(dtype=float))
    logs = np.log(rows["seconds"].to_numpy(dtype=float))

    def made(x: Any) -> Framework:
        of = dict(zip(precisions, np.exp(x[len(_START) :]).tolist(), strict=True))
        return Framework(of, **dict(zip(_START, np.exp(x[: len(_START)]).tolist(), strict=True)), errors=errors)

    def misses(x: np.ndarray) -> np.ndarray:
        return np.asarray((np.log(_seconds(rows, made(x))) - logs) * weight)

    every = [*_START.values(), *[(0.8, 0.2, 1.0)] * len(precisions)]
    start, low, high = (np.log([one[k] for one in every]) for k in range(3))
    return made(least_squares(misses, start, bounds=(low, high), loss="soft_l1", f_scale=0.1).x)


def held_out(rows: pd.DataFrame, part: str) -> pd.DataFrame:
    """The rows of one framework with predictions by constants fitted without the row's `part`, model or device."""
    ideal = rows["linear"] + rows["experts"] + rows["attention"]
    rows = rows.assign(roofline=ideal * rows["rounds"] * (1 - rows["bubble"]))
    parts = []
    for name in rows[part].unique():
        rest, own = rows[rows[part] != name], rows[rows[part] == name]
        own = own[own["precision"].isin(set(rest["precision"]))]
        if own.empty:
            continue
        used = np.log(rest["seconds"] / rest["roofline"]).groupby(rest["precision"]).mean()
        simple = own["roofline"] * np.exp(own["precision"].map(used))
        parts.append(own.assign(law=_seconds(own, fitted(rest)), one_ratio=simple))
    judged = pd.concat(parts, ignore_index=True)
    return judged.assign(log_ratio=np.log(judged["seconds"] / judged["law"]))


def laws(rows: pd.DataFrame) -> dict[str, Framework]:
    """The constants of every framework, with the interval of what was held out."""
    found = {}
    for name, own in rows.groupby("framework"):
        misses = pd.concat([held_out(own, part)["log_ratio"] for part in ("model", "device")])
        low, high = np.exp(misses.quantile([0.05, 0.95]))
        found[str(name)] = fitted(own, (float(low), float(high)))
    return found


def section(rows: pd.DataFrame) -> Section:
    """The table: by framework and GPU, a model held out and a GPU held out."""
    lines = []
    for name, own in rows.groupby("framework"):
        for part in ("model", "device"):
            judged = held_out(own, part)
            ends = {
                one: judged.loc[judged[part] != one, "log_ratio"].quantile([0.05, 0.95]).to_numpy()
                for one in judged[part].unique()
            }
            inside = [
                ends[p][0] <= miss <= ends[p][1] for p, miss in zip(judged[part], judged["log_ratio"], strict=True)
            ]
            width = [float(np.exp(ends[p][1] - ends[p][0])) for p in judged[part]]
            judged = judged.assign(inside=inside, width=width)
            for device, one in [*judged.groupby("device"), ("all", judged)]:
                lines.append(_judged(str(name), part, str(device), one))
    ran = rows[rows["framework"] == "llm-foundry"]  # Megatron's tables do not say what is computed again
    said = float(ran["fits"].eq(True).mean())
    return Section(
        "pretraining", "Pre-training on 8 to 1,024 GPUs, a model or a GPU held out", pd.DataFrame(lines),
        f"Steps of pre-training as {' and '.join(SETS)} publish them, tokens per second and GPU. `one ratio` is one "
        "utilisation of the peak for each precision, `roofline` the peak itself; `width` is the upper end of the 90 % "
        f"interval over the lower. All {len(ran):,} runs of llm-foundry ran; the law of memory says of {said:.0%} that "
        "they fit with the usual margin.",
    )  # fmt: skip


def _judged(name: str, part: str, device: str, one: pd.DataFrame) -> dict[str, Any]:
    def off(column: str) -> float:
        return float((one["seconds"] / one[column] - 1).abs().mean())  # as it is of tokens per second

    return {
        "framework": name, "held out": "GPU" if part == "device" else "model", "GPU": device, "n": len(one),
        "mape": off("law"), "one ratio": off("one_ratio"), "roofline": off("roofline"),
        "interval_coverage": float(one["inside"].mean()), "width": f"{one['width'].median():.2f}",
    }  # fmt: skip
