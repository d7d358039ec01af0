"""Device memory of a call: tensors by liveness, library workspaces, the allocator's segments, the runtime's context."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from forerun.device import Device
from forerun.device.generations import unlisted_generation
from forerun.graph.cost import Shapes
from forerun.graph.ir import Graph, GraphKey, Op
from forerun.graph.memory import Memory, Workspaces, simulate

if TYPE_CHECKING:
    from forerun.predictors.base import Times

#: What the runtime takes before the first tensor: CUDA context, loaded kernels.
CONTEXT_MB = {"gpu": 900.0, "soc": 500.0, "tpu": 500.0, "asic": 500.0, "cpu": 250.0}
#: Tensor cores want channels last: cuDNN keeps copies of a convolution's input and output (of gradients, backward) in
#: that layout while it runs. In fp32, for few channels and many pixels, its backward takes algorithms that need several
#: times as much (seen on an H200 with cuDNN 9.19 for 16 to 32 channels from 64 images of 32 x 32).
_LAYOUT_COPIES, _FEW_CHANNELS, _MANY_PIXELS, _FEW_CHANNELS_COPIES = 1.0, (16, 32), 65536, 8.0
#: With more channels the first call of such a backward takes so many copies; the allocator keeps what they took.
_FIRST_CALL_COPIES = 2.0
#: Where nothing is calibrated, what 90 % of our H200 rows stay within (measured over predicted): transformers within
#: 1 %; what cuDNN takes beside its layout copies is its own choice, most of all in backward passes.
ALLOCATED_SPREAD = {"plain": (0.97, 1.04), "conv": (0.97, 1.13), "conv_backward": (0.75, 1.3)}
#: In calls below this, what libraries take is a larger share: they are calibrated by themselves.
SMALL_MB = 1024.0
#: The context differs by driver, and by how many kernels get loaded.
CONTEXT_SPREAD = (0.4, 1.7)


@dataclass(frozen=True)
class MemoryEstimate:
    """Device memory of one call: what tensors and libraries take, and how uncertain that is."""

    allocated_mb: float
    reserved_mb: float
    context_mb: float
    parts_mb: dict[str, float]
    # Which errors calibrate the interval: plain | conv | conv_backward (what libraries take beside the tensors grows in
    # that order), then / small | large.
    calibration_group: str
    spread: tuple[float, float]  # interval factors of what is allocated
    fits: bool | None  # None: the device's memory is not known

    @property
    def needed_mb(self) -> float:
        return self.reserved_mb + self.context_mb


def estimate(graph: Graph, device: Device) -> MemoryEstimate:
    """Memory of one call of `graph` at its batch size on `device`."""
    return estimates(graph, [device])[0]


def with_predicted(memory: MemoryEstimate, times: Times) -> MemoryEstimate:
    """Simulated memory, or what a predictor says of it itself where it does (of the first device)."""
    if times.memory_allocated_mb is not None:
        memory = replace(memory, allocated_mb=float(times.memory_allocated_mb[0, 0]))
    if times.memory_mb is not None:
        memory = replace(memory, reserved_mb=max(0.0, float(times.memory_mb[0, 0]) - memory.context_mb))
    return memory


def estimates(graph: Graph, devices: Sequence[Device]) -> list[MemoryEstimate]:
    """`estimate` for many devices; the call is simulated once with workspaces and once without, not per device."""
    kinds, handles = {op.kind for op in graph.ops}, cublas_handles(graph)
    group = next((k for k in ("conv_backward", "conv") if k in kinds), "plain")
    key = GraphKey(graph)
    out = []
    for device in devices:
        working = conv_workspaces(device) if "conv" in kinds or "conv_backward" in kinds else None
        memory = _simulated(key, working)
        workspace, context, room = workspace_mb(handles, device), context_mb(device), room_mb(handles, device)
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
            first = _simulated(key, _first_call_copies).reserved_mb
            if room is None or first <= room:
                reserved = max(reserved, first + workspace)
        allocated = memory.allocated_mb + workspace
        size = "small" if allocated < SMALL_MB else "large"
        out.append(
            MemoryEstimate(allocated, reserved, context, parts, f"{group}/{size}", ALLOCATED_SPREAD[group], fits)
        )
    return out


@functools.lru_cache(maxsize=32)
def _simulated(key: GraphKey, working: Workspaces | None) -> Memory:
    return simulate(key.graph, workspaces=working)


@functools.lru_cache(maxsize=32)
def _tight(key: GraphKey, working: Workspaces | None) -> Memory:
    """The least that the call gets by with, whatever there is: the allocator keeps no more than it must."""
    return simulate(key.graph, _simulated(key, working).allocated_mb, working)


def conv_workspaces(device: Device) -> Workspaces | None:
    """What cuDNN takes while convolutions run; None where it takes nothing or nothing is known."""
    if not device.is_nvidia:
        return None
    return _layout_copies if (device.generation or unlisted_generation()).cudnn_layout_copies else None


def _first_call_copies(graph: Graph, batches: np.ndarray) -> dict[int, np.ndarray]:
    return {
        i: taken * (_FIRST_CALL_COPIES if _takes_more_at_first(graph, graph.ops[i]) else 1.0)
        for i, taken in _layout_copies(graph, batches).items()
    }


def _takes_more_at_first(graph: Graph, op: Op) -> bool:
    weight = graph.conv_weight(op)
    return op.kind == "conv_backward" and weight.dtype == "fp32" and min(weight.shape[:2]) > _FEW_CHANNELS[1]


def _layout_copies(graph: Graph, batches: np.ndarray) -> dict[int, np.ndarray]:
    shapes = Shapes(graph, batches)
    out = {}
    for i, op in enumerate(graph.ops):
        if op.kind not in ("conv", "conv_backward"):
            continue
        backward = op.kind == "conv_backward"
        weight = graph.conv_weight(op)
        if all(k == 1 for k in weight.shape[2:]) or graph.depthwise(op) or op.attrs.get("strided"):
            continue  # pointwise and depthwise kernels take tensors as they are; others where channels are last
        few = (
            backward
            and weight.dtype == "fp32"
            and all(_FEW_CHANNELS[0] <= c <= _FEW_CHANNELS[1] for c in weight.shape[:2])
        )
        pixels = shapes.numel(op.inputs[0]) / shapes.dims(op.inputs[0])[1]
        copies = np.where(few & (np.asarray(pixels) >= _MANY_PIXELS), _FEW_CHANNELS_COPIES, _LAYOUT_COPIES)
        moved = shapes.bytes(op.inputs[0]) + shapes.bytes(op.inputs[1] if backward else op.outputs[0])
        out[i] = np.broadcast_to(np.asarray(copies * moved, dtype=float), batches.shape)
    return out


def room_mb(handles: int, device: Device) -> float | None:
    """What the device leaves for tensors beside context and workspaces; None when its memory is not known."""
    if device.memory_mb is None:
        return None
    return max(0.0, device.memory_mb - context_mb(device) - workspace_mb(handles, device))


def context_mb(device: Device) -> float:
    return device.calibrated.get("context_mb", CONTEXT_MB.get(device.kind, 500.0))


def cublas_handles(graph: Graph) -> int:
    """How many threads use cuBLAS: backward passes run in one of their own, with a handle and workspace of its own."""
    if not any(op.kind in ("matmul", "moe_matmul") for op in graph.ops):
        return 0
    return 2 if any(op.phase == "backward" for op in graph.ops) else 1


def workspace_mb(handles: int, device: Device) -> float:
    """cuBLAS workspaces: each handle asks for its own once, through the same allocator as the tensors."""
    if not device.is_nvidia:
        return 0.0
    return handles * ((device.generation or unlisted_generation()).cublas_workspace_mb or 0.0)
