"""Kernel records of an NVIDIA GPU from PyTorch's profiler."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from .base import Record


class CudaProfiler:
    """A profiler session. After one, all later launches of the process are slower."""

    marker = "spin_kernel"

    def __init__(self) -> None:
        self.session: Any = None

    def __enter__(self) -> CudaProfiler:
        from torch.autograd.profiler import profile

        self.session = profile(use_cpu=False, use_device="cuda", use_kineto=True)
        self.session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.__exit__(kind, error, trace)

    def mark(self) -> None:
        import torch

        torch.cuda._sleep(1)

    def records(self) -> list[Record]:
        from torch._C._autograd import DeviceType

        # Raw events, since building PyTorch's event tree takes far longer than the calls themselves.
        kernels = []
        for event in self.session.kineto_results.events():
            if event.device_type() != DeviceType.CUDA or event.is_user_annotation():
                continue
            if not event.name().startswith(("Optimizer.", "ProfilerStep")):
                kernels.append((event.name(), event.start_ns(), event.duration_ns()))
        return kernels
