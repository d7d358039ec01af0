"""A training step on several devices: data parallelism, as two modules of PyTorch do it. All formulas are here.

DistributedDataParallel has a process for each device, which computes the step of its own batch. Gradients are summed in
buckets, each as soon as the backward pass has filled it, so that all but the last bucket may overlap the rest of the
pass. How long one takes is in predictors/laws/collectives.py.

DataParallel has one process, whose threads share an interpreter: before every step it copies the module to each device,
and calls the copies from one Python.

    step on n = step on 1 + python x n x host time + copies x 2 (n - 1) / n x bytes of the weights / rate of the link
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.device import Device
from forerun.device.cloud import Instance
from forerun.device.links import link
from forerun.prediction import Estimate
from forerun.predictors.laws.collectives import SHARES, collective

#: The share of a step that the all-reduce can overlap, that of the backward pass (two thirds of the arithmetic),
#: between the worst and the best case: assumed.
HIDDEN_SHARE = (0.0, 0.5, 0.66)
#: The size of a bucket of gradients, PyTorch's default.
BUCKET_MB = 25.0
#: The share of a device's own throughput that it must add to be worth it: a convention.
WORTH_ADDING = 0.5
#: The constants of DataParallel, written by benchmarks/fit_collectives.py.
CONSTANTS = Path(__file__).with_name("data_parallel.json")
_BYTES = {"fp32": 4, "tf32": 4, "fp32-ieee": 4, "fp16": 2, "bf16": 2, "fp64": 8}


@dataclass(frozen=True)
class Scaled:
    """A training step on `devices` devices at once, each with a batch of its own."""

    devices: int
    step_ms: Estimate
    all_reduce_ms: float  # of all gradients, overlapped or not
    efficiency: float  # throughput over that of as many independent devices


def gradient_mb(parameters: int, dtype: str) -> float:
    """The size of the gradients: one number per parameter, in the dtype of the weights."""
    return parameters * _BYTES[dtype] / 2**20


def scaled(
    step_ms: Estimate, gradients_mb: float, device: Device, devices: int, instance: Instance | None = None
) -> Scaled:
    """The step on `devices` devices; its interval covers that of the step, that of the all-reduces and how much of them
    overlaps. `instance` is the cloud instance whose network joins several machines."""
    if devices == 1:
        return Scaled(1, step_ms, 0.0, 1.0)
    buckets = max(1, math.ceil(gradients_mb / BUCKET_MB))
    one = collective("all_reduce", gradients_mb * 2**20 / buckets, device, devices, instance=instance)

    def total_ms(step: float, bucket: float, hidden: float) -> float:
        return step + max(bucket, bucket * buckets - hidden * step)

    worst, usual, best = HIDDEN_SHARE
    value = total_ms(step_ms.value, one.ms, usual)
    low, high = total_ms(step_ms.low, one.low_ms, best), total_ms(step_ms.high, one.high_ms, worst)
    scaled_ms = Estimate(value, min(value, low), max(value, high), "ms")
    return Scaled(devices, scaled_ms, one.ms * buckets, step_ms.value / value)


@dataclass(frozen=True)
class OneProcess:
    """The constants of DataParallel, fitted to published steps (`evaluate/scaling.py`)."""

    python: float  # host times of a step that a copy of the module costs
    copies: float  # times that weights and gradients cross the link
    errors: tuple[float, float]  # factors of the 90 % interval

    def step_ms(self, step_ms: Any, host_ms: Any, weights_mb: Any, gbs: Any, devices: Any) -> Any:
        wire_ms = SHARES["all_reduce"](devices) * weights_mb * 2**20 / gbs / 1e6
        return step_ms + self.python * devices * host_ms + self.copies * wire_ms


@functools.cache
def one_process() -> OneProcess:
    content = json.loads(CONSTANTS.read_text(encoding="utf-8"))
    return OneProcess(content["python"], content["copies"], tuple(content["errors"]))


def in_one_process(step_ms: Estimate, host_ms: float, weights_mb: float, device: Device, devices: int) -> Estimate:
    """The step on `devices` devices under DataParallel."""
    if devices == 1:
        return step_ms
    law, gbs = one_process(), link(device, devices).rate_gbs(devices)
    value, low, high = (
        law.step_ms(one, host_ms, weights_mb, gbs, devices) * error
        for one, error in zip((step_ms.value, step_ms.low, step_ms.high), (1.0, *law.errors), strict=True)
    )
    return Estimate(value, max(low, step_ms.low), high, "ms")


def worth_adding(scalings: Sequence[Scaled], batch: int) -> int:
    """The most devices that, on average, each add at least WORTH_ADDING of a single device's throughput. Two devices of
    a mesh share a link of which eight have seven, so the second one alone may add less.

    `scalings` are those of 1, 2, 3 ... devices, `batch` samples each.
    """
    rates = [batch * each.devices / each.step_ms.value for each in scalings]
    worth = [
        each.devices for each, rate in zip(scalings, rates, strict=True)
        if rate - rates[0] >= WORTH_ADDING * rates[0] * (each.devices - 1)
    ]  # fmt: skip
    return max(worth)


def scaling(step_ms: Estimate, gradients_mb: float, device: Device, counts: Sequence[int]) -> list[Scaled]:
    """`scaled` for several counts of devices."""
    return [scaled(step_ms, gradients_mb, device, count) for count in counts]
