"""No answer breaks a bound of physics, whatever the predictor, device, mode, dtype and batch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import forerun
from forerun.advice.cost import choose_instance
from forerun.api.predict import predict_workload
from forerun.api.questions import problem, profiled
from forerun.device import Device, all_devices, load_device
from forerun.errors import ForerunError
from forerun.frontends import load_graphs
from forerun.graph.ir import Graph
from forerun.graph.memory import peak_allocated_mb
from forerun.graph.profile import Profile
from forerun.landscape.estimate import estimate
from forerun.landscape.estimate import question as training
from forerun.landscape.plans import peak_flops
from forerun.prediction import Estimate, Prediction
from forerun.predictors.base import Predictor, Times
from forerun.predictors.baselines.roofline import RooflinePredictor
from forerun.predictors.laws.energy import back_to_back_ms
from forerun.predictors.laws.specs import roofline_ms, spec_problem
from forerun.predictors.registry import load_predictor, predictors
from forerun.runtimes.registry import runtime
from forerun.workload import Workload

CNN = "cnn:depth=4,filters=16,classes=10"
#: Small to capture, and of every mode and dtype; each is captured once and asked at many batch sizes.
MODELS: list[tuple[str, dict[str, Any]]] = [
    (CNN, {}),
    (CNN, {"dtype": "tf32"}),
    (CNN, {"dtype": "fp16"}),
    (CNN, {"dtype": "fp32-ieee", "channels_last": True}),
    (CNN, {"mode": "training", "optimizer": "adam"}),
    (CNN, {"mode": "training", "amp": "bf16"}),
    ("resnet18", {"dtype": "bf16"}),
    ("resnet18", {"mode": "training", "optimizer": "momentum"}),
    ("gpt2", {"mode": "prefill", "seq_len": 128, "dtype": "fp16"}),
    ("gpt2", {"mode": "prefill", "seq_len": 128, "dtype": "int8"}),
    ("gpt2", {"mode": "decode", "seq_len": 512, "dtype": "bf16"}),
    ("gpt2", {"mode": "decode", "seq_len": 512, "dtype": "fp8"}),
    ("gpt2", {"mode": "decode", "seq_len": 1000, "dtype": "int4"}),
    ("gpt2", {"mode": "training", "seq_len": 64, "optimizer": "adamw"}),
]
BATCHES = (1, 2, 3, 8, 32, 128, 1024, 4096, 65536)
RUNTIMES = ("eager", "cudagraph", "compile", "compile-reduce-overhead", "onnxruntime")
#: Every device of the catalogue that has a datasheet to predict from, and slices of two.
DEVICES = [*(d.id for d in all_devices() if spec_problem(d) is None), "h200/1g.18gb", "a100-sxm4-80gb/3g.40gb"]
#: Sums in another order.
ROUNDED = 1 + 1e-6


@functools.cache
def scalable(place: int) -> Graph:
    """The graph of a model that serves any batch."""
    model, how = MODELS[place]
    found = load_graphs(Workload(model, batch=2, **how))[1]
    assert found is not None
    return found


@functools.cache
def workload(place: int, batch: int, runtime: str = "eager") -> Workload:
    """A captured model at a batch size, and at no other: the search for its largest batch takes most of an answer."""
    fixed = dataclasses.replace(scalable(place).at(batch), scalable=False)
    return Workload(fixed, batch=batch, runtime=runtime, **{"dtype": "fp32", **MODELS[place][1]})


@functools.cache
def fitted(name: str) -> Predictor:
    return load_predictor(name)


@functools.cache
def known_to(name: str) -> list[str]:
    """The devices that a predictor answers for: some know those alone that they were fitted to."""
    asked = [Workload(model, **how) for model, how in MODELS]
    return [d for d in DEVICES if any(problem(w, load_device(d), fitted(name)) is None for w in asked)]


@pytest.fixture(scope="module", autouse=True)
def _captured() -> None:
    """Captured before the first example, which is not to wait for it."""
    for place in range(len(MODELS)):
        scalable(place)


def held_as_interval(e: Estimate) -> bool:
    return 0 < e.low <= e.value * ROUNDED and e.value <= e.high * ROUNDED and np.isfinite(e.high)


def broken(found: Prediction, work: Workload, device: Device) -> list[str]:
    """Every bound that an answer breaks, as words; what the test checks it computes itself."""
    asked = profiled(work)
    least = float(roofline_ms(asked.columns, [device])[0, 0])
    arithmetic = float(roofline_ms(dataclasses.replace(asked.columns, bytes=0 * asked.columns.bytes), [device])[0, 0])
    least_low = arithmetic if device.kind in ("tpu", "asic") else least
    live = float(peak_allocated_mb(asked.graph, np.array([work.batch]))[0])
    weights = sum(s.bytes * s.repeat for s in asked.graph.storages if s.role == "parameter") / 2**20
    out = []
    named = {
        name: e
        for name in ("latency_ms", "device_ms", "energy_j", "power_w", "memory_mb", "memory_allocated_mb")
        if (e := getattr(found, name)) is not None
    }
    out += [f"interval of {name}" for name, e in named.items() if not held_as_interval(e)]
    for name in ("latency_ms", "device_ms"):
        if name in named and (named[name].value * ROUNDED < least or named[name].low * ROUNDED < least_low):
            out.append(f"{name} below the roofline")
    limit = device.tdp_w or np.inf
    latency, energy, power, busy = (getattr(found, n) for n in ("latency_ms", "energy_j", "power_w", "device_ms"))
    if power is not None and max(power.value, power.high) > limit * ROUNDED:
        out.append(f"{power.high:.0f} W of {limit:.0f}")
    if energy is not None:
        if energy.value > limit * latency.value / 1e3 * ROUNDED or energy.high > limit * latency.high / 1e3 * ROUNDED:
            out.append("energy above the power limit over the whole call")
        if power is not None:
            in_loop = float(back_to_back_ms(latency.value, busy.value, [device], work.runtime)[0])
            if abs(energy.value - power.value * in_loop / 1e3) > 1e-6 * energy.value:
                out.append("energy is not power times time")
    pooled = runtime(work.runtime).pools  # PyTorch counts what outlasts a call alone
    for name, at_once in (("memory_mb", live), ("memory_allocated_mb", weights if pooled else live)):
        if named[name].value * ROUNDED < at_once or named[name].low * ROUNDED < weights:
            out.append(f"{name} below its tensors")
    if found.fit is not None and found.fit.fits and found.memory_mb.value > device.memory_mb * ROUNDED:  # type: ignore[operator, union-attr]
        out.append("it fits memory that the device does not have")
    if found.fit is not None and (found.fit.free_mb < 0) == found.fit.fits:
        out.append("what is free has the wrong sign")
    return out


#: Those that come fitted: gnn-llm needs a language model.
FITTED = sorted(name for name in predictors() if name != "gnn-llm")


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(FITTED), draw=st.data(), batch=st.sampled_from(BATCHES),
    runtime=st.sampled_from(RUNTIMES), confidence=st.sampled_from((0.5, 0.9, 0.99)),
)  # fmt: skip
def test_no_answer_breaks_a_bound_of_physics(
    name: str, draw: st.DataObject, batch: int, runtime: str, confidence: float
) -> None:
    predictor = fitted(name)
    modes = [how.get("mode", "inference") for _, how in MODELS]
    place = draw.draw(st.sampled_from([i for i, mode in enumerate(modes) if mode in predictor.modes]))
    device = load_device(draw.draw(st.sampled_from(known_to(name))))
    assume(scalable(place).serves(batch))
    try:
        work = workload(place, batch, runtime if "runtime" in predictor.supports else "eager")
        assume(problem(work, device, predictor) is None)
        found = predict_workload(work, device, predictor=predictor, measured=False, confidence=confidence)
    except ForerunError:  # refused, such as training by onnxruntime, or gpt2 by a predictor that goes by convolutions
        assume(False)
    assert not broken(found, work, device)


class Impossible(RooflinePredictor):
    """Twice as fast as the peaks allow, with ten times the power limit, in a megabyte."""

    name = "impossible"

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        found = super().times(profile, devices, workload)
        half, one = found.roofline_ms / 2, np.ones_like(found.roofline_ms)
        watts = np.array([10 * (d.tdp_w or 100.0) for d in devices])
        return dataclasses.replace(
            found, latency_ms=half, device_ms=half, energy_j=half * watts / 1e3, memory_mb=one, memory_allocated_mb=one
        )


def test_what_a_predictor_of_others_says_is_held_too_and_the_answer_says_so() -> None:
    work, device = workload(5, 128), load_device("h200")
    found = predict_workload(work, device, predictor=Impossible(), measured=False)
    assert not broken(found, work, device)
    held = [note for note in found.notes if "impossible predicted beyond it" in note]
    assert [note.partition(" is held")[0] for note in held] == [
        "latency", "device time", "energy", "memory", "memory of tensors",
    ]  # fmt: skip
    plain = predict_workload(work, device, predictor="roofline", measured=False)
    assert not [note for note in plain.notes if "predicted beyond" in note]


@pytest.mark.parametrize("predictor", [*FITTED, Impossible()], ids=lambda p: getattr(p, "name", p))
def test_tables_keep_the_same_bounds_as_single_answers(predictor: str | Predictor) -> None:
    for place, batch in ((2, 4096), (6, 1024), (11, 128)):
        work = workload(place, batch)
        try:
            table = forerun.predict_many([work], DEVICES, predictor=predictor)
        except ForerunError:
            continue
        asked = profiled(work)
        able = table[table["error"].isna() & table["latency_ms"].notna()] if "latency_ms" in table else table[:0]
        devices = [load_device(name) for name in able["device"]]
        if not devices:
            continue
        least = roofline_ms(asked.columns, devices)[0]
        live = float(peak_allocated_mb(asked.graph, np.array([work.batch]))[0])
        limit = np.array([d.tdp_w or np.inf for d in devices])
        compiled = np.array([d.kind in ("tpu", "asic") for d in devices])
        assert (able["latency_ms"] * ROUNDED >= least).all()
        assert (able["latency_low_ms"] * ROUNDED >= np.where(compiled, 0, least)).all()
        assert not (able["device_ms"] * ROUNDED < least).any()
        assert not (able["energy_j"] > limit * able["latency_ms"] / 1e3 * ROUNDED).any()
        assert not (able["energy_high_j"] > limit * able["latency_high_ms"] / 1e3 * ROUNDED).any()
        assert not (able["power_high_w"] > limit * ROUNDED).any()
        assert (able["memory_mb"] * ROUNDED >= live).all()
        for row, device in zip(able.to_dict("records"), devices, strict=True):
            assert row["fits"] is not True or row["memory_mb"] <= device.memory_mb  # type: ignore[operator]


def test_populations_keep_the_bounds_too() -> None:
    found = forerun.predict_population(
        "cnn:depth={depth},filters={filters},classes=10", {"depth": [2, 3, 4], "filters": [16, 24, 32]}, "h200",
        batch=64, predictor=Impossible(),
    )  # fmt: skip
    plain = forerun.predict_population(
        "cnn:depth={depth},filters={filters},classes=10", {"depth": [2, 3, 4], "filters": [16, 24, 32]}, "h200",
        batch=64, predictor="one-ratio",
    )  # fmt: skip
    least = forerun.predict("cnn:depth=2,filters=16,classes=10", "h200", batch=64, predictor=Impossible())
    assert found["latency_ms"][0] == pytest.approx(least.latency_ms.value)
    assert (found["latency_ms"] <= plain["latency_ms"]).all()
    assert (found["latency_low_ms"] * ROUNDED >= found["latency_ms"]).all()  # at the roofline, nothing is lower
    assert (found["energy_j"] <= 700 * found["latency_ms"] / 1e3 * ROUNDED).all()


class Hungry(RooflinePredictor):
    """Says of every call that it needs 30,000 MB."""

    name = "hungry"

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        found = super().times(profile, devices, workload)
        return dataclasses.replace(found, memory_mb=np.full_like(found.latency_ms, 30_000.0))


def test_a_predictors_own_memory_decides_whether_it_fits() -> None:
    asked = {"model": CNN, "batch": 8}
    found = forerun.predict(asked["model"], "t4", batch=8, predictor=Hungry())
    assert found.memory_mb is not None and found.memory_mb.value == pytest.approx(30_000)
    assert found.fit is not None and not found.fit.fits and found.fit.free_mb < 0
    assert "does not fit: " in found.fit_sentence() and "to spare" not in found.fit_sentence()
    table = forerun.predict_many([asked], ["t4", "h200"], predictor=Hungry())
    assert table["fits"].tolist() == [False, True]
    assert found.check is None  # what does not fit cannot be measured there


@pytest.mark.parametrize("hardware", ["h100-sxm", "a100-sxm4-80gb", "t4", "tpu-v5e"])
@pytest.mark.parametrize("count", [None, 1, 64, 4096])
@pytest.mark.parametrize(("parameters", "tokens"), [(70e9, 15e12), (400e9, 15e12), (1e6, 1e6), (1e9, 3e12)])
def test_no_training_is_faster_than_the_whole_peak(
    hardware: str, count: int | None, parameters: float, tokens: float
) -> None:
    asked = training(hardware, parameters=parameters, tokens=tokens, count=count, when=date(2026, 11, 1))
    found = estimate(asked)
    chip_hours = 6 * parameters * tokens / peak_flops(asked.device) / 3600  # type: ignore[operator]
    if count is not None:
        least = chip_hours / count
        times = {name: e for name, e in found.time.items() if e is not None}
        assert {"physics", "learned", "joined"} == set(times)
        for e in times.values():
            assert least <= e.low * ROUNDED and e.low <= e.value <= e.high
        time, power = times["joined"], found.power["joined"]
        assert power is not None and found.energy_kwh is not None
        assert found.energy_kwh.value == pytest.approx(time.value * power.value / 1e3)
        assert found.energy_kwh.low * ROUNDED >= least * power.low / 1e3
        held = [note for note in found.notes if "the learned model gives less than the chips' peak allows" in note]
        assert bool(held) == (times["learned"].value <= least * ROUNDED)
    if found.rent_usd is not None:
        hourly = choose_instance(asked.device, None).usd_per_device_hour  # type: ignore[union-attr]
        assert chip_hours * hourly <= found.rent_usd.low * ROUNDED


def test_waiting_power_that_was_measured_decides_the_energy_of_a_small_call() -> None:
    joules = {}
    for watts in (5.0, 119.0, 200.0):
        mine = {"base": "h100-sxm", "id": "mine", "calibrated": {"static_w": watts}}
        for predictor in ("default", "roofline"):
            found = forerun.predict(CNN, mine, batch=8, predictor=predictor, host=1.0)
            joules[predictor, watts] = found.energy_j.value  # type: ignore[union-attr]
            assert found.power_w is not None and found.power_w.value >= watts
    for predictor in ("default", "roofline"):
        assert joules[predictor, 5.0] < 0.5 * joules[predictor, 119.0] < 0.5 * joules[predictor, 200.0]
    # 119 W of 700 is what the law was fitted with: the plain device answers the same
    plain = forerun.predict(CNN, "h100-sxm", batch=8, host=1.0).energy_j
    assert plain is not None and joules["default", 119.0] == pytest.approx(plain.value, rel=1e-6)


def test_what_does_not_fit_has_no_cost_and_says_why() -> None:
    found = forerun.predict("resnet18", "t4", batch=65536, mode="training", epochs=1, dataset_size=10**6)
    assert found.fit is not None and not found.fit.fits
    assert found.cost_usd is None and found.cost_per_million_usd is None
    assert found.training is not None and found.training.cost_usd is None
    assert found.unknown["cost_per_million_usd"] == found.unknown["cost_usd"] == "the call does not fit t4"
    assert any(
        "time, throughput, energy and carbon are those of the same chip with enough memory" in n for n in found.notes
    )
    table = forerun.predict_many(
        [{"model": "resnet18", "batch": b, "mode": "training"} for b in (8, 65536)], ["t4"]
    )  # fmt: skip
    assert table["fits"].tolist() == [True, False]
    assert table["cost_usd"].notna().tolist() == [True, False]
    assert "USD" not in str(found)
