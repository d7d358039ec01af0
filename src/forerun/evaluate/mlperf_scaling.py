"""How training speeds up from a submitter's smallest system to its larger ones, judged on MLPerf Training.

Given is the step on the smallest system of one submitter, benchmark, device and round. On a larger one

    step = (step of the smallest - its fixed - its exchange) x ratio + fixed + exchange

`fixed` does not shrink with the work: launches, the optimizer, waiting for each other. It is taken in proportion to the
cube root of the weights, as the number of layers is; the constant is fitted without the submitter, or without the
benchmark, for which those of the other benchmarks stand in.

Most benchmarks are data parallel: `ratio` is that of the samples of a device, `exchange` the all-reduce of gradients as
far as it does not hide behind the backward pass. Language models but BERT are taken as Megatron trains them: `ratio` is
that of two steps by the shipped law of pre-training, which knows no run of this set, exchange included. The logs do not
state how the work is divided: the accumulated microbatches, of one sequence each, give the devices of a replica; among
their layouts that fit, the one with the shortest step is assumed, as `plan training` does.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from forerun.advice.data_parallel import BUCKET_MB
from forerun.data.store import Store
from forerun.device import load_device
from forerun.device.device import Device
from forerun.errors import ForerunError
from forerun.evaluate.results import Section
from forerun.graph.language_model import LanguageModel
from forerun.graph.layout import Layout
from forerun.predictors.laws.collectives import collective
from forerun.predictors.laws.pretraining import Run, fits, framework, memory_mb, step, work

DATASET = "mlperf_training"
#: The error that was asked for, of the largest system.
TARGET = 0.20
#: Columns of the table that are shares.
SHARE_COLUMNS = ("mape", "one ratio", "linear", "interval_coverage", "target")
#: Benchmarks that are data parallel, with the millions of weights whose gradients are summed.
DATA_PARALLEL = {
    "bert": 336.0, "resnet": 25.6, "retinanet": 38.0, "maskrcnn": 44.4, "unet3d": 30.8, "rnnt": 49.1,
    "stable_diffusion": 865.0,
}  # fmt: skip
#: Language models: layers, width, heads, heads of keys, width of the feed-forward part, its matmuls, words, tokens.
_LANGUAGE = {
    "gpt3": (96, 12_288, 96, 96, 49_152, 2, 51_200, 2048),
    "llama2_70b_lora": (80, 8192, 64, 8, 28_672, 3, 32_000, 8192),
    "llama31_405b": (126, 16_384, 128, 8, 53_248, 3, 128_256, 8192),
    "llama31_8b": (32, 4096, 32, 8, 14_336, 3, 128_256, 8192),
}
_ADAPTERS = "llama2_70b_lora"  # only these are trained, so that the gradients of weights are not computed
#: Other names of a benchmark in older rounds.
_SAME = {"ssd": "retinanet"}
_PRECISION = "fp8"  # of language models: what the submissions that say so use
_PARTS = (1, 2, 4, 8)
#: The share of a step's compute that gradients can hide behind: the backward pass, as in advice/data_parallel.py.
_BACKWARD = 0.66
#: How much the fit draws a benchmark's fixed time to that of the others.
_LIKE_OTHERS = 0.1
_LEAST_COMPUTE = 0.2  # of the smallest system's step: bounds what a fit may call fixed
#: From how many times the devices a system counts as far from the smallest.
_FAR = 8
_SYSTEM = ["submitter", "benchmark", "device", "round"]


def measured(store: Store) -> pd.DataFrame:
    """Pairs of systems, a line each: the step on the smallest of a submitter and on a larger one."""
    rows = store.query(
        "select protocol, device, devices, host, batch, throughput, throughput_unit, extra from models "
        f"where status = 'ok' and dataset = '{DATASET}' and throughput > 0 and batch > 0 and devices > 0"
    )
    if rows.empty:
        raise ForerunError(f"the store has no runs of MLPerf Training: forerun data import {DATASET} FOLDER")
    notes = rows["extra"].map(json.loads)
    named = rows["protocol"].str.split("/", expand=True)
    rows = rows.assign(
        submitter=notes.map(lambda one: one.get("submitter")), benchmark=named[2].replace(_SAME), round=named[1],
        micro_batches=notes.map(lambda one: one.get("grad_accum")), step_ms=_step_ms(rows, named[2]),
    )  # fmt: skip
    plain = rows["benchmark"].isin(list(DATA_PARALLEL))
    rows["micro_batches"] = rows["micro_batches"].mask(plain, 1)  # only those of language models tell something
    rows = rows[plain | rows["benchmark"].isin(list(_LANGUAGE))]
    size = [*_SYSTEM, "devices", "batch", "micro_batches"]
    systems = rows.groupby([*size, "host"])["step_ms"].median().groupby(size).median().reset_index()
    lines = [line for _, own in systems.groupby(_SYSTEM) for line in _pairs(own)]
    if not lines:
        raise ForerunError("no submitter has systems of several sizes")
    return pd.DataFrame(lines)


def _step_ms(rows: pd.DataFrame, benchmark: pd.Series) -> pd.Series:
    """Milliseconds of a step, from the throughput in samples or tokens of all devices or of each."""
    samples = rows["throughput"].where(
        rows["throughput_unit"] != "samples/s/device", rows["throughput"] * rows["devices"]
    )
    tokens = benchmark.map({name: one[-1] for name, one in _LANGUAGE.items()})
    return 1e3 * rows["batch"].astype(float) / samples.where(rows["throughput_unit"] != "tokens/s", samples / tokens)


def _pairs(systems: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The smallest system with every larger one; none where a device, a link or a layout is not known."""
    systems = systems.astype({"devices": int, "batch": int, "micro_batches": int})
    rate = systems["batch"] / systems["step_ms"]
    smallest = systems[systems["devices"] == systems["devices"].min()]
    small = smallest.loc[rate[smallest.index].idxmax()].to_dict()
    for large in systems[systems["devices"] > small["devices"]].to_dict("records"):
        try:
            device = load_device(small["device"])
            told = _language(small, large, device) if small["benchmark"] in _LANGUAGE else _plain(small, large, device)
        except ForerunError:
            continue
        yield {
            **{name: small[name] for name in _SYSTEM}, **told,
            "small": small["devices"], "devices": large["devices"], "step_ms": large["step_ms"],
            "small_ms": small["step_ms"], "linear": small["step_ms"] * large["batch"] * small["devices"]
            / (small["batch"] * large["devices"]), "largest": large["devices"] == systems["devices"].max(),
            "samples": large["batch"],
        }  # fmt: skip


