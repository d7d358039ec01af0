"""The suite of checks that every predictor passes; public, so that predictors of other packages can run it too."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from forerun.api.questions import problem
from forerun.device import Device, load_device
from forerun.frontends import load_graph, load_graphs
from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.memory import peak_allocated_mb
from forerun.graph.profile import profile
from forerun.predictors.base import TARGETS, Predictor, Times
from forerun.predictors.laws.bounds import ROUNDING, most_j
from forerun.predictors.laws.specs import roofline_ms
from forerun.workload import Workload

#: Small to capture, and of every mode.
CASES = (
    Workload("cnn:depth=4,filters=16,classes=10", batch=8),
    Workload("cnn:depth=4,filters=16,classes=10", batch=32, mode="training", optimizer="adamw"),
    Workload("resnet18", batch=16, dtype="fp16"),
    Workload("gpt2", batch=2, dtype="bf16", mode="prefill", seq_len=64),
    Workload("gpt2", batch=2, dtype="bf16", mode="decode", seq_len=256),
)
DEVICES = ("h200", "a100-sxm4-80gb", "t4", "rtx4090", "mi300x")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
#: A larger batch may use the chip better, but not so much better that it takes less time than a smaller one.
LEAST_GROWTH = 0.95


class PredictorFault(AssertionError):
    """What a predictor got wrong, in one sentence."""


def check_predictor(make: Callable[[], Predictor]) -> list[str]:
    """Runs every check on predictors that `make` gives, fitted; returns their names, or raises PredictorFault.

    One predictor meets all checks, so that what a question leaves behind in it is found too; it is compared with a
    fresh one.
    """
    predictor, done = make(), []

    def deterministic(first: Predictor) -> None:
        _deterministic(first, make())

    for check in (
        _describes_itself, deterministic, _above_the_roofline, _below_the_power_limit, _holds_its_tensors, _intervals,
        _confidence, _grows_with_batch, _unseen_op, _refuses_settings, _saved,
    ):  # fmt: skip
        check(predictor)
        done.append(check.__name__.strip("_"))
    return done


def _times(predictor: Predictor, work: Workload, devices: list[Device]) -> Times:
    return predictor.times(profile(load_graph(work), work.dtype), devices, work)


def _each(predictor: Predictor) -> Iterator[tuple[Workload, list[Device], Times]]:
    devices = [load_device(name) for name in DEVICES]
    for work in CASES:
        able = [d for d in devices if problem(work, d, predictor) is None]
        if able:
            yield work, able, _times(predictor, work, able)


def _describes_itself(predictor: Predictor) -> None:
    if not isinstance(predictor, Predictor):
        raise PredictorFault(f"{type(predictor).__name__} is not a subclass of forerun's Predictor")
    unknown = set(predictor.targets) - set(TARGETS)
    if unknown or "latency_ms" not in predictor.targets:
        raise PredictorFault(f"targets must hold latency_ms and none but {', '.join(TARGETS)}")
    if not any(True for _ in _each(predictor)):
        raise PredictorFault(f"{predictor.name} predicts none of the cases of the suite")
    for work, _, times in _each(predictor):
        for target in predictor.targets:
            values = getattr(times, target)
            if values is not None and not np.isfinite(values).all():
                raise PredictorFault(f"{predictor.name} says that it predicts {target}, but not of {work.model}")


def _deterministic(predictor: Predictor, fresh: Predictor) -> None:
    for work, devices, first in _each(predictor):
        again = _times(fresh, work, devices)
        for field in dataclasses.fields(Times):
            a, b = getattr(first, field.name), getattr(again, field.name)
            if isinstance(a, np.ndarray) and not np.array_equal(a, b, equal_nan=True):
                raise PredictorFault(f"{field.name} of {work.model} is not the same the second time")


def _above_the_roofline(predictor: Predictor) -> None:
    for work, devices, times in _each(predictor):
        least = roofline_ms(profile(load_graph(work), work.dtype), devices)
        spreads = _spreads(predictor, work, devices, times)
        for d, device in enumerate(devices):
            if times.device_ms[0, d] < least[0, d] * (1 - ROUNDING):
                raise PredictorFault(f"{work.model} on {device.id} runs faster than its FLOPs and bytes allow")
            if times.latency_ms[0, d] < least[0, d] * (1 - ROUNDING):
                raise PredictorFault(f"the latency of {work.model} on {device.id} is below its roofline")
            for target, words in (("latency_ms", "latency"), ("device_ms", "device time")):
                if target not in spreads:
                    continue
                low = getattr(times, target)[0, d] * spreads[target][0, d, 0]
                if low < least[0, d] * (1 - ROUNDING):
                    raise PredictorFault(
                        f"the lower end of the {words} of {work.model} on {device.id} is below its roofline"
                    )


def _below_the_power_limit(predictor: Predictor) -> None:
    for work, devices, times in _each(predictor):
        most = most_j(times.latency_ms, times.device_ms, devices, work.runtime)
        for d, device in enumerate(devices):
            if times.energy_j[0, d] > most[0, d] * (1 + ROUNDING):
                watts = (device.tdp_w or 0.0) * times.energy_j[0, d] / most[0, d]
                raise PredictorFault(
                    f"{work.model} draws {watts:,.0f} W from {device.id}, whose power limit is {device.tdp_w:,.0f} W"
                )


def _holds_its_tensors(predictor: Predictor) -> None:
    """For predictors that predict memory themselves."""
    for work, devices, times in _each(predictor):
        graph = load_graph(work)
        live = float(peak_allocated_mb(graph, np.array([graph.batch]))[0])
        for memory_mb in (times.memory_mb, times.memory_allocated_mb):
            if memory_mb is not None and (memory_mb[0, : len(devices)] < live * (1 - ROUNDING)).any():
                raise PredictorFault(
                    f"{work.model} needs less memory than its tensors that live at once: {live:,.0f} MB"
                )


def _spreads(predictor: Predictor, work: Workload, devices: list[Device], times: Times) -> dict[str, np.ndarray]:
    columns = profile(load_graph(work), work.dtype)
    targets = [t for t in predictor.targets if not t.startswith("memory")]
    return {target: predictor.spread(target, times, columns, devices, work) for target in targets}


def _intervals(predictor: Predictor) -> None:
    for work, devices, times in _each(predictor):
        for name, spread in _spreads(predictor, work, devices, times).items():
            if not ((spread[..., 0] > 0) & (spread[..., 0] <= 1) & (spread[..., 1] >= 1)).all():
                raise PredictorFault(f"the interval of {name} of {work.model} does not hold its own value")


def _confidence(predictor: Predictor) -> None:
    """A higher confidence never narrows an interval."""
    if "confidence" not in predictor.supports:
        return
    work, devices, times = next(_each(predictor))
    narrow, wide = (
        _spreads(predictor.with_settings(confidence=c), work, devices, times)["latency_ms"] for c in (0.6, 0.95)
    )
    if not ((wide[..., 0] <= narrow[..., 0]) & (wide[..., 1] > narrow[..., 1])).all():
        raise PredictorFault("a higher confidence does not widen the interval of latency_ms")


def _grows_with_batch(predictor: Predictor) -> None:
    from forerun.predictors.laws.memory import estimate

    devices = [load_device(name) for name in DEVICES]
    for work in CASES:
        able = [d for d in devices if problem(work, d, predictor) is None]
        scalable = load_graphs(work)[1]
        if scalable is None or not able:
            continue
        sizes = np.array([b for b in BATCHES if scalable.serves(b)])
        times = predictor.times(profile(scalable, work.dtype, sizes), able, work)
        if (times.device_ms[1:] < LEAST_GROWTH * times.device_ms[:-1]).any():
            raise PredictorFault(f"the device time of {work.model} falls when the batch grows")
        for device in able:
            memory = [estimate(scalable.at(int(b)), device) for b in sizes]
            # What is reserved may fall by a segment or two, where blocks happen to fit together better.
            for less, more in itertools.pairwise(memory):
                if more.allocated_mb < less.allocated_mb or more.needed_mb < 0.9 * less.needed_mb:
                    raise PredictorFault(f"the memory of {work.model} on {device.id} falls when the batch grows")


def _unseen_op(predictor: Predictor) -> None:
    """An op of unknown kind gets a prediction, and it does not narrow a learned predictor's interval."""
    storages = [Storage(2**20, "activation"), Storage(2**20, "activation")]
    tensors = [Tensor((512, 512), "fp32", 0), Tensor((512, 512), "fp32", 1)]
    graph = Graph("unseen", [Op("unknown", "acme::frobnicate", (0,), (1,))], tensors, storages, 0, 0)
    work, device = Workload(graph), load_device("h200")
    if problem(CASES[0], device, predictor) is not None:
        return
    columns = profile(graph, "fp32")
    times = predictor.times(columns, [device], work)
    if not np.isfinite(times.latency_ms).all():
        raise PredictorFault("an op of unknown kind gets no prediction")
    unseen = predictor.spread("latency_ms", times, columns, [device], work)[0, 0]
    known_columns = profile(load_graph(CASES[0]), CASES[0].dtype)
    known_times = predictor.times(known_columns, [device], CASES[0])
    known = predictor.spread("latency_ms", known_times, known_columns, [device], CASES[0])[0, 0]
    if unseen[1] / unseen[0] < known[1] / known[0] * (1 - 1e-9):
        raise PredictorFault("an op of unknown kind makes the interval narrower")


def _refuses_settings(predictor: Predictor) -> None:
    """A setting that changes nothing must be refused, and one that is honoured must change something."""
    from forerun.errors import ForerunError

    small = Workload("cnn:depth=4,filters=16,classes=10", batch=1)
    device = load_device("h200")
    if problem(small, device, predictor) is not None:
        return
    try:
        slower = predictor.with_settings(host_slowness=10.0)
    except ForerunError:
        return
    first, second = (_times(p, small, [device]).latency_ms for p in (predictor, slower))
    if np.array_equal(first, second):
        raise PredictorFault(f"{predictor.name} takes a host ten times slower and predicts the same")


def _saved(predictor: Predictor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        predictor.save(Path(folder))
        again = type(predictor).load(Path(folder))
        for work, devices, times in _each(predictor):
            loaded = _times(again, work, devices)
            if not np.array_equal(times.latency_ms, loaded.latency_ms):
                raise PredictorFault(f"saved and loaded, {work.model} gets another prediction")
            pairs = (_spreads(p, work, devices, times) for p in (predictor, again))
            if not all(np.allclose(a, b, rtol=1e-4) for a, b in zip(*(p.values() for p in pairs), strict=True)):
                raise PredictorFault(f"saved and loaded, {work.model} gets another interval")
