"""The time of collectives: all-reduce, all-gather, reduce-scatter, all-to-all, and sending from device to device.

    wire = share x bytes / rate of the link        share: 2 (n - 1) / n for an all-reduce, (n - 1) / n for the others
    time = floor + wire / efficiency + bend x sqrt(floor x wire / efficiency)

`floor` is what a call costs however little it sends; it grows with the number of devices and differs between chip
generations, but not with their bandwidth. `bend` is the range between the two, where protocols change. The constants of
each kind of kernel and collective are fitted to published measurements (`evaluate/collectives.py`). `bytes` is the
larger of what one device gives and gets.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forerun.device.device import Device
from forerun.device.links import FABRIC, NETWORK, Link, in_machine, link
from forerun.errors import ForerunError

#: The share of the bytes that each device sends, by the number of devices.
SHARES: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "send_recv": lambda n: 1.0,
}
#: Kernels: NCCL's, and the one-shot all-reduce of a serving engine, in a CUDA graph or launched one by one.
NCCL = "nccl"
#: Messages up to this size are bound by the floor: their errors calibrate intervals of their own.
SMALL_BYTES = 65536
FILE = Path(__file__).parents[1] / "shipped" / "collectives.json"


@dataclass(frozen=True)
class Constants:
    """The fitted constants of one collective by one kind of kernel over one kind of link."""

    counts: tuple[int, ...]  # numbers of devices that were measured
    floor_us: tuple[float, ...]  # by number
    efficiency: tuple[float, ...]  # by number
    bend: float
    generations: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # factors of floor and of efficiency

    def us(self, wire_us: Any, count: Any, generation: str | None = None) -> Any:
        """Microseconds; numbers of devices between the measured ones, and beyond them, in logarithms."""
        longer, better = self.generations.get(generation or "", (1.0, 1.0))
        places, here = np.log2(self.counts), np.log2(count)
        floor = np.exp(_along(here, places, np.log(self.floor_us))) * longer
        efficiency = np.exp(np.interp(here, places, np.log(self.efficiency))) * better
        sent = np.asarray(wire_us) / efficiency
        return floor + sent + self.bend * np.sqrt(floor * sent)


@dataclass(frozen=True)
class Collective:
    """The time of one collective, with its interval."""

    ms: float
    low_ms: float
    high_ms: float
    over: str  # the name of the slowest link it uses
    extrapolated: bool  # between machines, or on a kind of link without measurements


def collective(
    op: str, size: float, device: Device, count: int, kernel: str = NCCL, instance: str | None = None
) -> Collective:
    """The time of one collective of `size` bytes among `count` devices."""
    if op not in SHARES:
        raise ForerunError(f"unknown collective {op!r}: choose from {', '.join(SHARES)}")
    if count == 1:
        return Collective(0.0, 0.0, 0.0, "", extrapolated=False)
    slowest = link(device, count, instance)
    law = shipped()
    us = max(law.us(op, size, device, count, slowest, kernel, instance), _least_us(op, size, count, slowest))
    low, high = law.interval(slowest.kind, kernel, size)
    known = (slowest.kind, kernel, op) in law.constants
    low_us = max(us * low, _least_us(op, size, count, slowest))
    return Collective(us / 1e3, low_us / 1e3, us * high / 1e3, slowest.name, slowest.kind == NETWORK or not known)


def _least_us(op: str, size: float, count: int, slowest: Link) -> float:
    """The rate of the link allows no less: a switch that adds up saves an all-reduce half of what a ring sends."""
    return min(1.0, SHARES[op](count)) * size / slowest.rate_gbs(count) / 1e3 if slowest.kind != NETWORK else 0.0


@dataclass(frozen=True)
class CollectiveLaw:
    """All fitted constants, by link, kernel and collective, and the quantiles of their held-out errors."""

    constants: Mapping[tuple[str, str, str], Constants]
    errors: Mapping[str, tuple[float, float]]  # link/kernel/size -> factors of the 90 % interval

    def us(
        self, op: str, size: float, device: Device, count: int, slowest: Link, kernel: str, instance: str | None = None
    ) -> float:
        """Microseconds. Between machines: within each, then among as many machines, whose devices send side by side."""
        if slowest.kind != NETWORK:
            wire = SHARES[op](count) * size / slowest.rate_gbs(count) / 1e3
            return float(self._of(slowest.kind, kernel, op).us(wire, count, device.architecture))
        here = min(count, in_machine(device))
        machines = -(-count // here)
        own = 0.0
        if here > 1:
            own = self.us(op, size, device, here, link(device, here), NCCL)
        wire = SHARES[op](machines) * size / here / slowest.gbs / 1e3
        return own + float(self._of(NETWORK, NCCL, op).us(wire, machines))

    def _of(self, kind: str, kernel: str, op: str) -> Constants:
        for key in ((kind, kernel, op), (kind, NCCL, op), (kind, NCCL, "all_reduce"), (FABRIC, NCCL, op)):
            if key in self.constants:
                return self.constants[key]
        return self.constants[FABRIC, NCCL, "all_reduce"]

    def interval(self, kind: str, kernel: str, size: float) -> tuple[float, float]:
        part = "small" if size <= SMALL_BYTES else "large"
        for key in (f"{kind}/{kernel}/{part}", f"{kind}/{part}", f"{NETWORK}/{part}"):
            if key in self.errors:
                return self.errors[key]
        return 0.5, 2.0

    def to_json(self) -> dict[str, Any]:
        return {
            "constants": {"/".join(key): vars(one) for key, one in sorted(self.constants.items())},
            "errors": dict(sorted(self.errors.items())),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> CollectiveLaw:
        constants = {}
        for key, one in content["constants"].items():
            kind, kernel, op = key.split("/")
            pairs = {name: (float(a), float(b)) for name, (a, b) in one["generations"].items()}
            constants[kind, kernel, op] = Constants(
                tuple(one["counts"]), tuple(one["floor_us"]), tuple(one["efficiency"]), one["bend"], pairs
            )
        return cls(constants, {name: (float(low), float(high)) for name, (low, high) in content["errors"].items()})


@functools.cache
def shipped() -> CollectiveLaw:
    return CollectiveLaw.from_json(json.loads(FILE.read_text(encoding="utf-8")))


def _along(here: Any, places: Sequence[float] | np.ndarray, values: np.ndarray) -> Any:
    """Linear between the places and, with the last slope, beyond them."""
    inside = np.interp(here, places, values)
    if len(places) < 2:
        return inside
    slope = (values[-1] - values[-2]) / (places[-1] - places[-2])
    return inside + slope * np.maximum(np.asarray(here) - places[-1], 0.0)
