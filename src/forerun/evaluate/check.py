"""The suite that every predictor passes, public so that another's predictor can be held against it too."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from forerun.device import Device, load_device
from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.profile import profile
from forerun.graph.sources import load_graph, load_graphs
from forerun.predictors.base import Predictor, Times
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
GROWTH = (1, 2, 4, 8, 16, 32, 64, 128)
#: A longer batch may use the chip better, but never so much better that it takes less time than a shorter one.
FALL = 0.95


class PredictorFault(AssertionError):
    """What a predictor got wrong, in one sentence."""


def check_predictor(make: Callable[[], Predictor]) -> list[str]:
    """Runs every check on predictors that `make` gives; returns their names, or raises PredictorFault."""
    done = []
    for check in (_deterministic, _not_faster_than_light, _intervals, _grows_with_batch, _unseen_op, _saved):
        check(make)
        done.append(check.__name__.strip("_"))
    return done


def _answers(teller: Predictor, work: Workload, devices: list[Device]) -> Times:
    return teller.times(profile(load_graph(work), work.dtype), devices, work)


def _each(make: Callable[[], Predictor]) -> Any:
    devices = [load_device(name) for name in DEVICES]
    for work in CASES:
        able = [d for d in devices if d.supports(work.dtype) is not False]
        yield work, able, _answers(make(), work, able)


def _deterministic(make: Callable[[], Predictor]) -> None:
    for work, devices, first in _each(make):
        again = _answers(make(), work, devices)
        for field in dataclasses.fields(Times):
            a, b = getattr(first, field.name), getattr(again, field.name)
            if isinstance(a, np.ndarray) and not np.array_equal(a, b, equal_nan=True):
                raise PredictorFault(f"{field.name} of {work.model} is not the same the second time")


def _not_faster_than_light(make: Callable[[], Predictor]) -> None:
    for work, devices, times in _each(make):
        for d, device in enumerate(devices):
            if times.device_ms[0, d] < times.light_ms[0, d] * (1 - 1e-9):
                raise PredictorFault(f"{work.model} on {device.id} runs faster than its FLOPs and bytes allow")
            if times.latency_ms[0, d] < times.light_ms[0, d] * (1 - 1e-9):
                raise PredictorFault(f"the latency of {work.model} on {device.id} is below its roofline")


def _intervals(make: Callable[[], Predictor]) -> None:
    for work, _, times in _each(make):
        for name, spread in (("latency_ms", times.latency_spread), ("device_ms", times.device_spread)):
            if not ((spread[..., 0] > 0) & (spread[..., 0] <= 1) & (spread[..., 1] >= 1)).all():
                raise PredictorFault(f"the interval of {name} of {work.model} does not hold its own value")


def _grows_with_batch(make: Callable[[], Predictor]) -> None:
    from forerun.predictors.memory import estimate

    devices = [load_device(name) for name in DEVICES]
    for work in CASES:
        able = [d for d in devices if d.supports(work.dtype) is not False]
        scalable = load_graphs(work)[1]
        if scalable is None:
            continue
        sizes = np.array([b for b in GROWTH if scalable.serves(b)])
        times = make().times(profile(scalable, work.dtype, sizes), able, work)
        if (times.device_ms[1:] < FALL * times.device_ms[:-1]).any():
            raise PredictorFault(f"the device time of {work.model} falls when the batch grows")
        for device in able:
            memory = [estimate(scalable.at(int(b)), device) for b in sizes]
            # What is reserved may fall by a segment or two, where blocks happen to fit together better.
            for less, more in itertools.pairwise(memory):
                if more.allocated_mb < less.allocated_mb or more.needed_mb < 0.9 * less.needed_mb:
                    raise PredictorFault(f"the memory of {work.model} on {device.id} falls when the batch grows")


def _unseen_op(make: Callable[[], Predictor]) -> None:
    storages = [Storage(2**20, "activation"), Storage(2**20, "activation")]
    tensors = [Tensor((512, 512), "fp32", 0), Tensor((512, 512), "fp32", 1)]
    graph = Graph("strange", [Op("unknown", "acme::frobnicate", (0,), (1,))], tensors, storages, 0, 0)
    work = Workload(graph)
    device = load_device("h200")
    strange = make().times(profile(graph, "fp32"), [device], work)
    if not np.isfinite(strange.latency_ms).all():
        raise PredictorFault("an op that nobody knows gets no answer")
    known = _answers(make(), CASES[0], [device])
    width = strange.device_spread[0, 0, 1] / strange.device_spread[0, 0, 0]
    if width < known.device_spread[0, 0, 1] / known.device_spread[0, 0, 0]:
        raise PredictorFault("an op that nobody knows makes the interval narrower")


def _saved(make: Callable[[], Predictor]) -> None:
    first: Any = make()
    if not hasattr(first, "save"):
        return  # a predictor without weights has nothing to save
    with tempfile.TemporaryDirectory() as folder:
        first.save(Path(folder))
        again = type(first).load(Path(folder))
        for work, devices, times in _each(make):
            if not np.array_equal(times.latency_ms, _answers(again, work, devices).latency_ms):
                raise PredictorFault(f"saved and loaded, {work.model} gets another answer")