def _plain(small: dict[str, Any], large: dict[str, Any], device: Device) -> dict[str, float]:
    """Milliseconds that each of two systems takes to sum the gradients, in 16 bits."""
    size = DATA_PARALLEL[small["benchmark"]] * 2e6
    sums = [collective("all_reduce", size, device, one["devices"]).ms for one in (small, large)]
    ratio = large["batch"] * small["devices"] / (small["batch"] * large["devices"])
    return {"small_sum": sums[0], "sum": sums[1], "ratio": ratio, "millions": DATA_PARALLEL[small["benchmark"]]}


def _language(small: dict[str, Any], large: dict[str, Any], device: Device) -> dict[str, float]:
    """The step of the larger system over that of the smaller one by the law of pre-training."""
    first, second = (
        _seconds(one["benchmark"], device, one["devices"], one["batch"], one["micro_batches"]) for one in (small, large)
    )
    millions = _model(small["benchmark"]).parameters / 1e6
    return {"small_sum": 0.0, "sum": 0.0, "ratio": second / first, "millions": millions}


@functools.cache
def _seconds(benchmark: str, device: Device, devices: int, batch: int, micro_batches: int) -> float:
    replicas = batch / micro_batches
    group = devices / replicas
    if replicas != int(replicas) or group != int(group):
        raise ForerunError(f"{devices} devices do not hold {replicas:g} replicas")
    model, tokens = _model(benchmark), _LANGUAGE[benchmark][-1]
    found = []
    for tp, cp in itertools.product(_PARTS, _PARTS):
        pp = group / (tp * cp)
        if pp != int(pp) or pp > model.layers or (cp > 1 and tokens < 8192):
            continue
        run = Run(Layout(tp=tp, pp=int(pp), cp=cp, dp=int(replicas), zero=1), 1, micro_batches, tokens, _PRECISION)
        found.append((_fits(benchmark, model, device, run), _one(benchmark, model, device, run)))
    if not found:
        raise ForerunError(f"no layout divides {model.name} among {group:g} devices")
    # Where none fits by the law of memory, submitters found a way that it does not know: they ran.
    return min([seconds for fitting, seconds in found if fitting] or [seconds for _, seconds in found])


