"""Predictions of many cases as one table, vectorised over devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.advice import cost as cost_advice
from forerun.api.generation import problem_of, question_of
from forerun.api.questions import Question
from forerun.device import Device
from forerun.device.carbon import carbon_g
from forerun.device.together import together
from forerun.errors import ForerunError
from forerun.prediction import Estimate
from forerun.predictors.base import Predictor
from forerun.predictors.laws import memory as memory_model
from forerun.predictors.laws.bounds import hold_memory
from forerun.predictors.laws.conformal import at_confidence
from forerun.predictors.laws.energy import POWER_SPREAD, back_to_back_ms, power_edges
from forerun.predictors.laws.parallel import Communication, communication, in_parallel
from forerun.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from forerun.device.carbon import Grid
    from forerun.device.cloud import Instance
    from forerun.graph.ir import Graph


@dataclass(frozen=True)
class TableRow:
    """One row as estimates with their intervals; None is unknown."""

    device: str
    batch: int
    latency_ms: Estimate
    throughput: Estimate
    memory_mb: Estimate
    energy_j: Estimate | None
    power_w: Estimate | None
    cost_usd: Estimate | None
    device_ms: float | None
    host_ms: float | None
    fits: bool | None
    surely_fits: bool | None
    bound: str | None  # device | host: which one sets the latency
    basis: str

    @property
    def busy(self) -> float | None:
        """The share of a call that the device works."""
        return None if self.device_ms is None else min(1.0, self.device_ms / self.latency_ms.value)


def read_row(row: Mapping[Any, Any]) -> TableRow | str:
    """A row of the table, or the sentence that says why it has no numbers."""
    if isinstance(row.get("error"), str):
        return str(row["error"])
    latency = _estimate(row, "latency", "ms")
    if latency is None:
        return f"the latency on {row['device']} is not predicted"
    rate, cost = float(row["throughput"]), _number(row["cost_usd"])
    ends = (rate * latency.value / latency.high, rate * latency.value / latency.low)
    memory = _estimate(row, "memory", "MB")
    assert memory is not None  # it is simulated for every device
    return TableRow(
        row["device"], int(row["batch"]), latency, Estimate(rate, *ends, str(row["throughput_unit"])), memory,
        _estimate(row, "energy", "J"), _estimate(row, "power", "W"),
        None if cost is None else latency.scaled(cost / latency.value, "USD"), _number(row["device_ms"]),
        _number(row["host_ms"]), _known(row["fits"]), _known(row["surely_fits"]), row["bound"], str(row["basis"]),
    )  # fmt: skip


def _known(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _number(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def _estimate(row: Mapping[Any, Any], name: str, unit: str) -> Estimate | None:
    last = unit.lower()
    value, low, high = (_number(row[f"{name}_{part}{last}"]) for part in ("", "low_", "high_"))
    return None if value is None or low is None or high is None else Estimate(value, low, high, unit)


def table(
    workload: Workload,
    devices: Sequence[Device],
    prices: Sequence[Instance | None],
    grids: Sequence[Grid],
    predictor: Predictor,
) -> dict[str, list[Any] | np.ndarray]:
    """The columns of one workload on every device; a case that cannot run has its reason in column `error`."""
    w, n = workload, len(devices)
    devices = together(devices)
    problems = [problem_of(w, d, predictor) for d in devices]
    try:
        question = question_of(w)
    except ForerunError as e:
        name = w.to_dict()["model"]
        request = {"model": name, "batch": w.batch, "dtype": w.shown_dtype, "mode": w.mode, "seq_len": w.seq_len}
        same = {column: [value] * n for column, value in (*request.items(), ("error", str(e)))}
        return {**same, "device": [d.id for d in devices]}
    graph = question.graph
    shards, exchange = question.shards, _exchange(question, devices, problems)
    able = [i for i, p in enumerate(problems) if p is None]
    able_devices = devices.only(able)
    predicted = question.ask(predictor, able_devices) if able else None
    if predicted is not None and shards is not None:
        predicted = in_parallel(predicted, shards.layout, [exchange[i] for i in able])
    times = predicted.times if predicted else None

    def column(name: str) -> np.ndarray:
        out = np.full(len(devices), np.nan)
        if times is not None:
            out[able] = getattr(times, name)[0]
        return out

    def edges(target: str) -> np.ndarray:
        out = np.full((len(devices), 2), np.nan)
        if predicted is not None:
            out[able] = predicted.spread(target)[0]
        return out

    memory, mode = question.memories(devices), question.workload.mode
    if times is not None and (times.memory_mb is not None or times.memory_allocated_mb is not None):
        for at, place in enumerate(able):
            memory[place] = memory_model.with_predicted(memory[place], times.of_device(at), devices[place])
    memory, needed_edges = _with_intervals(memory, devices, predictor, mode, graph)
    items, unit = question.items(w)
    latency, energy = column("latency_ms"), column("energy_j")
    latency_edges, energy_edges = edges("latency_ms"), edges("energy_j")
    needed = np.array([m.needed_mb for m in memory])
    watts = 1e3 * energy / back_to_back_ms(latency, column("device_ms"), devices, w.runtime)
    spread = at_confidence(POWER_SPREAD, predictor.confidence)
    count = w.devices
    watts_edges = np.array([power_edges(one / count, d, spread) for one, d in zip(watts, devices, strict=True)]) * count
    hourly = [np.nan if p is None else cost_advice.usd_per_ms(p.usd_per_device_hour) for p in prices]
    price = np.array(hourly) * count
    return {
        "model": [graph.name] * n, "device": [d.id for d in devices], "batch": [w.batch] * n,
        "dtype": [w.shown_dtype] * n, "mode": [w.mode] * n, "seq_len": [w.seq_len] * n, "latency_ms": latency,
        "latency_low_ms": latency * latency_edges[:, 0],
        "latency_high_ms": latency * latency_edges[:, 1], "device_ms": column("device_ms"),
        "host_ms": column("host_ms"),
        "throughput": 1e3 * items / latency, "throughput_unit": [f"{unit}/s"] * n, "memory_mb": needed,
        "memory_low_mb": needed_edges[:, 0], "memory_high_mb": needed_edges[:, 1],
        "memory_allocated_mb": [m.allocated_mb for m in memory],
        "fits": [m.fits for m in memory],
        "surely_fits": [memory_model.surely_fits(m, d) for m, d in zip(memory, devices, strict=True)],
        "energy_j": energy, "energy_low_j": energy * energy_edges[:, 0],
        "energy_high_j": energy * energy_edges[:, 1],
        "bound": _bound(column("host_ms"), column("device_ms")),
        "power_w": watts, "power_low_w": watts_edges[:, 0], "power_high_w": watts_edges[:, 1],
        "carbon_g": energy * np.array([carbon_g(1.0, grid) for grid in grids]),
        "cost_usd": latency * np.where([m.fits is False for m in memory], np.nan, price),
        "basis": [predictor.basis_for(d) for d in devices], "error": problems,
    }  # fmt: skip


def _with_intervals(
    memory: Sequence[memory_model.MemoryEstimate],
    devices: Sequence[Device],
    predictor: Predictor,
    mode: str,
    graph: Graph,
) -> tuple[list[memory_model.MemoryEstimate], np.ndarray]:
    """The estimates with their intervals, and the ends of the memory needed over [devices, 2]. Devices that leave a
    call as much room share an estimate, which is made ready once."""
    distinct = {id(m): m for m in memory}
    ready = {name: memory_model.with_interval(m, predictor, mode) for name, m in distinct.items()}
    out = [ready[id(m)] for m in memory]
    ends: dict[tuple[int, bool], tuple[float, float]] = {}
    for m, d in zip(out, devices, strict=True):
        if (id(m), "context_mb" in d.calibrated) not in ends:
            needed_ends = memory_model.needed_interval(m, d, predictor, mode)
            ends[id(m), "context_mb" in d.calibrated] = hold_memory(needed_ends, m.needed_mb, graph)
    return out, np.array([ends[id(m), "context_mb" in d.calibrated] for m, d in zip(out, devices, strict=True)])


def _exchange(question: Question, devices: Sequence[Device], problems: list[str | None]) -> dict[int, Communication]:
    """What collectives take on each device, by its place; one without a link that is known gets its problem."""
    found = {}
    for i, device in enumerate(devices if question.shards is not None else ()):
        assert question.shards is not None
        try:
            found[i] = communication(question.shards.row, device, question.shards.layout)
        except ForerunError as e:
            problems[i] = problems[i] or str(e)
    return found


def joined(tables: Sequence[Mapping[str, list[Any] | np.ndarray]]) -> pd.DataFrame:
    """Tables of `table` below each other; what one lacks is not a number there."""
    import pandas as pd

    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in tables for name in one):
        parts = [one[name] if name in one else np.full(len(one["device"]), np.nan) for one in tables]
        if all(isinstance(part, np.ndarray) for part in parts):
            columns[name] = np.concatenate(parts)
            continue
        values = [value for part in parts for value in part]
        columns[name] = pd.Series(values, dtype=object) if any(value is None for value in values) else values
    return pd.DataFrame(columns)


def _bound(host_ms: np.ndarray, device_ms: np.ndarray) -> list[str | None]:
    """Which of the two sets the pace; None where they are not both known."""
    return [None if np.isnan(h + d) else "host" if h > d else "device" for h, d in zip(host_ms, device_ms, strict=True)]
