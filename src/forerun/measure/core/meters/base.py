"""The interface of a meter: what a measurement needs from a device, with a default for every optional part."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Protocol

#: The record of a kernel, copy or memset: its name, and its start and duration in nanoseconds.
Record = tuple[str, int, int]
#: Makes packed weights of n x k on a device: (kernel of x, weights and scales; its name in rows; weights; scales).
Packer = Callable[[int, int, Any], tuple[Callable[[Any, Any, Any], Any], str, Any, Any]]


class Timer(Protocol):
    """A time stamp taken by the device between two pieces of work, such as a CUDA event."""

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
        """All records, available once the session has ended."""
        ...

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class GraphCapture(Protocol):
    """Captures the launches of a call once and replays them without the host, such as a CUDA graph."""

    def replay(self, call: Callable[[], Any], restore: Callable[[], None] | None, ask_first: bool) -> dict[str, Any]:
        """`graph_ms`, one replay of the captured call, or `graph_ms_reason`.

        `restore` undoes the effect of a call. With `ask_first` a call that would break the capture is detected before
        the capture starts. Raises CapturePoisonedError when a broken capture leaves the process unusable.
        """
        ...


class Meter:
    """Reads one device. A vendor is one subclass, registered under the entry point group `forerun.meters`.

    A subclass sets `kind` and `device`, checks in `available` whether such a device is present, and overrides what the
    device can measure. Everything else stays None, with the reason in the matching `why_no_...`, which goes into rows.
    """

    kind: ClassVar[str] = "unknown"  # the name of the device in rows and for --device
    device: ClassVar[str] = "cpu"  # PyTorch's device type, for tensors, autocast and GradScaler
    priority: ClassVar[int] = 0  # the highest available one is chosen by `--device auto`
    is_host: ClassVar[bool] = False  # the machine's CPU: work finishes before its launch returns
    prefers_half: ClassVar[bool] = False  # attention is probed in fp16, to time its common path
    weight_packers: ClassVar[dict[str, Packer]] = {}  # kernels for int8 and int4 weights, by dtype

    def __init__(self) -> None:
        self.why_no_energy = "no energy counter on this machine"
        self.why_no_kernels = "no device profiler on this machine"
        self.why_no_graph = "the device has no graph capture"

    @classmethod
    def available(cls) -> bool:
        """Whether this machine has such a device that PyTorch can use."""
        return False

    def describe(self) -> dict[str, Any]:
        """A description of the device: at least its kind and its name."""
        return {"kind": self.kind, "name": "unknown"}

    def versions(self) -> dict[str, Any]:
        """Versions of the vendor's software."""
        return {"cuda": None, "cudnn": None, "driver": None}

    def sync(self) -> None:
        """Waits until the device has finished all its work."""

    def timer(self) -> Timer | None:
        """A new device time stamp; None if calls are timed by the wall clock only."""
        return None

    def loop_ms(self, call: Callable[[], Any], times: int) -> float:
        """Milliseconds of `times` back-to-back calls, by the device's time stamps, else by the wall clock."""
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
        """The total memory of the device."""
        return None

    def reset_memory(self) -> None:
        """Frees cached memory and workspaces, and resets the peak."""

    def allocated_mb(self) -> float | None:
        """Current memory of live tensors."""
        return None

    def memory(self) -> dict[str, float | None]:
        """Peaks since reset_memory: live tensors, memory reserved by the allocator, and total memory in use."""
        return {"allocated_mb": None, "reserved_mb": None, "used_mb": None}

    def energy_mj(self) -> float | None:
        """A monotonic energy counter in millijoules."""
        return None

    def state(self) -> dict[str, float | None]:
        """Current clocks, temperature and power."""
        return {}

    def profiler(self) -> KernelProfiler | None:
        """A new profiler of kernels; None: `why_no_kernels`."""
        return None

    def graphs(self) -> GraphCapture | None:
        """A new capture of calls as graphs; None: `why_no_graph`."""
        return None

    def tf32(self, on: bool) -> contextlib.AbstractContextManager[None]:
        """Enables or disables single precision on tensor cores, where the device has the choice."""
        return contextlib.nullcontext()

    def why_no_matmul(self, dtype: str) -> str | None:
        """Why a matmul in this dtype is meaningless on the device; None if it can be tried."""
        return "the device has no TF32 mode" if dtype == "tf32" else None

    def is_broken_by(self, error: Exception) -> bool:
        """Whether the error left the device unusable for this process."""
        return False
