"""Device memory of a call: tensors by liveness, library workspaces, the allocator's segments, the runtime's context."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from forerun.device import Device
from forerun.device.generations import unlisted_generation
from forerun.device.together import together
from forerun.graph.ir import Graph, GraphKey
from forerun.graph.memory import Memory, Workspaces, lasting_mb, simulate
from forerun.predictors.laws.conformal import at_confidence
from forerun.predictors.laws.workspaces import (
    TAKING,
    first_call_copies,
    library_workspaces,
    with_reserves,
)
from forerun.runtimes.registry import USUAL, ran_by

if TYPE_CHECKING:
    from forerun.predictors.base import Predictor, Times

#: Interval factors without calibration: 90 % of our H200 rows are within them (measured over predicted). Transformers
#: are within 1 %; the workspaces of cuDNN beside its layout copies vary, most of all in backward passes.
ALLOCATED_SPREAD = {"plain": (0.97, 1.04), "conv": (0.97, 1.13), "conv_backward": (0.75, 1.3)}
#: Calls below this are calibrated by themselves, since workspaces of libraries are a larger share of them.
SMALL_MB = 1024.0
#: The share of a device's memory that `fits` and `largest batch` leave free, so that a case that is predicted to fit
#: does: enough for 95 of 100 cases whose limit was measured (`forerun evaluate --fits`). Near the limit fragmentation
#: decides, which the simulation follows to a few per cent. Chosen on the same cases that it is evaluated on.
MARGIN = 0.08
#: The context differs by driver, and by how many kernels get loaded.
CONTEXT_SPREAD = (0.4, 1.7)


@dataclass(frozen=True)
class MemoryEstimate:
    """Device memory of one call: tensors and workspaces of libraries, with an interval."""

    allocated_mb: float
    reserved_mb: float
    context_mb: float
    parts_mb: dict[str, float]
    # Which errors calibrate the interval: plain | conv | conv_backward (what libraries take beside the tensors grows in
    # that order), then / small | large.
    calibration_group: str
    spread: tuple[float, float]  # interval factors of what is allocated
    fits: bool | None  # None: the device's memory is not known
    #: Powers of the interval factors of tensors and of memory needed: whole generations are less sure than a call.
    powers: tuple[float, float] = (1.0, 1.0)
    #: The runtime whose own errors calibrate the interval, where it has enough rows.
    calibrated_by: str = USUAL

    @property
    def needed_mb(self) -> float:
        return self.reserved_mb + self.context_mb

    def part(self, mode: str) -> str:
        """The part of `calibration_group` whose errors are like its own, widest first."""
        return f"{mode}/{self.calibrated_by}"


def estimate(graph: Graph, device: Device) -> MemoryEstimate:
    """Memory of one call of `graph` at its batch size on `device`."""
    return estimates(graph, [device])[0]


def with_predicted(memory: MemoryEstimate, times: Times, device: Device) -> MemoryEstimate:
    """Simulated memory, or the predictor's own where it predicts memory (of the first device); then that also decides
    whether the call fits."""
    if times.memory_allocated_mb is None and times.memory_mb is None:
        return memory
    own = [None if found is None else float(found[0, 0]) for found in (times.memory_allocated_mb, times.memory_mb)]
    allocated, needed = (None if found is None or isnan(found) else found for found in own)
    if allocated is None and needed is None:
        return memory
    allocated = memory.allocated_mb if allocated is None else allocated
    reserved = memory.reserved_mb if needed is None else needed - memory.context_mb
    memory = replace(memory, allocated_mb=allocated, reserved_mb=max(allocated, reserved))  # no call gets by with less
    available = available_mb(device)
    return replace(memory, fits=None if available is None else memory.needed_mb <= available)


def with_interval(memory: MemoryEstimate, predictor: Predictor, mode: str) -> MemoryEstimate:
    """The estimate with the interval that the predictor gives to what is allocated, at its confidence."""
    own = predictor.memory_spread("memory_allocated_mb", memory.calibration_group, memory.part(mode))
    low, high = own or at_confidence(memory.spread, predictor.confidence)
    return replace(memory, spread=(low ** memory.powers[0], high ** memory.powers[0]))


def needed_interval(memory: MemoryEstimate, device: Device, predictor: Predictor, mode: str) -> tuple[float, float]:
    """The interval of `needed_mb`, for an estimate that has its own interval already (`with_interval`)."""
    measured_context = "context_mb" in device.calibrated
    group, part = memory.calibration_group, memory.part(mode)
    own = predictor.memory_spread("memory_mb", group, part) if measured_context else None
    if own is not None:
        return memory.needed_mb * own[0] ** memory.powers[1], memory.needed_mb * own[1] ** memory.powers[1]
    low, high = at_confidence((0.9, 1.1) if measured_context else CONTEXT_SPREAD, predictor.confidence)
    return (
        memory.reserved_mb * memory.spread[0] + memory.context_mb * low,
        memory.reserved_mb * memory.spread[1] + memory.context_mb * high,
    )


def surely_fits(memory: MemoryEstimate, device: Device) -> bool | None:
    """Whether the upper end of what is allocated fits as well; None when the device's memory is not known."""
    available = available_mb(device)
    return None if available is None else available >= memory.reserved_mb * memory.spread[1] + memory.context_mb


