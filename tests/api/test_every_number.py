"""Every number of recommend, optimise, budget and the report is what `forerun.predict` says of the same case.

Fifty answers are drawn by a seed over several models, modes, devices, numbers of GPUs and regions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import forerun
from forerun.advice import job as law
from forerun.advice.data_parallel import gradient_mb, scaled
from forerun.advice.mig import unused_w
from forerun.device import load_device
from forerun.device.cloud import load_instance
from forerun.device.mig import profiles
from forerun.prediction import Estimate, Prediction

SEED, DRAWN = 16, {"recommend": 16, "optimise": 12, "budget": 12, "report": 10}
#: Sums of single precision over other numbers of devices at once differ in the eighth digit.
SAME = 1e-7
CNN, UNET, GPT = "cnn:depth=3,filters=16", "unet:base=8,levels=2", "distilgpt2"
ENDS = ("value", "low", "high")
Pairs = Iterator[tuple[str, Any, Any]]  # what is compared, as it is answered, as it should be


def predicted(model: str, device: str, **settings: Any) -> Prediction:
    return forerun.predict(model, device, measured=False, **settings)


def together(p: Prediction, dtype: str, count: int, mode: str) -> tuple[Estimate, Estimate | None]:
    """Time and energy of a call on each of `count` devices; training steps wait for each other."""
    assert p.latency_ms is not None
    if mode != "training" or count == 1:
        return p.latency_ms, p.energy_j
    device = load_device(p.device)
    step = scaled(p.latency_ms, gradient_mb(p.parameters, dtype), device, count).step_ms
    return step, p.energy_j and law.with_waits(p.energy_j, p.latency_ms, step, device)


# --- recommend -----------------------------------------------------------------------------------------------------

ASKED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (CNN, {}, {"devices": ["t4", "l4", "a100-sxm4-40gb"], "batches": [1, 64], "dtypes": ["fp32", "fp16"]}),
    (CNN, {"mode": "training"}, {"devices": ["t4", "h100-sxm"], "gpus": [1, 4, 8], "batches": [16], "goal": "energy"}),
    (GPT, {"mode": "decode", "seq_len": 64}, {"devices": ["h200", "l4"], "dtypes": ["bf16"], "batches": [1, 8],
                                              "regions": ["eu"], "goal": "carbon"}),
    (UNET, {"amp": "fp16"}, {"devices": ["tpu-v5e", "rtx2080ti"], "batches": [2], "goal": "latency"}),
]  # fmt: skip


def choices() -> list[Any]:
    return [(model, settings, c) for model, settings, how in ASKED
            for c in forerun.recommend(model, **how, **settings).candidates]  # fmt: skip


def of_choice(drawn: Any) -> Pairs:
    model, settings, c = drawn
    whole, mode = "/" not in c.device, settings.get("mode", "inference")
    p = predicted(
        model, c.device, batch=c.batch, dtype=c.dtype, runtime=c.runtime, instance=c.instance if whole else None,
        region=c.grid if "/" in c.grid else None, **settings,
    )  # fmt: skip
    time, energy = together(p, c.dtype, c.count, mode)
    assert p.throughput and p.latency_ms
    items = round(p.throughput.value * p.latency_ms.value / 1e3)
    beside_w = 0.0 if whole else beside_a_slice_w(c.device)
    instance = None if c.instance is None else load_instance(c.instance)
    for end in ENDS:
        bad = {"value": "value", "low": "high", "high": "low"}[end]
        ms = getattr(time, end)
        yield "latency", getattr(c.latency_ms, end), ms
        yield "throughput", getattr(c.throughput, end), 1e3 * items * c.count / getattr(time, bad)
        yield "memory", getattr(c.memory_mb, end), getattr(p.memory_mb, end)
        if energy is not None and p.energy_j and p.carbon_g:
            joules = (getattr(energy, end) + beside_w * ms / 1e3) / items
            yield "energy", getattr(c.energy_j, end), joules
            yield "carbon", getattr(c.carbon_g, end), 1e6 * joules * p.carbon_g.value / p.energy_j.value
        if instance is not None:
            hourly = instance.usd_per_hour * c.instances * c.share
            yield "cost", getattr(c.usd_per_million, end), hourly / 3.6e6 * ms * 1e6 / (items * c.count)
            if whole and mode != "training" and p.cost_per_million_usd:
                yield "cost", getattr(c.usd_per_million, end), getattr(p.cost_per_million_usd, end)
    yield "basis", c.basis, p.basis


def beside_a_slice_w(name: str) -> float:
    whole = load_device(name.partition("/")[0])
    count = next(p.max_instances for p in profiles(whole) if f"{whole.id}/{p.name}" == name)
    return unused_w(whole, load_device(name), count)


# --- optimise ------------------------------------------------------------------------------------------------------


def changes() -> list[Any]:
    found = [
        forerun.optimise(CNN, "h200", batch=4, goal="throughput"),
        forerun.optimise(GPT, "l4", batch=2, mode="prefill", seq_len=60, dtype="bf16", goal="energy", region="DEU"),
        forerun.optimise(UNET, "a100-sxm4-40gb", batch=2, mode="training", goal="memory"),
    ]
    return [(o, line) for o in found for line in o.lines if not line.case.graph_changes]


def of_change(drawn: Any) -> Pairs:
    found, line = drawn
    settings = {name: value for name, value in vars(line.case.workload).items() if name not in ("model", "published")}
    region = found.now.workload["region"]
    p = predicted(line.case.workload.model, line.case.device.id, region=region, **settings)
    now = predicted(device=found.now.device, **found.now.workload)
    assert line.code
    yield "everything", line.after.to_dict(), p.to_dict()
    yield "now", found.now.to_dict(), now.to_dict()
    if found.goal == "throughput" and line.shared_by == 1 and p.throughput and now.throughput:
        yield "gain", line.gain.value, p.throughput.value / now.throughput.value
    if p.memory_mb and now.memory_mb:
        yield "memory", line.memory_change_mb, line.shared_by * p.memory_mb.value - now.memory_mb.value


# --- budget --------------------------------------------------------------------------------------------------------

JOBS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (CNN, {"batch": 32}, {"device": ["t4", "l4", "mi300x"], "epochs": 2, "dataset_size": 1000, "region": "FRA"}),
    (CNN, {"batch": 8, "optimizer": "adamw"}, {"device": ["t4", "h100-sxm"], "steps": 50, "gpus": 4}),
    (UNET, {"batch": 4, "amp": "fp16"}, {"device": "h200", "epochs": 1, "dataset_size": 100, "max_hours": 1.0}),
    (GPT, {"batch": 2, "mode": "inference", "seq_len": 32}, {"device": ["l4", "a100"], "dataset_size": 64}),
]  # fmt: skip


def jobs() -> list[Any]:
    return [(model, settings, how, row) for model, settings, how in JOBS
            for found in [forerun.budget(model, **how, **settings)]
            for row in (*found.rows, *found.batches, *found.counts)]  # fmt: skip


def of_job(drawn: Any) -> Pairs:
    model, settings, how, row = drawn
    mode = settings.get("mode", "training")
    asked = {"mode": mode, **settings, "batch": row.batch, "region": how.get("region")}
    p = predicted(model, row.device, **asked)
    step, energy = together(p, "fp32", row.devices, mode)
    samples = how.get("dataset_size", 0)
    steps = how.get("steps") or how.get("epochs", 1) * -(-samples // (row.batch * row.devices))
    yield "steps", row.steps, steps
    for end in ENDS:
        ms = getattr(step, end)
        yield "step", getattr(row.step_ms, end), ms
        yield "hours", getattr(row.hours, end), steps * ms / 3.6e6
        yield "memory", getattr(row.memory_mb, end), getattr(p.memory_mb, end)
        if row.cost_usd and p.cost_usd and p.latency_ms:
            per_ms = p.cost_usd.value / p.latency_ms.value
            yield "cost", getattr(row.cost_usd, end), steps * row.devices * ms * per_ms
        if row.energy_kwh and energy and p.carbon_g and p.energy_j:
            joules = steps * row.devices * getattr(energy, end)
            yield "energy", getattr(row.energy_kwh, end), joules / 3.6e6
            yield "carbon", getattr(row.carbon_kg, end), joules * p.carbon_g.value / p.energy_j.value / 1e3
    yield "basis", row.basis, p.basis


# --- report --------------------------------------------------------------------------------------------------------


def report_rows() -> list[Any]:
    levels = forerun.make_report(UNET, ["v100-16gb", "h200"], batch=4, dataset_size=1000, epochs=3).data["levels"]
    rows = [(mode, row) for mode in ("inference", "training") for row in levels[mode]["rows"]]
    return rows + [("cloud", offer) for offer in levels["cloud"]["inference"]]


def of_report(drawn: Any) -> Pairs:
    level, row = drawn
    asked = {"dtype": row["dtype"], "amp": row["amp"], "batch": row.get("batch", 4)}
    if level == "cloud":
        p = predicted(UNET, row["device"], instance=row["instance"], **asked)
        for end in ENDS:
            yield "cost", row["cost_usd"][end], getattr(p.cost_per_million_usd, end)
        return
    p = predicted(UNET, row["device"], mode=level, optimizer="adamw" if level == "training" else None, **asked)
    for name in ("latency_ms", "throughput", "memory_mb", "energy_j", "power_w"):
        for end in ENDS:
            yield name, row[name][end], getattr(getattr(p, name), end)
    assert p.device_ms and p.fit
    yield "device_ms", row["device_ms"], p.device_ms.value
    yield "fits", (row["bound"], row["fits"]), (p.bound, p.fit.fits)


# -------------------------------------------------------------------------------------------------------------------

DRAWS = {
    "recommend": (choices, of_choice), "optimise": (changes, of_change), "budget": (jobs, of_job),
    "report": (report_rows, of_report),
}  # fmt: skip
#: What must have been compared at least once.
EACH = {
    "recommend": {"latency", "throughput", "memory", "energy", "carbon", "cost", "basis"},
    "optimise": {"everything", "now", "gain", "memory"},
    "budget": {"steps", "step", "hours", "memory", "cost", "energy", "carbon", "basis"},
    "report": {"cost", "latency_ms", "throughput", "memory_mb", "energy_j", "power_w", "device_ms", "fits"},
}


@pytest.mark.parametrize("decision", DRAWS)
def test_every_number_is_that_of_predict(decision: str) -> None:
    answers, pairs = DRAWS[decision]
    found = answers()
    compared: Counter[str] = Counter()
    for drawn in random.Random(SEED).sample(found, DRAWN[decision]):
        for name, answered, expected in pairs(drawn):
            compared[name] += 1
            same = answered == expected if isinstance(expected, (str, tuple, dict)) else None
            assert same or answered == pytest.approx(expected, rel=SAME), (name, drawn)
    assert sum(DRAWN.values()) == 50 and compared.total() >= 3 * DRAWN[decision]
    assert set(compared) == EACH[decision]  # a number that no answer has any more is not passed over
