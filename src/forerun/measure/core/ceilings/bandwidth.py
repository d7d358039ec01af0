"""The bandwidth of a device's memory and cache, from streaming kernels over buffers of growing size."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from ..meters import GraphCapture, Meter
from .effort import Effort, best_ms, calls_in

MB = 2**20
SMALLEST, LARGEST = 2**18, 2**32  # bytes that one call touches
ENOUGH = 2**27  # a curve that ends earlier would show a cache instead of the memory
TINY = 2**12  # few enough bytes that the time is the kernel's fixed cost
SHARE_OF_MEMORY = 8  # no buffer takes more than this part of the device's memory
POINT_S, CAPTURED_S, MOST_CAPTURED = 0.06, 0.004, 500
PLATEAU = 3  # octaves at the end of the curve that show the memory
FLOOR_SHARE = 0.3  # above it the net rate depends more on the kernel's fixed cost than on the bytes it moves
CACHE_GAIN = 1.15  # the least ratio of cache to memory bandwidth at which the curve shows a cache
Point = dict[str, Any]


def bandwidth(meter: Meter, effort: Effort) -> dict[str, Any]:
    """The bandwidth curve, and the bandwidth and size of memory and cache derived from it."""
    import torch

    graphs = meter.graphs()
    points: list[Point] = []
    total_mb = meter.total_mb()
    most = LARGEST if total_mb is None else min(LARGEST, total_mb * MB / SHARE_OF_MEMORY)
    with torch.inference_mode():
        floors = {name: _call_ms(meter, graphs, make(numbers(meter, TINY)), effort) for name, make in KERNELS.items()}
        touched, slowest_s = SMALLEST, 0.0
        while touched <= ENOUGH or (touched <= most and slowest_s <= effort.of(4 * POINT_S) and effort.left_s > 0):
            meter.reset_memory()
            buffer = numbers(meter, touched)
            for name, make in KERNELS.items():
                ms = _call_ms(meter, graphs, make(buffer), effort)
                points.append(point(name, touched, ms, floors[name]))
                slowest_s = max(slowest_s, ms / 1e3)
            del buffer
            touched *= 2
        meter.reset_memory()
    how = "replays of a captured graph" if graphs is not None else "many calls without waiting between them"
    return {
        **ceilings(points), "floor_us": {name: 1e3 * ms for name, ms in floors.items()},
        "how": f"{how}; net rates are without the time of the same kernel on {TINY} bytes", "curve": points,
    }  # fmt: skip


def point(kernel: str, touched: int, ms: float, floor_ms: float) -> Point:
    """One point of the curve; `net_gbs` excludes the kernel's fixed cost."""
    net = touched / (ms - floor_ms) / 1e6 if floor_ms <= FLOOR_SHARE * ms else None
    return {"kernel": kernel, "touched_mb": touched / MB, "us": 1e3 * ms, "gbs": touched / ms / 1e6, "net_gbs": net}


def ceilings(points: Iterable[Point]) -> dict[str, Any]:
    """Bandwidth of the memory (the end of the curve) and of the cache (its maximum), and the size at which it drops."""
    curves: dict[str, list[Point]] = {}
    for one in points:
        curves.setdefault(one["kernel"], []).append(one)
    ends = {name: statistics.median(p["gbs"] for p in curve[-PLATEAU:]) for name, curve in curves.items()}
    kernel = max(ends, key=lambda name: ends[name])
    memory = ends[kernel]
    best = max((p for curve in curves.values() for p in curve), key=lambda p: p["net_gbs"] or 0.0)
    out = {"memory_gbs": memory, "memory_kernel": kernel, "memory_gbs_by_kernel": ends,
           "largest_mb": max(p["touched_mb"] for p in curves[kernel])}  # fmt: skip
    if (best["net_gbs"] or 0.0) < CACHE_GAIN * memory:
        reason = "no buffer was faster than the memory by enough to show a cache"
        return {**out, "cache_gbs": None, "cache_mb": None, "cache_reason": reason}
    curve = curves[best["kernel"]]
    between = (best["net_gbs"] * ends[best["kernel"]]) ** 0.5
    held = max(p["touched_mb"] for p in curve if (p["net_gbs"] or 0.0) >= between)
    shown = {"cache_gbs": best["net_gbs"], "cache_kernel": best["kernel"], "cache_best_mb": best["touched_mb"]}
    return {**out, **shown, "cache_mb": held}


def _call_ms(meter: Meter, graphs: GraphCapture | None, call: Callable[[], Any], effort: Effort) -> float:
    """Milliseconds of one call without host time: many calls in one captured graph, or back to back."""
    ms = best_ms(call, meter, effort.of(POINT_S))
    times = calls_in(ms, CAPTURED_S)
    if graphs is None or times < 2:
        return ms
    times = min(times, MOST_CAPTURED)
    replayed = graphs.replay(lambda: [call() for _ in range(times)], None, False)
    captured = replayed.get("graph_min_ms") or replayed["graph_ms"]
    return ms if captured is None else min(ms, captured / times)


def copy(buffer: Any) -> Callable[[], Any]:
    """Copies one half of the buffer to the other."""
    x, y = buffer.chunk(2)
    return lambda: y.copy_(x)


def scale(buffer: Any) -> Callable[[], Any]:
    """Scales one half of the buffer into the other: always a kernel, whereas a copy may run on a copy engine."""
    import torch

    x, y = buffer.chunk(2)
    return lambda: torch.mul(x, 1.5, out=y)


def read(buffer: Any) -> Callable[[], Any]:
    """Reads the whole buffer and writes one number."""
    import torch

    total = torch.empty((), device=buffer.device)
    return lambda: torch.sum(buffer, 0, out=total)


def numbers(meter: Meter, size: int) -> Any:
    """A buffer of one random piece repeated, since drawing gigabytes of random numbers takes longer than measuring."""
    import torch

    buffer = torch.empty(size // 4, device=meter.device)
    piece = torch.rand(TINY // 4, device=meter.device)
    buffer.view(-1, TINY // 4).copy_(piece)
    return buffer


#: Builders of calls that move every byte of a buffer once.
KERNELS: dict[str, Callable[[Any], Callable[[], Any]]] = {"copy": copy, "scale": scale, "read": read}
