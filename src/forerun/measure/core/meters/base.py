"""The interface of a meter: what measuring needs of a device, with a default for each part that a device may lack."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Protocol

#: A kernel, copy or memset that ran: its name, and its start and duration in nanoseconds.
Record = tuple[str, int, int]
#: Makes packed weights of n x k on a device: (kernel of x, weights and scales; its name in rows; weights; scales).
Packer = Callable[[int, int, Any], tuple[Callable[[Any, Any, Any], Any], str, Any, Any]]


class Timer(Protocol):
    """A time stamp that the device takes between two pieces of its work, such as a CUDA event."""

    def record(self) -> None: ...

    def synchronize(self) -> None:
        """Waits until the device has passed it."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds from this time stamp to `end`."""
        ...


class KernelProfiler(Protocol):
    """A session (`with profiler:`) that records every kernel between its start and its end."""

    marker: str  # part of the name of the kernel that mark() launches

    def mark(self) -> None:
        """Launches a kernel that separates the records of two pieces of work."""

    def records(self) -> list[Record]:
        """What ran, once the session has ended."""
        ...

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class GraphCapture(Protocol):
    """Captures the launches of a call once and runs them again without the host, such as a CUDA graph."""

    def replay(self, call: Callable[[], Any], restore: Callable[[], None] | None, ask_first: bool) -> dict[str, Any]:
        """`graph_ms`, one replay of the captured call, or `graph_ms_reason`.

        `restore` undoes the effect of a call. With `ask_first` a call that would break the capture is recognised before
        it is captured. Raises CapturePoisonedError when a broken capture leaves the process unusable.
        """
        ...


class Meter:
    """Reads one device. A vendor is one subclass, registered under the entry point group `forerun.meters`.

    A subclass sets `kind` and `device`, checks in `available` whether such a device is here, and overrides what the
    device can measure. The rest stays None, and the matching `why_no_...` gives the reason for the rows.
    """

    kind: ClassVar[str] = "unknown"  # what the device is called in rows and by --device
    device: ClassVar[str] = "cpu"  # PyTorch's device type, for tensors, autocast and GradScaler
    priority: ClassVar[int] = 0  # the highest available one is chosen by `--device auto`
    is_host: ClassVar[bool] = False  # the machine's own CPU: what it launches runs before the launch returns
    prefers_half: ClassVar[bool] = False  # attention is launched in fp16 to see its usual path
    weight_packers: ClassVar[dict[str, Packer]] = {}  # kernels for int8 and int4 weights, by dtype

    def __init__(self) -> None:
        self.why_no_energy = "no energy counter on this machine"
        self.why_no_kernels = "no device profiler on this machine"
        self.why_no_graph = "the device has no graph capture"

    @classmethod
    def available(cls) -> bool:
        """Whether this machine has such a device and PyTorch can use it."""
        return False

    def describe(self) -> dict[str, Any]:
        """What the device is: at least its kind and its name."""
        return {"kind": self.kind, "name": "unknown"}

    def versions(self) -> dict[str, Any]:
        """The vendor's software that a row depends on."""
        return {"cuda": None, "cudnn": None, "driver": None}

    def sync(self) -> None:
        """Waits until the device has done all its work."""

    def timer(self) -> Timer | None:
        """A new time stamp of the device; None: only the wall clock times calls."""
        return None

    def loop_ms(self, call: Callable[[], Any], times: int) -> float:
        """Milliseconds of `times` calls one after another, by the device's time stamps, else by the wall clock."""
        start, end = self.timer(), self.timer()
        self.sync()
        begin = time.perf_counter()
        if start is not None:
            start.record()
        for _ in range(times):
            call()
        if end is not None:
            end.record()
        self.sync()
        wall = 1e3 * (time.perf_counter() - begin)
        return wall if start is None or end is None else float(start.elapsed_time(end))

    def total_mb(self) -> float | None:
        """All the memory that the device has."""
        return None

    def reset_memory(self) -> None:
        """Frees cached memory and workspaces, and starts the peak anew."""

    def allocated_mb(self) -> float | None:
        """Memory of live tensors at this moment."""
        return None

    def memory(self) -> dict[str, float | None]:
        """Peaks since reset_memory: of live tensors, of what the allocator reserved, and of all that is in use."""
        return {"allocated_mb": None, "reserved_mb": None, "used_mb": None}

    def energy_mj(self) -> float | None:
        """A counter of millijoules that only grows."""
        return None

    def state(self) -> dict[str, float | None]:
        """Clocks, temperature and power at this moment."""
        return {}

    def profiler(self) -> KernelProfiler | None:
        """A new profiler of kernels; None: `why_no_kernels`."""
        return None

    def graphs(self) -> GraphCapture | None:
        """What captures a call as one graph of launches; None: `why_no_graph`."""
        return None

    def tf32(self, on: bool) -> contextlib.AbstractContextManager[None]:
        """Single precision on tensor cores, or not at all, where the device has a choice."""
        return contextlib.nullcontext()

    def why_no_matmul(self, dtype: str) -> str | None:
        """Why a matrix product in this dtype would say nothing of the device; None: it can be tried."""
        return "the device has no TF32 mode" if dtype == "tf32" else None

    def is_broken_by(self, error: Exception) -> bool:
        """Whether the device cannot be used by this process any more."""
        return False
