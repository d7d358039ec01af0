"""Whether a case fits in memory, its margin, and the largest batch that fits."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Protocol

import numpy as np

from forerun.device import Device
from forerun.graph.ir import Graph, GraphKey
from forerun.graph.memory import Workspaces, peak_allocated_mb, runs_within
from forerun.prediction import Fit
from forerun.predictors.laws.memory import (
    MemoryEstimate,
    available_mb,
    cublas_handles,
    room_mb,
    surely_fits,
)
from forerun.predictors.laws.workspaces import library_workspaces, with_reserves

#: The largest batch that is tried.
MAX_BATCH = 2**20
#: Steps of bisection whose candidates are prepared together.
ROUND = 4


class BatchLimit(Protocol):
    """The measured limit of a case: the largest batch that ran (0: none did), the smallest that ran out of memory."""

    @property
    def ran_batch(self) -> int: ...

    @property
    def oom_batch(self) -> int: ...

    def fits(self, batch: int) -> bool | None: ...


def fit(graph: Graph, scalable: Graph | None, device: Device, memory: MemoryEstimate) -> Fit | None:
    """Compares the memory of a case with the device's; None when the device's memory is unknown.

    `scalable` is the graph for other batch sizes, or None when there is none.
    """
    room, available = room_mb(cublas_handles(graph), device), available_mb(device)
    if room is None or available is None or memory.fits is None:
        return None
    free = available - memory.needed_mb
    sure = bool(surely_fits(memory, device))
    if scalable is None:
        return Fit(memory.fits, free, None, sure, "the model was captured at one batch size only")
    largest = largest_batch(GraphKey(with_reserves(scalable)), room, library_workspaces(device))
    return Fit(memory.fits, free, max(largest, graph.batch if memory.fits else 0), sure)


def as_measured(estimated: Fit | None, batch: int, limit: BatchLimit | None, *, ran: bool) -> Fit | None:
    """The verdict with what was measured on the device: that this batch `ran`, or the limit of the case. Between the
    two ends of a limit the estimate remains."""
    if estimated is None or (limit is None and not ran):
        return estimated
    fits = True if ran else limit.fits(batch) if limit is not None else None
    verdict = estimated if fits is None else replace(estimated, fits=fits, sure=True)
    if estimated.largest_batch is None:
        return verdict
    runs = max(limit.ran_batch if limit is not None else 0, batch if verdict.fits else 0)
    if limit is not None and limit.ran_batch:
        return replace(verdict, largest_batch=runs)
    most = limit.oom_batch - 1 if limit is not None else MAX_BATCH
    return replace(verdict, largest_batch=min(max(estimated.largest_batch, runs), most))


@functools.lru_cache(maxsize=64)
def largest_batch(key: GraphKey, room: float, working: Workspaces | None = None) -> int:
    """The largest batch whose tensors and workspaces fit into `room` MB, 0 when even the smallest does not."""
    graph = key.graph
    high = _largest_by_tensors(graph, room, working)
    low = graph.min_batch
    if high == 0:
        return 0
    runs = runs_within(graph, np.array([low, high]), room, working)
    if runs(high):
        return high
    low = low if runs(low) else 0
    while high - low > 1:  # segments are rounded: slightly less than the tensors alone would allow
        runs = runs_within(graph, np.array(_midpoints(low, high, ROUND)), room, working)
        for _ in range(ROUND):
            if high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if runs(middle) else (low, middle)
    return low


def _midpoints(low: int, high: int, levels: int) -> list[int]:
    """Every number that bisection between the two may try in its next `levels` steps."""
    if levels == 0 or high - low <= 1:
        return []
    middle = (low + high) // 2
    return [middle, *_midpoints(low, middle, levels - 1), *_midpoints(middle, high, levels - 1)]


def _largest_by_tensors(graph: Graph, room: float, working: Workspaces | None) -> int:
    low, high = graph.min_batch, MAX_BATCH
    if peak_allocated_mb(graph, np.array([low]), working)[0] > room:
        return 0
    while high - low > 1:  # 64 candidates a round: four rounds reach a million
        candidates = np.array(sorted(set(np.linspace(low, high, 66).astype(int).tolist())))
        fits = peak_allocated_mb(graph, candidates, working) <= room
        if fits.all():
            return int(high)
        first_miss = int(np.argmin(fits))
        low, high = int(candidates[first_miss - 1]), int(candidates[first_miss])
    return low
