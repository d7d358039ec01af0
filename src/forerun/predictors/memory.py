"""Device memory of a call: tensors by liveness, library workspaces, the allocator's segments, the runtime's context."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.device import Device
from forerun.graph.ir import Graph
from forerun.graph.memory import Memory, simulate

#: What the runtime takes before the first tensor: CUDA context, loaded kernels.
CONTEXT_MB = {"gpu": 900.0, "soc": 500.0, "tpu": 500.0, "asic": 500.0, "cpu": 250.0}
#: cuBLAS asks for its workspace once, through the same allocator.
WORKSPACE_MB = {"hopper": 34.0, "blackwell": 34.0}
DEFAULT_WORKSPACE_MB = 16.0
#: Liveness is within 1 % on transformers. cuDNN takes workspaces of its own choice: a little for convolutions, and for
#: their gradients on small images as much as all else together.
ALLOCATED_SPREAD = {"plain": (0.97, 1.05), "conv": (0.9, 1.3), "conv_backward": (0.9, 2.0)}
#: The context differs by driver, and by how many kernels get loaded.
CONTEXT_SPREAD = (0.4, 1.7)


@dataclass(frozen=True)
class MemoryEstimate:
    allocated_mb: float
    reserved_mb: float
    context_mb: float
    parts_mb: dict[str, float]
    spread: tuple[float, float]  # interval factors of what is allocated
    fits: bool | None  # None: the device's memory is not known

    @property
    def needed_mb(self) -> float:
        return self.reserved_mb + self.context_mb


def estimate(graph: Graph, device: Device, memory: Memory | None = None) -> MemoryEstimate:
    """Memory of one call of `graph` at its batch size on `device`; `memory` is its simulation, if already at hand."""
    memory = memory or simulate(graph)
    workspace = workspace_mb(graph, device)
    context = context_mb(device)
    room = room_mb(graph, device)
    if room is not None and memory.reserved_mb > room:
        memory = simulate(graph, room)  # what is cached but free is given back when it gets tight
    parts = dict(memory.by_role_mb)
    if workspace:
        parts["workspace"] = workspace
    parts["context"] = context
    kinds = {op.kind for op in graph.ops}
    spread = ALLOCATED_SPREAD[next((k for k in ("conv_backward", "conv") if k in kinds), "plain")]
    fits = None if room is None else memory.fits
    reserved = memory.reserved_mb + workspace
    return MemoryEstimate(memory.allocated_mb + workspace, reserved, context, parts, spread, fits)


def room_mb(graph: Graph, device: Device) -> float | None:
    """What the device leaves for tensors beside context and workspaces; None when its memory is not known."""
    if device.memory_mb is None:
        return None
    return max(0.0, device.memory_mb - context_mb(device) - workspace_mb(graph, device))


def context_mb(device: Device) -> float:
    return device.calibrated.get("context_mb", CONTEXT_MB.get(device.kind, 500.0))


def workspace_mb(graph: Graph, device: Device) -> float:
    if device.vendor != "NVIDIA" or not any(op.kind in ("matmul", "moe_matmul") for op in graph.ops):
        return 0.0
    return WORKSPACE_MB.get(device.architecture or "", DEFAULT_WORKSPACE_MB)
