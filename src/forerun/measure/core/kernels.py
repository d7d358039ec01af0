"""Device time of a call: the profiler's kernel durations, and the replay of a captured CUDA graph."""

from __future__ import annotations

import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from .errors import CapturePoisonedError

REPLAYS, REPLAY_S = 10, 0.1
_side: list[Any] = []  # the stream that captures
_CLASSES = (
    ("copy", r"^memcpy|copy_kernel|CatArray|cat_|DtoD"),
    ("memset", r"^memset"),
    ("attention", r"flash|fmha|attention|cudnn_generated_fort_native_sdpa"),
    ("conv", r"conv|wgrad|dgrad|fprop|winograd|implicit|im2col|nchwToNhwc|nhwcToNchw|cudnn"),
    ("gemm", r"gemm|cutlass|cublas|sgemm|xmma|splitK|gemv|nvjet|matmul"),
    ("norm", r"norm|bn_fw|bn_bw|batch_norm|layer_norm|Welford|welford"),
    ("softmax", r"softmax"),
    ("optimizer", r"multi_tensor|adam|foreach"),
    ("reduce", r"reduce|Reduce"),
    ("pool", r"pool"),
    ("index", r"index|gather|scatter|embedding|sort|topk|radix"),
    ("elementwise", r"elementwise|vectorized|pointwise|unrolled|triu|tril|arange|fill"),
)
_PATTERNS = [(name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _CLASSES]


def timer() -> Any:
    """A CUDA event that keeps the time."""
    import torch

    return torch.cuda.Event(enable_timing=True)


def kernel_class(name: str) -> str:
    """A coarse class by the kernel's name; a guide for reading rows, not a law."""
    for label, pattern in _PATTERNS:
        if pattern.search(name):
            return label
    return "other"


def device_events(profiler: Any) -> list[tuple[str, int, int]]:
    """(name, start, duration) in ns of every kernel, copy and memset of a finished session of the profiler."""
    from torch._C._autograd import DeviceType

    # The raw events: building PyTorch's event tree takes far longer than the calls themselves.
    found = []
    for event in profiler.kineto_results.events():
        if event.device_type() != DeviceType.CUDA or event.is_user_annotation():
            continue
        if not event.name().startswith(("Optimizer.", "ProfilerStep")):
            found.append((event.name(), event.start_ns(), event.duration_ns()))
    return found


def kernel_times(call: Callable[[], Any], restore: Callable[[], None] | None, calls: int) -> dict[str, Any]:
    """`kernel_ms` (sum of all device activity in one call), how many, by class, and the heaviest by name."""
    import torch
    from torch.autograd.profiler import profile

    try:
        with profile(use_cpu=False, use_device="cuda", use_kineto=True) as profiler:
            for _ in range(calls):
                if restore is not None:
                    restore()
                call()
            torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - whatever the profiler does, the row keeps its other results
        return {"kernel_ms": None, "kernel_ms_reason": f"the profiler failed: {error}"[:200]}
    by_name: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for name, _, ns in device_events(profiler):
        entry = by_name[name]
        entry[0] += ns / 1e6
        entry[1] += 1
    if not by_name:
        return {"kernel_ms": None, "kernel_ms_reason": "the profiler saw no kernels"}
    classes: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for name, (ms, count) in by_name.items():
        entry = classes[kernel_class(name)]
        entry[0] += ms / calls
        entry[1] += count / calls
    heaviest = sorted(by_name.items(), key=lambda item: -item[1][0])[:5]
    copies = sum(entry[1] for name, entry in by_name.items() if name.startswith(("Memcpy", "Memset")))
    return {
        "kernel_ms": sum(entry[0] for entry in by_name.values()) / calls,
        "kernels": (sum(entry[1] for entry in by_name.values()) - copies) / calls,
        "copies": copies / calls,
        "kernel_classes": {k: [round(ms, 5), round(n, 2)] for k, (ms, n) in sorted(classes.items())},
        "top_kernels": [[name[:90], round(ms / calls, 5), round(n / calls, 2)] for name, (ms, n) in heaviest],
        "profiled_calls": calls,
    }


def graph_replay(call: Callable[[], Any], restore: Callable[[], None] | None, ask: bool) -> dict[str, Any]:
    """`graph_ms`: one replay of the call as a CUDA graph, so without the host's launch cost."""
    import torch

    if ask and synchronises(call, restore):
        return {"graph_ms": None, "graph_ms_reason": "the call waits for the device (it synchronises)"}
    graph = torch.cuda.CUDAGraph()
    try:
        if not _side:
            # Once in a process, so that what is set up per stream exists. A stream has its own cached memory, so doing
            # this for every case would cost as many allocations as the case's first call.
            _side.append(torch.cuda.Stream())
            with torch.cuda.stream(_side[0]):
                if restore is not None:
                    restore()
                call()
        torch.cuda.synchronize()
        if restore is not None:
            restore()
        kept = _capture(graph, _side[0], call)
        return _time_replays(graph, kept)
    except torch.cuda.OutOfMemoryError:
        return {"graph_ms": None, "graph_ms_reason": "out of memory while capturing"}
    except Exception as error:  # noqa: BLE001 - any failure to capture is a fact to record
        cause = error.__context__ or error  # ending a broken capture raises too, and says less
        reason = f"capture failed: {type(cause).__name__}: {cause}".splitlines()[0][:200]
        _check_sound(reason)
        return {"graph_ms": None, "graph_ms_reason": reason}
    finally:
        with contextlib.suppress(Exception):
            graph.reset()
        del graph


def _capture(graph: Any, stream: Any, call: Callable[[], Any]) -> Any:
    """What the call gives while it is captured. torch.cuda.graph would collect garbage and empty the cache first."""
    import torch

    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            return call()
        finally:
            graph.capture_end()


def _time_replays(graph: Any, kept: Any) -> dict[str, Any]:
    from torch.cuda import synchronize

    graph.replay()
    synchronize()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < REPLAYS and (len(times) < 2 or time.perf_counter() - begin < REPLAY_S):
        start, end = timer(), timer()
        start.record()
        graph.replay()
        end.record()
        synchronize()
        times.append(start.elapsed_time(end))
    del kept
    return {"graph_ms": sum(times) / len(times), "graph_min_ms": min(times), "graph_replays": len(times)}


def synchronises(call: Callable[[], Any], restore: Callable[[], None] | None = None) -> bool:
    """Whether the call waits for the device, so that it cannot be captured."""
    import torch

    if restore is not None:
        restore()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
        return False
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _check_sound(reason: str) -> None:
    """A broken capture can leave the random generator capturing for good: then this process must be replaced."""
    import torch

    try:
        torch.cuda.synchronize()
        torch.randn(8, device="cuda").sum().item()
    except Exception as error:
        raise CapturePoisonedError(reason) from error
