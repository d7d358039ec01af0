"""Time, memory and energy of tabular models on CPUs.

    time = serial work x slowness + parallel work x slowness / speed-up + products / peak + bytes / bandwidth

Amounts of work are those of `tabular_work.py`, and what a unit of each costs is fitted to measured rows for every kind
of estimator and mode (`evaluate/tabular.py`). Serial and parallel work is that of threads, whose slowness follows the
CPU's published single-thread rating; products and bytes follow its peak and bandwidth. The speed-up of t threads is
1 + (t - 1) x efficiency, and no more than there are trees where trees are what runs at once.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun.device.cpus import deviation, find_cpu
from forerun.device.device import Device
from forerun.device.threads import whole_id, whole_name
from forerun.errors import ForerunError
from forerun.frontends.tabular.kinds import Tabular
from forerun.predictors.laws import tabular_work
from forerun.predictors.laws.conformal import UNCALIBRATED, Calibration, at_confidence
from forerun.predictors.laws.energy import POWER_SPREAD
from forerun.predictors.laws.many_cores import slowness

FILE = Path(__file__).parents[1] / "shipped" / "tabular.json"
MB = 2**20
#: Peak and bandwidth of a core of the machine that the rows come from.
CORE_TFLOPS, CORE_GBS = 0.16, 13.5
#: Megabytes of a process that has imported a library, before any table is there.
PROCESS_MB = {"sklearn": 140.0, "xgboost": 190.0, "lightgbm": 170.0}
PROCESS_SPREAD = (0.7, 1.6)
#: Interval factors for 90 % of a model's own bytes: that of a fitted one, and of one whose trees are yet to grow.
FITTED_SPREAD, MODEL_SPREAD = (0.8, 1.4), (0.4, 2.0)
#: What each doubling of the threads beyond those measured, and each factor of ten beyond the measured size, adds to the
#: error: standard deviations, in logarithms. Both are assumed.
PER_DOUBLING, PER_DECADE = 0.15, 0.3
MEASURED_THREADS = 2
_CACHE_MB = 512.0  # of a CPU whose cache is not known: a table that fits is not assumed to be read from memory


@dataclass(frozen=True)
class Answered:
    """A value with the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TabularLaw:
    """The fitted constants by mode and kind: nanoseconds of a unit of work, efficiency of a thread, shares of bytes."""

    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # "training/xgboost" -> "serial tree" -> ns
    efficiency: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # the same -> "bins" -> bytes per byte
    largest: Mapping[str, float] = field(default_factory=dict)  # the most numbers in a table of the measured rows
    measured_on: tuple[str, ...] = ()
    calibration: Mapping[str, Any] | None = None
    rows: int = 0
    measured_at: str = ""

    def ms(self, model: Tabular, mode: str, rows: int, device: Device) -> float:
        """Milliseconds of a fit, or of a call that predicts `rows` rows; never less than products and table allow."""
        return max(sum(self.parts_ms(model, mode, rows, device).values()), floor_ms(model, mode, rows, device))

    def parts_ms(self, model: Tabular, mode: str, rows: int, device: Device) -> dict[str, float]:
        """Milliseconds of each sort of work."""
        group = group_of(mode, model.kind)
        costs = self.costs.get(group)
        if costs is None:
            raise ForerunError(f"no law of {mode} with {model.kind} has been fitted yet: no such row has been measured")
        scale = scales(device, self.measured_on)
        scale["parallel"] /= self.speed_up(model, mode, device)
        out = dict.fromkeys(scale, 0.0)
        for (sort, name), amount in amounts(model, mode, rows, threads_of(device)).items():
            out[sort] += costs.get(f"{sort} {name}", 0.0) * amount * scale[sort] / 1e6
        return out

    def speed_up(self, model: Tabular, mode: str, device: Device) -> float:
        most = tabular_work.parallel_items(model) if mode == "training" else math.inf
        used = threads_of(device) if tabular_work.takes_threads(model.kind, mode) else 1
        return 1 + (min(used, most) - 1) * self.efficiency.get(group_of(mode, model.kind), 1.0)

    def working_mb(self, model: Tabular, mode: str, rows: int) -> float:
        """Megabytes that a call adds to its process: table, the model that a fit makes, and what it works on."""
        shares = self.memory.get(group_of(mode, model.kind), {})
        sizes = tabular_work.bytes_of(model, mode, rows)
        return sum(sizes[name] * shares.get(name, 1.0) for name in sizes) / MB

    def factors(
        self, target: str, model: Tabular, mode: str, rows: int, device: Device, confidence: float
    ) -> tuple[float, float]:
        """The ends of an interval as factors."""
        group = f"{target}/{group_of(mode, model.kind)}"
        if self.calibration is None:
            return at_confidence(UNCALIBRATED, confidence)
        doubts = [PER_DECADE * self.beyond(model, mode, rows)]
        if target == "latency_ms":
            doubts.append(PER_DOUBLING * max(0.0, math.log2(self.speed_up(model, mode, device) / MEASURED_THREADS)))
            if not is_measured(device, self.measured_on):
                doubts.append(deviation())
        return self._calibrated.factors(group, confidence, math.hypot(*doubts))

    def beyond(self, model: Tabular, mode: str, rows: int) -> float:
        """How many factors of ten the table is larger than any that was measured."""
        most = self.largest.get(group_of(mode, model.kind), math.inf)
        return max(0.0, math.log10(table_size(model, mode, rows) / most)) if most else 0.0

    @functools.cached_property
    def _calibrated(self) -> Calibration:
        assert self.calibration is not None
        return Calibration.from_dict(self.calibration)

    def time(self, model: Tabular, mode: str, rows: int, device: Device, confidence: float = 0.9) -> Answered:
        """Milliseconds with their interval, of which no end is below what products and table allow."""
        found = _answered(
            self.ms(model, mode, rows, device), self.factors("latency_ms", model, mode, rows, device, confidence)
        )
        return Answered(found.value, max(found.low, floor_ms(model, mode, rows, device)), found.high)

    def call_mb(self, model: Tabular, mode: str, rows: int, device: Device, confidence: float = 0.9) -> Answered:
        """Megabytes of the arrays of a call: what it adds, never less than its table, and the model that it asks."""
        made = _answered(
            self.working_mb(model, mode, rows), self.factors("memory_mb", model, mode, rows, device, confidence)
        )
        least = tabular_work.least_bytes(model, mode, rows) / MB
        there = 0.0 if mode == "training" else tabular_work.model_bytes(model) / MB
        low, high = at_confidence(FITTED_SPREAD if model.facts else MODEL_SPREAD, confidence)
        return Answered(
            max(made.value, least) + there, max(made.low, least) + there * low, max(made.high, least) + there * high
        )

    def needed_mb(self, model: Tabular, mode: str, rows: int, device: Device, confidence: float = 0.9) -> Answered:
        """Megabytes of the whole process."""
        call, base = self.call_mb(model, mode, rows, device, confidence), PROCESS_MB[model.library]
        low, high = at_confidence(PROCESS_SPREAD, confidence)
        return Answered(call.value + base, call.low + base * low, call.high + base * high)

    def power(self, model: Tabular, mode: str, rows: int, device: Device, confidence: float = 0.9) -> Answered | None:
        """Watts while a call runs: idle power, and of the rest of the design power the share of the cores that work;
        None where the design power is not known."""
        if device.tdp_w is None:
            return None
        idle, cores = device.idle_w or 0.0, float(threads_of(device))
        at_work = {"serial": 1.0, "parallel": self.speed_up(model, mode, device), "gemm": cores, "stream": cores}
        parts = self.parts_ms(model, mode, rows, device)
        total = sum(parts.values())
        busy = sum(parts[sort] * at_work[sort] for sort in parts) / total / cores if total else 1.0
        watts = idle + (device.tdp_w - idle) * min(1.0, busy)
        low, high = at_confidence(POWER_SPREAD, confidence)
        return Answered(watts, max(idle, watts * low), min(device.tdp_w, watts * high))

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