def _fits(benchmark: str, model: LanguageModel, device: Device, run: Run) -> bool | None:
    parts = memory_mb(model, device, run)
    if benchmark == _ADAPTERS:
        parts = {name: size for name, size in parts.items() if name not in ("gradients", "optimizer")}
    return fits(parts, device)


def _one(benchmark: str, model: LanguageModel, device: Device, run: Run) -> float:
    done = work(model, device, run)
    if benchmark == _ADAPTERS:
        done = replace(done, linear=done.linear * 2 / 3, gradients=0.0, optimizer=0.0)
    return step(done, run.precision, framework("megatron")).seconds


@functools.cache
def _model(benchmark: str) -> LanguageModel:
    layers, width, heads, key_heads, inner, matmuls, words, _ = _LANGUAGE[benchmark]
    keys = width * key_heads // heads
    linear = float(layers * (2 * width**2 + 2 * width * keys + matmuls * width * inner))
    return LanguageModel(
        benchmark, linear + 2 * words * width, layers, width, linear, 0, 0, 0, 0, 2.0 * layers * width,
        2.0 * layers * keys, heads, words, key_heads,
    )  # fmt: skip


def fixed_ms(rows: pd.DataFrame) -> dict[str, float]:
    """Milliseconds for each benchmark, for the cube root of a million weights; under "" those of a benchmark that is
    not among the rows. Layers, and with them launches, grow about as that root."""
    from scipy.optimize import least_squares

    names = sorted(rows["benchmark"].unique())
    index = rows["benchmark"].map(names.index).to_numpy()
    weight = 1 / np.sqrt(rows.groupby(_SYSTEM)["step_ms"].transform("size").to_numpy(dtype=float))
    logs = np.log(rows["step_ms"].to_numpy(dtype=float))

    def misses(x: np.ndarray) -> np.ndarray:
        law = predicted(rows, np.exp(x[0] + x[1:][index]))
        return np.concatenate([(np.log(law) - logs) * weight, _LIKE_OTHERS * x[1:]])

    found = least_squares(misses, np.zeros(len(names) + 1), loss="soft_l1", f_scale=0.1).x
    return {"": float(np.exp(found[0])), **dict(zip(names, np.exp(found[0] + found[1:]).tolist(), strict=True))}


def predicted(rows: pd.DataFrame, constants: Any) -> np.ndarray:
    """Milliseconds of the step on the larger system."""
    small, millions = (rows[name].to_numpy(dtype=float) for name in ("small_ms", "millions"))
    fixed = np.minimum(constants * np.cbrt(millions), (1 - _LEAST_COMPUTE) * small)
    last = np.minimum(BUCKET_MB * 2**20 / (2e6 * millions), 1)  # of the sum, which has nothing to hide behind

    def shown(sums: np.ndarray, compute: np.ndarray) -> np.ndarray:
        return np.maximum(sums - _BACKWARD * compute, last * sums)

    first, second = (rows[name].to_numpy(dtype=float) for name in ("small_sum", "sum"))
    compute = np.maximum(small - fixed - shown(first, small - fixed), _LEAST_COMPUTE * small)
    larger = compute * rows["ratio"].to_numpy(dtype=float)
    return np.asarray(larger + fixed + shown(second, larger))


