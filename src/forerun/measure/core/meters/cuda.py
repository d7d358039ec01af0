"""An NVIDIA GPU: PyTorch's allocator, CUDA's events and profiler, NVML's counters."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, ClassVar

from .. import quantised
from .base import GraphCapture, KernelProfiler, Meter, Packer, Timer
from .nvml import MEMORY_CLOCK, SM_CLOCK, Nvml

MB = 2**20
#: Fragments of error messages after which CUDA is unusable in this process.
BROKEN = ("CUDA error", "illegal memory access", "device-side assert", "Offset increment", "captur")


class CudaMeter(Meter):
    """GPU 0 of those visible under CUDA_VISIBLE_DEVICES."""

    kind = "cuda"
    device = "cuda"
    priority = 10
    prefers_half = True
    weight_packers: ClassVar[dict[str, Packer]] = {
        "int8": quantised.int8_cast, "int4": quantised.int4_tiles, "nf4": quantised.nf4, "llm_int8": quantised.llm_int8,
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        _count_as_nvml()
        import torch

        self.torch = torch
        self.nvml: Nvml | None = None
        try:
            self.nvml = Nvml(0)
            if self.nvml.energy_mj() is None:
                self.why_no_energy = "NVML gives no total-energy counter for this GPU"
        except OSError as error:
            self.why_no_energy = str(error)
        # Read before the CUDA context exists, to separate the context's memory from the rest.
        self.used_before_mb = self.nvml.used_mb() if self.nvml else None

    @classmethod
    def available(cls) -> bool:
        _count_as_nvml()
        import torch

        return torch.cuda.is_available()

    def describe(self) -> dict[str, Any]:
        properties = self.torch.cuda.get_device_properties(0)
        return {
            "kind": self.kind,
            "name": properties.name,
            "sms": properties.multi_processor_count,
            "memory_mb": properties.total_memory / MB,
            "capability": f"{properties.major}.{properties.minor}",
            "used_before_mb": self.used_before_mb,
            "power_limit_w": self.nvml.power_limit_w() if self.nvml else None,
            "nvml": self.nvml.how if self.nvml else None,
        }

    def versions(self) -> dict[str, Any]:
        cudnn = self.torch.backends.cudnn.version()
        driver = self.nvml.driver() if self.nvml else None
        return {"cuda": self.torch.version.cuda, "cudnn": cudnn, "driver": driver}

    def sync(self) -> None:
        self.torch.cuda.synchronize()

    def timer(self) -> Timer | None:
        event: Timer = self.torch.cuda.Event(enable_timing=True)
        return event

    def total_mb(self) -> float | None:
        return float(self.torch.cuda.get_device_properties(0).total_memory / MB)

    def reset_memory(self) -> None:
        cuda = self.torch.cuda
        cuda.synchronize()
        # cuBLAS workspaces count as live tensors; a fresh process would not have them yet.
        clear = getattr(self.torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        cuda.empty_cache()
        cuda.reset_peak_memory_stats()

    def allocated_mb(self) -> float | None:
        return float(self.torch.cuda.memory_allocated() / MB)

    def memory(self) -> dict[str, float | None]:
        cuda = self.torch.cuda
        return {
            "allocated_mb": cuda.max_memory_allocated() / MB,
            "reserved_mb": cuda.max_memory_reserved() / MB,
            "used_mb": self.nvml.used_mb() if self.nvml else None,
        }

    def energy_mj(self) -> float | None:
        return self.nvml.energy_mj() if self.nvml else None

    def state(self) -> dict[str, float | None]:
        if self.nvml is None:
            return {}
        return {
            "sm_clock_mhz": self.nvml.clock_mhz(SM_CLOCK),
            "memory_clock_mhz": self.nvml.clock_mhz(MEMORY_CLOCK),
            "temperature_c": self.nvml.temperature_c(),
            "power_now_w": self.nvml.power_w(),
        }

    def profiler(self) -> KernelProfiler | None:
        from .cuda_profiler import CudaProfiler

        return CudaProfiler()

    def graphs(self) -> GraphCapture | None:
        from .cuda_graphs import CudaGraphs

        return CudaGraphs()

    @contextlib.contextmanager
    def tf32(self, on: bool) -> Iterator[None]:
        """Sets TF32 for a block, then restores PyTorch's default, TF32 for convolutions only."""
        matmul: Any = self.torch.backends.cuda.matmul
        cudnn: Any = self.torch.backends.cudnn
        matmul.allow_tf32 = cudnn.allow_tf32 = on
        try:
            yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32 = False, True

    def why_no_matmul(self, dtype: str) -> str | None:
        old = dtype == "tf32" and self.torch.cuda.get_device_capability(0) < (8, 0)
        return "tensor cores take TF32 from compute capability 8.0 on" if old else None

    def is_broken_by(self, error: Exception) -> bool:
        text = str(error)
        return any(sign in text for sign in BROKEN) and "out of memory" not in text.lower()


def _count_as_nvml() -> None:
    """Makes CUDA number the GPUs as NVML does; must be set before CUDA is initialised."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
