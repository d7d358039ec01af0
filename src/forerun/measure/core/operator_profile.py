"""Device time of operators from profiler records: one session for many cases, separated by marker kernels.

Each case is warmed up before the session, in which it is a marker kernel followed by its calls. The records between two
markers belong to one case, so no clocks need to be matched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import TooSlowError
from .kernels import is_copy
from .meters import KernelProfiler, Meter, Record
from .protocol import SLOW_CALL_S, summary
from .worker import why

WARMUPS, CALLS, SLOW_CALLS, SLOW_MS = 3, 5, 2, 20.0
WALL_CALLS, WALL_CALLS_MIN, WALL_S = 20, 3, 0.2


@dataclass
class Ready:
    """A warmed-up case with its inputs on the device."""

    case: dict[str, Any]
    call: Callable[[], Any]
    calls: int = CALLS
    once_ms: float | None = None


def warm_up(case: dict[str, Any], call: Callable[[], Any], meter: Meter) -> Ready:
    """Three calls before a profiler session; the last one is timed, since slow operators get fewer calls in it."""
    ready = Ready(case, call)
    if meter.profiler() is None:
        return ready
    with meter.tf32(case["dtype"] == "tf32"):
        for i in range(WARMUPS):
            ready.once_ms = _once_ms(call, meter)
            if i and ready.once_ms > 1e3 * SLOW_CALL_S:
                raise TooSlowError(f"one call takes {ready.once_ms:.0f} ms, over the limit of {SLOW_CALL_S} s")
    if (ready.once_ms or 0.0) > SLOW_MS:
        ready.calls = SLOW_CALLS
    return ready


def _once_ms(call: Callable[[], Any], meter: Meter) -> float:
    """Milliseconds of one call by device time stamps, else by the wall clock."""
    start, end = meter.timer(), meter.timer()
    if start is None or end is None:
        begin = time.perf_counter()
        call()
        meter.sync()
        return 1e3 * (time.perf_counter() - begin)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def by_profiler(
    ready: list[Ready], meter: Meter, profiler: KernelProfiler, report: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """A row for each case in order; {} for cases after one that broke the process."""
    failures: dict[int, Exception] = {}
    begun, broken = 0, False
    with profiler:
        for i, one in enumerate(ready):
            report(one.case)
            begun += 1
            try:
                profiler.mark()
                with meter.tf32(one.case["dtype"] == "tf32"):
                    for _ in range(one.calls):
                        one.call()
                meter.sync()
            except Exception as error:  # noqa: BLE001 - a failure is a row
                error.__traceback__ = None
                failures[i] = error
                if meter.is_broken_by(error):
                    broken = True
                    break
        if not broken:
            profiler.mark()
            meter.sync()
    parts = None if broken else split(profiler.records(), begun, profiler.marker)
    rows: list[dict[str, Any]] = []
    for i, one in enumerate(ready):
        if i in failures:
            status, reason = why(failures[i])
            rows.append({"status": status, "reason": reason, "sticky": meter.is_broken_by(failures[i])})
        elif broken:
            rows.append({})
        elif parts is None:
            rows.append({"status": "error", "reason": "the profiler lost records", "lost": True})
        elif not parts[i] and one.once_ms:
            rows.append({"status": "error", "reason": "the profiler saw no kernels", "lost": True})
        else:
            rows.append({"status": "ok", **summarise(parts[i], one.calls), "once_ms": one.once_ms})
    return rows


def split(records: list[Record], cases: int, marker: str) -> list[list[Record]] | None:
    """The records of each case, or None if a marker is missing."""
    parts: list[list[Record]] = []
    for record in sorted(records, key=lambda record: record[1]):
        if marker in record[0]:
            parts.append([])
        elif parts:
            parts[-1].append(record)
    return parts[:cases] if len(parts) == cases + 1 else None


def summarise(records: list[Record], calls: int) -> dict[str, Any]:
    """`device_ms` is the time in kernels and copies of one call; min and max if every call has equally many records."""
    total = sum(ns for _, _, ns in records) / 1e6
    copies = sum(is_copy(name) for name, _, _ in records)
    out: dict[str, Any] = {
        "method": "profiler",
        "device_ms": total / calls,
        "device_min_ms": None,
        "device_max_ms": None,
        "kernels": (len(records) - copies) / calls,
        "copies": copies / calls,
        "calls": calls,
    }
    if records and len(records) % calls == 0:
        n = len(records) // calls
        each = [sum(ns for _, _, ns in records[i * n : (i + 1) * n]) / 1e6 for i in range(calls)]
        out.update(device_min_ms=min(each), device_max_ms=max(each))
    by_name: dict[str, int] = {}
    for name, _, ns in records:
        by_name[name] = by_name.get(name, 0) + ns
    out["kernel_names"] = [name[:80] for name in sorted(by_name, key=lambda name: -by_name[name])[:4]]
    return out


def by_wall(call: Callable[[], Any], meter: Meter) -> dict[str, Any]:
    """Wall-clock times of up to 20 synchronised calls, for devices without a profiler."""
    times: list[float] = []
    begin = time.perf_counter()
    call()
    meter.sync()
    while len(times) < WALL_CALLS and (len(times) < WALL_CALLS_MIN or time.perf_counter() - begin < WALL_S):
        start = time.perf_counter()
        call()
        meter.sync()
        times.append(1e3 * (time.perf_counter() - start))
    spread = summary(times)
    times_ms = {"device_ms": spread["median"], "device_min_ms": spread["min"], "device_max_ms": max(times)}
    return {"method": "wall", "calls": len(times), **times_ms}