def held_out(rows: pd.DataFrame, part: str) -> pd.DataFrame:
    """The pairs with predictions that know no row of the same `part`, submitter or benchmark."""
    if rows[part].nunique() < 2:
        raise ForerunError(f"there is only one {part} with systems of several sizes: nothing to fit to without it")
    growth = np.log(rows["devices"] / rows["small"])
    # of throughput: where it grows as the number of devices, this is 1
    exponent = 1 - np.log(rows["step_ms"] / rows["linear"]) / growth
    parts = []
    for name in rows[part].unique():
        rest, own = rows[part] != name, rows[rows[part] == name]
        constants = fixed_ms(rows[rest])
        law = predicted(own, own["benchmark"].map(lambda one, by=constants: by.get(one, by[""])).to_numpy())
        of_benchmark = exponent[rest].groupby(rows["benchmark"][rest]).median()
        power = own["benchmark"].map(of_benchmark).fillna(exponent[rest].median())
        parts.append(own.assign(law=law, one_ratio=own["linear"] * np.exp(growth[own.index] * (1 - power))))
    judged = pd.concat(parts).sort_index()
    # Errors grow with each doubling as those of independent steps do.
    judged["doublings"] = np.sqrt(np.log2(judged["devices"] / judged["small"]))
    judged["miss"] = np.log(judged["step_ms"] / judged["law"]) / judged["doublings"]
    ends = {one: judged.loc[judged[part] != one, "miss"].quantile([0.05, 0.95]) for one in judged[part].unique()}
    low, high = (judged[part].map({one: both.iloc[k] for one, both in ends.items()}) for k in range(2))
    inside, width = judged["miss"].between(low, high), np.exp((high - low) * judged["doublings"])
    return judged.assign(inside=inside, width=width)


def section(rows: pd.DataFrame) -> Section:
    """The table: the largest systems by benchmark, a submitter held out and a benchmark held out."""
    lines = []
    for part in ("submitter", "benchmark"):
        judged = held_out(rows, part)
        largest = judged[judged["largest"]]
        far = largest["devices"] >= _FAR * largest["small"]
        shown = [
            *((str(name), one) for name, one in largest.groupby("benchmark")),
            ("language models", largest[largest["benchmark"].isin(_LANGUAGE)]),
            (f"{_FAR} times the devices and more", largest[far]), ("all", largest), ("all, every size", judged),
        ]  # fmt: skip
        lines += [_judged(part, name, one) for name, one in shown if not one.empty]
    most = int((rows["devices"] / rows["small"]).max())
    return Section(
        "mlperf_scaling", "Training on many devices, from a submitter's smallest system to its largest",
        pd.DataFrame(lines),
        "Throughput of the largest system of a submitter, benchmark, device and round of MLPerf Training, given that "
        f"of the smallest: {int(rows['largest'].sum())} systems of up to {rows['devices'].max():,} devices and {most} "
        "times the smallest. `times` is that multiple, the median. `linear` is as many times the throughput, `one "
        "ratio` a power of the multiple, the median of what is not held out, of the same benchmark where there is any. "
        "`target` is the error that was asked for, `width` the upper end of the 90 % interval over the lower.",
    )  # fmt: skip


def _judged(part: str, name: str, one: pd.DataFrame) -> dict[str, Any]:
    def off(column: str) -> float:
        return float((one["step_ms"] / one[column] - 1).abs().mean())  # as it is of throughput

    return {
        "held out": part, "benchmark": name, "n": len(one), "times": f"{(one['devices'] / one['small']).median():.0f}",
        "mape": off("law"), "one ratio": off("one_ratio"), "linear": off("linear"), "target": TARGET,
        "interval_coverage": float(one["inside"].mean()), "width": f"{one['width'].median():.2f}",
    }  # fmt: skip