def _answered(value: float, factors: tuple[float, float]) -> Answered:
    return Answered(value, value * factors[0], value * factors[1])


def group_of(mode: str, kind: str) -> str:
    return f"{mode}/{kind}"


def table_size(model: Tabular, mode: str, rows: int) -> float:
    """Numbers in the table of a call."""
    return float(model.settings["rows"] if mode == "training" else rows) * model.settings["columns"]


def amounts(model: Tabular, mode: str, rows: int, threads: int) -> tabular_work.Amounts:
    if mode == "training":
        return tabular_work.fitting(model, threads)
    return tabular_work.predicting(model, rows, threads)


def floor_ms(model: Tabular, mode: str, rows: int, device: Device) -> float:
    """Milliseconds that the products of a call take at the peak, or its table at the bandwidth, where it is larger than
    the cache."""
    work = amounts(model, mode, rows, threads_of(device))
    products = sum(amount for (sort, _), amount in work.items() if sort == "gemm")
    read = max(0.0, 4 * table_size(model, mode, rows) - (device.l2_cache_mb or _CACHE_MB) * MB)
    peak, bandwidth = device.peak_tflops.get("fp32"), device.bandwidth_gbs
    return max(products / peak / 1e9 if peak else 0.0, read / bandwidth / 1e6 if bandwidth else 0.0)


def threads_of(device: Device) -> int:
    """The threads of a call: the cores of the device, which `threads` limits; two of a virtual machine's."""
    return int(device.sm_count) if device.sm_count else MEASURED_THREADS


def is_measured(device: Device, measured_on: tuple[str, ...]) -> bool:
    return whole_id(device.id) in measured_on


def scales(device: Device, measured_on: tuple[str, ...]) -> dict[str, float]:
    """What a unit of each sort of work takes on a device, as a share of what it takes one core where it was fitted."""
    slow = 1.0 if is_measured(device, measured_on) else slowness(device)
    cores = threads_of(device)
    peak = device.peak_tflops.get("fp32")
    speed = peak / CORE_TFLOPS if peak else cores / slow
    moved = device.bandwidth_gbs / CORE_GBS if device.bandwidth_gbs else cores
    return {"serial": slow, "parallel": slow, "gemm": 1 / speed, "stream": 1 / moved}


def rated(device: Device) -> bool:
    """Whether the speed of one of its threads is known."""
    return find_cpu(whole_name(device.name)) is not None


@functools.cache
def shipped() -> TabularLaw:
    data = json.loads(FILE.read_text(encoding="utf-8"))
    return TabularLaw(**{**data, "measured_on": tuple(data["measured_on"])})