def estimates(graph: Graph, devices: Sequence[Device]) -> list[MemoryEstimate]:
    """`estimate` for many devices; the call is simulated once with workspaces and once without, not per device."""
    graph = _kept_reserves(GraphKey(graph))
    kinds, handles = {op.kind for op in graph.ops}, cublas_handles(graph)
    them = together(devices)
    limits = them.once(("memory", handles), lambda: [_limits(device, handles) for device in them])
    known = {each: _estimate(graph, kinds, each) for each in dict.fromkeys(limits)}
    return [known[each] for each in limits]


class _Limits(NamedTuple):
    """What of a device decides the memory of a call: many devices have it in common."""

    working: Workspaces | None
    workspace_mb: float
    context_mb: float
    room_mb: float | None


def _limits(device: Device, handles: int) -> _Limits:
    room = room_mb(handles, device)
    return _Limits(library_workspaces(device), workspace_mb(handles, device), context_mb(device), room)


def _estimate(graph: Graph, kinds: Collection[str], limits: _Limits) -> MemoryEstimate:
    group = next((k for k in ("conv_backward", "conv") if k in kinds), "plain")
    key, run = GraphKey(graph), ran_by(graph)
    kept_mb = run.keeps_mb
    working = None if TAKING.isdisjoint(kinds) else limits.working
    memory = _simulated(key, working)
    workspace, context = limits.workspace_mb, limits.context_mb + kept_mb
    room = None if limits.room_mb is None else max(0.0, limits.room_mb - kept_mb)
    fits = None if room is None else memory.reserved_mb <= room
    if room is not None and room < memory.reserved_mb:  # what is cached but free is given back when it gets tight
        memory = simulate(graph, room, working) if memory.allocated_mb <= room else _tight(key, working)
        fits = memory.fits and memory.reserved_mb <= room
    parts = dict(memory.by_role_mb)
    if workspace:
        parts["workspace"] = parts.get("workspace", 0.0) + workspace
    parts["context"] = context
    reserved = memory.reserved_mb + workspace
    if working and "conv_backward" in kinds:
        first = _simulated(key, first_call_copies).reserved_mb
        if room is None or first <= room:
            reserved = max(reserved, first + workspace)
    allocated = memory.allocated_mb + workspace
    size = "small" if allocated < SMALL_MB else "large"
    if run.pools:
        allocated = min(allocated, lasting_mb(graph, made=("gradient",)))
    return MemoryEstimate(
        allocated, reserved, context, parts, f"{group}/{size}", ALLOCATED_SPREAD[group], fits,
        calibrated_by=run.calibration or run.name,
    )  # fmt: skip


@functools.lru_cache(maxsize=32)
def _kept_reserves(key: GraphKey) -> Graph:
    return with_reserves(key.graph)


@functools.lru_cache(maxsize=32)
def _simulated(key: GraphKey, working: Workspaces | None) -> Memory:
    return simulate(key.graph, workspaces=working)


@functools.lru_cache(maxsize=32)
def _tight(key: GraphKey, working: Workspaces | None) -> Memory:
    """The least memory that the call can run with: the allocator caches no more than it must."""
    return simulate(key.graph, _simulated(key, working).allocated_mb, working)


def room_mb(handles: int, device: Device) -> float | None:
    """The memory for tensors beside context and workspaces; None when the device's memory is not known."""
    available = available_mb(device)
    return None if available is None else max(0.0, available - context_mb(device) - workspace_mb(handles, device))


def available_mb(device: Device) -> float | None:
    """The memory that one process may use, its context included, with a margin; None when it is not known.

    On NVIDIA's GPUs the context is what NVML shows in use before the first tensor, the driver's own part included: it
    is held against all that the driver reports. Elsewhere against what processes can get.
    """
    total_mb = device.memory_mb if device.traits.reports_context and device.is_nvidia else device.usable_mb
    return None if total_mb is None else total_mb * (1 - MARGIN)


def context_mb(device: Device) -> float:
    return device.calibrated.get("context_mb", device.traits.context_mb)


def cublas_handles(graph: Graph) -> int:
    """How many handles of cuBLAS are in use, each with a workspace of its own: one a thread, as backward passes run in
    one of their own, and one more for the second direction of recurrent layers, which runs beside the first."""
    return _cublas_handles(GraphKey(graph))


@functools.lru_cache(maxsize=32)
def _cublas_handles(key: GraphKey) -> int:
    graph = key.graph
    if not any(op.kind in ("matmul", "moe_matmul", "rnn") for op in graph.ops):
        return 0
    threads = 2 if any(op.phase == "backward" for op in graph.ops) else 1
    return threads * max([1, *(op.attrs["directions"] for op in graph.ops if op.kind == "rnn")])


def workspace_mb(handles: int, device: Device) -> float:
    """cuBLAS workspaces: each handle asks for its own once, through the same allocator as the tensors."""
    if not device.is_nvidia:
        return 0.0
    return handles * ((device.generation or unlisted_generation()).cublas_workspace_mb or 0.0)
