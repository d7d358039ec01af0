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

from forerun.device.cloud import Instance
from forerun.device.device import Device
from forerun.device.links import FABRIC, NETWORK, PCIE, Link, in_machine, link
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
KERNELS = (NCCL, "sglang-graph", "sglang-eager", "vllm-graph", "vllm-eager", "trt-llm-graph")
#: Collectives that sum or gather within each machine first, so that every device sends a part of the rest.
_IN_STAGES = ("all_reduce", "all_gather", "reduce_scatter")
#: Factors of the interval beyond what was measured: assumed.
UNMEASURED = (0.5, 2.0)
#: The name of the link that was measured, by kind.
_MEASURED = {FABRIC: "NVLink", PCIE: "PCIe"}
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
    #: Factors of floor and of efficiency by generation; under "" where the generation does not matter.
    generations: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def us(self, wire_us: Any, count: Any, generation: str | None = None) -> Any:
        """Microseconds; numbers of devices between the measured ones, and the floor beyond them, in logarithms."""
        longer, better = self.generations.get(generation or "", (1.0, 1.0))
        places, here = np.log2(self.counts), np.log2(count)
        floor = np.exp(_along(here, places, np.log(self.floor_us))) * longer
        efficiency = np.exp(np.interp(here, places, np.log(self.efficiency))) * better
        sent = np.asarray(wire_us) / efficiency
        return floor + sent + self.bend * np.sqrt(floor * sent)

    def knows(self, count: int, generation: str | None) -> bool:
        """Whether both were measured, or lie between."""
        return count <= max(self.counts) and ("" in self.generations or generation in self.generations)


@dataclass(frozen=True)
class Collective:
    """The time of one collective, with its interval."""

    ms: float
    low_ms: float
    high_ms: float
    over: str  # the name of the slowest link it uses
    extrapolated: bool  # between machines, more devices, or another link or generation than were measured


def collective(
    op: str, size: float, device: Device, count: int, kernel: str = NCCL, instance: Instance | None = None
) -> Collective:
    """The time of one collective of `size` bytes among `count` devices."""
    for what, value, allowed in (("collective", op, SHARES), ("kernel", kernel, KERNELS)):
        if value not in allowed:
            raise ForerunError(f"unknown {what} {value!r}: choose from {', '.join(allowed)}")
    if count < 1 or count != int(count) or not 0 <= size < float("inf"):
        raise ForerunError(f"a collective takes a number of bytes and of devices, got {size} and {count}")
    if count == 1:
        return Collective(0.0, 0.0, 0.0, "", extrapolated=False)
    slowest = link(device, count, instance)
    law = shipped()
    least = least_us(op, size, device, count, slowest, instance)
    us = max(law.us(op, size, device, count, slowest, kernel, instance), least)
    known = law.knows(op, device, count, slowest, kernel)
    low, high = law.interval(slowest.kind, kernel, op, size) if known else UNMEASURED
    return Collective(us / 1e3, max(us * low, least) / 1e3, us * high / 1e3, slowest.name, not known)


def least_us(op: str, size: float, device: Device, count: int, slowest: Link, instance: Instance | None) -> float:
    """Microseconds that the rate of the slowest link demands: a switch that adds up saves an all-reduce half of what a
    ring sends."""
    if slowest.kind != NETWORK:
        return min(1.0, SHARES[op](count)) * size / slowest.rate_gbs(count) / 1e3
    machines, fewest = _machines(device, count, instance)
    return min(1.0, SHARES[op](machines)) * size / (fewest if op in _IN_STAGES else 1) / slowest.gbs / 1e3


def _machines(device: Device, count: int, instance: Instance | None) -> tuple[int, int]:
    """How many machines hold `count` devices, and how many of them the least filled one has."""
    full = min(count, in_machine(device, instance))
    machines = -(-count // full)
    return machines, count - full * (machines - 1)


@dataclass(frozen=True)
class CollectiveLaw:
    """All fitted constants, by link, kernel and collective, and the quantiles of their held-out errors."""

    constants: Mapping[tuple[str, str, str], Constants]
    errors: Mapping[str, tuple[float, float]]  # link/kernel/op/size -> factors of the 90 % interval

    def us(
        self, op: str, size: float, device: Device, count: int, slowest: Link, kernel: str,
        instance: Instance | None = None,
    ) -> float:  # fmt: skip
        """Microseconds. Between machines: first within each, then among the machines, whose devices send their parts
        side by side."""
        if op == "send_recv":
            count = 2 if slowest.kind != NETWORK else count
        if slowest.kind != NETWORK:
            wire = SHARES[op](count) * size / slowest.rate_gbs(count) / 1e3
            return float(self._of(slowest.kind, kernel, op).us(wire, count, device.architecture))
        machines, fewest = _machines(device, count, instance)
        here = min(count, in_machine(device, instance))
        inside, parts = 0.0, 1
        if op in _IN_STAGES and here > 1:
            inside, parts = self.us(op, size, device, here, link(device, here, instance), NCCL), fewest
        wire = SHARES[op](machines) * size / parts / slowest.gbs / 1e3
        return inside + float(self._of(NETWORK, NCCL, op).us(wire, machines))

    def knows(self, op: str, device: Device, count: int, slowest: Link, kernel: str) -> bool:
        """Whether such a collective was measured: its link, kernel, generation and number of devices."""
        constants = self.constants.get((slowest.kind, kernel, op))
        named = _MEASURED.get(slowest.kind) == slowest.name
        return constants is not None and named and constants.knows(count, device.architecture)

    def _of(self, kind: str, kernel: str, op: str) -> Constants:
        for key in ((kind, kernel, op), (kind, NCCL, op), (kind, NCCL, "all_reduce"), (FABRIC, NCCL, op)):
            if key in self.constants:
                return self.constants[key]
        return self.constants[FABRIC, NCCL, "all_reduce"]

    def interval(self, kind: str, kernel: str, op: str, size: float) -> tuple[float, float]:
        part = "small" if size <= SMALL_BYTES else "large"
        return self.errors.get(f"{kind}/{kernel}/{op}/{part}", UNMEASURED)

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
    """Linear between the places and, with the last slope unless it falls, beyond them."""
    inside = np.interp(here, places, values)
    if len(places) < 2:
        return inside
    slope = max((values[-1] - values[-2]) / (places[-1] - places[-2]), 0.0)
    return inside + slope * np.maximum(np.asarray(here) - places[-1], 0.0)
