"""Replay of a call captured as a CUDA graph: its device time without the host's launch cost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from ..errors import CapturePoisonedError

REPLAYS, REPLAY_S = 10, 0.1
_capture_stream: list[Any] = []  # one for the process


class CudaGraphs:
    """Captures on a single stream of the process."""

    def replay(self, call: Callable[[], Any], restore: Callable[[], None] | None, ask_first: bool) -> dict[str, Any]:
        """`graph_ms`, its minimum and the number of replays, or the reason why there is none."""
        if ask_first and synchronises(call, restore):
            return {"graph_ms": None, "graph_ms_reason": "the call waits for the device (it synchronises)"}
        graph = torch.cuda.CUDAGraph()
        try:
            if not _capture_stream:
                # Once per process, to create per-stream state. A stream has its own cached memory, so
                # warming up for every case would cost as many allocations as the case's first call.
                _capture_stream.append(torch.cuda.Stream())
                with torch.cuda.stream(_capture_stream[0]):
                    if restore is not None:
                        restore()
                    call()
            torch.cuda.synchronize()
            if restore is not None:
                restore()
            outputs = _capture(graph, _capture_stream[0], call)
            return _time_replays(graph, outputs)
        except torch.OutOfMemoryError:
            return {"graph_ms": None, "graph_ms_reason": "out of memory while capturing"}
        except Exception as error:  # noqa: BLE001 - any failure to capture is recorded
            cause = error.__context__ or error  # ending a broken capture also raises, with a less useful message
            reason = f"capture failed: {type(cause).__name__}: {cause}".splitlines()[0][:200]
            _check_generator(reason)
            return {"graph_ms": None, "graph_ms_reason": reason}
        finally:
            with contextlib.suppress(Exception):
                graph.reset()
            del graph


def _capture(graph: Any, stream: Any, call: Callable[[], Any]) -> Any:
    """The call's outputs during capture. torch.cuda.graph would collect garbage and empty the cache first."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            return call()
        finally:
            graph.capture_end()


def _time_replays(graph: Any, outputs: Any) -> dict[str, Any]:
    graph.replay()
    torch.cuda.synchronize()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < REPLAYS and (len(times) < 2 or time.perf_counter() - begin < REPLAY_S):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    del outputs
    return {"graph_ms": sum(times) / len(times), "graph_min_ms": min(times), "graph_replays": len(times)}


def synchronises(call: Callable[[], Any], restore: Callable[[], None] | None = None) -> bool:
    """Whether the call synchronises with the device and so cannot be captured."""
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


def _check_generator(reason: str) -> None:
    """Raises CapturePoisonedError if a broken capture left the random generator capturing permanently."""
    try:
        torch.cuda.synchronize()
        torch.randn(8, device="cuda").sum().item()
    except Exception as error:
        raise CapturePoisonedError(reason) from error
