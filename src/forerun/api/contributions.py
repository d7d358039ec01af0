"""Why a model is faster on one device than on another: the difference of predicted latency, shared out over the
properties in which the devices differ.

The shares are Shapley values: devices are mixed, each property of the one or of the other, every mixture is predicted,
and a property is credited with what it changes on average over all orders in which the properties can be exchanged.
They add up to the difference exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import factorial
from typing import Any

import numpy as np

from forerun.api.predict import predict_many
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.workload import Workload

#: Fields of a device by the property that they describe.
PROPERTIES: dict[str, tuple[str, ...]] = {
    "memory bandwidth": ("bandwidth_gbs",),
    "arithmetic peaks": ("peak_tflops", "unsupported"),
    "L2 cache": ("l2_cache_mb",),
    "multiprocessors": ("sm_count",),
    "clock": ("boost_clock_mhz",),
    "power limit": ("tdp_w", "idle_w"),
    "generation": ("vendor", "architecture", "compute_capability"),
    "other properties": ("memory_gb", "interconnect_gbs", "pcie_gbs", "calibrated"),
}
HOST = "host"


@dataclass(frozen=True)
class Contribution:
    """What a property adds to the latency, and its values on the two devices in words."""

    name: str
    ms: float
    before: str
    after: str


@dataclass(frozen=True)
class Contributions:
    """From the latency on the reference device to that on the device; the largest first."""

    model: str
    reference: str
    device: str
    reference_ms: float
    device_ms: float
    parts: tuple[Contribution, ...]


def contributions(
    workload: Workload, reference: Device, device: Device, *, predictor: str = "default",
    reference_host: str | float = "default", host: str | float = "default",
) -> Contributions:  # fmt: skip
    """The latency of a workload on `device`, explained from that on `reference`. Neither is taken from the store."""
    if reference.kind != device.kind:
        raise ForerunError(
            f"{device.id} is a {device.kind} and {reference.id} a {reference.kind}: compare like with like"
        )
    names = [name for name, fields in PROPERTIES.items() if any(_differ(reference, device, field) for field in fields)]
    hosts = [HOST] if host != reference_host else []
    latency = _latencies(workload, reference, device, names, predictor, (reference_host, host))
    players = [*names, *hosts]
    shares = shapley(len(players), lambda chosen: latency[chosen if hosts else (*chosen, 0)])
    parts = [
        Contribution(name, share, *_words(name, reference, device, reference_host, host))
        for name, share in zip(players, shares, strict=True)
    ]
    none, all_ = (0,) * (len(names) + 1), (*(1,) * len(names), len(hosts))
    name = str(workload.to_dict()["model"])
    ordered = tuple(sorted(parts, key=lambda part: -abs(part.ms)))
    return Contributions(name, reference.id, device.id, latency[none], latency[all_], ordered)


def shapley(count: int, value: Callable[[tuple[int, ...]], float]) -> list[float]:
    """The Shapley values of `count` players; `value` is that of a coalition, given as a 0 or 1 for each of them."""
    shares = np.zeros(count)
    for chosen in product((0, 1), repeat=count):
        size = sum(chosen)
        here = value(chosen)
        for player in range(count):
            # A coalition counts for the player that completes it, and against one that has yet to join.
            others = size - chosen[player]
            weight = factorial(others) * factorial(count - others - 1) / factorial(count)
            shares[player] += weight * here * (1 if chosen[player] else -1)
    return [float(share) for share in shares]


def _latencies(
    workload: Workload, reference: Device, device: Device, names: Sequence[str], predictor: str, hosts: tuple[Any, Any]
) -> dict[tuple[int, ...], float]:
    """The predicted latency of every mixture, by its choices and that of the host, all mixtures of a host at once."""
    choices = list(product((0, 1), repeat=len(names)))
    mixed = [_mixed(reference, device, names, chosen) for chosen in choices]
    out: dict[tuple[int, ...], float] = {}
    for at, host in enumerate(hosts if hosts[0] != hosts[1] else hosts[:1]):
        frame = predict_many([workload], mixed, predictor=predictor, host=host)
        wrong = frame["error"].dropna()
        if len(wrong):
            raise ForerunError(
                str(wrong.iloc[0]).replace(mixed[int(wrong.index[0])].id, "a mixture of the two devices")
            )
        for chosen, latency in zip(choices, frame["latency_ms"], strict=True):
            out[(*chosen, at)] = float(latency)
    return out


def _mixed(reference: Device, device: Device, names: Sequence[str], chosen: Sequence[int]) -> Device:
    taken = [field for name, is_taken in zip(names, chosen, strict=True) if is_taken for field in PROPERTIES[name]]
    mark = "".join(map(str, chosen))
    return dataclasses.replace(reference, id=f"mixture-{mark}", **{field: getattr(device, field) for field in taken})


def _differ(one: Device, other: Device, field: str) -> bool:
    return bool(getattr(one, field) != getattr(other, field))


_UNITS = {
    "bandwidth_gbs": "GB/s", "l2_cache_mb": "MB", "sm_count": "SMs", "boost_clock_mhz": "MHz", "tdp_w": "W",
    "architecture": "",
}  # fmt: skip


def _words(name: str, reference: Device, device: Device, before: str | float, after: str | float) -> tuple[str, str]:
    """A property of both devices, as far as one value says it."""
    if name == HOST:
        return str(before), str(after)
    field = next((field for field in PROPERTIES[name] if field in _UNITS), None)
    if name == "arithmetic peaks":
        return _peaks(reference), _peaks(device)
    if field is None:
        return "", ""
    return _value(reference, field), _value(device, field)


def _value(device: Device, field: str) -> str:
    value = getattr(device, field)
    if value is None:
        return "unknown"
    return f"{value:,g} {_UNITS[field]}" if isinstance(value, float) else str(value)


def _peaks(device: Device) -> str:
    shown = [(dtype, peak) for dtype in ("fp32", "fp16") if (peak := device.peak(dtype)) is not None]
    return ", ".join(f"{dtype} {peak:g}" for dtype, peak in shown) + " TFLOP/s"
