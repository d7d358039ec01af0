"""Does it fit, by how much, and the largest batch that does."""

from __future__ import annotations

import numpy as np

from forerun.device import Device
from forerun.graph.ir import Graph
from forerun.graph.memory import peak_allocated_mb
from forerun.prediction import Fit
from forerun.predictors.memory import MemoryEstimate

#: Batches beyond this are of no use to anyone.
MAX_BATCH = 2**20


def fit(graph: Graph, scalable: Graph | None, device: Device, memory: MemoryEstimate) -> Fit | None:
    """Holds a case's memory against the device's; None when the device's memory is not known.

    `scalable` is the graph that serves other batch sizes, when there is one.
    """
    if device.memory_mb is None:
        return None
    free = device.memory_mb - memory.needed_mb
    if scalable is None:
        return Fit(free >= 0, free, None, "the model was captured at one batch size only")
    found = largest_batch(scalable, device.memory_mb, memory)
    return Fit(free >= 0, free, max(found, graph.batch if free >= 0 else 0))


def largest_batch(graph: Graph, memory_mb: float, memory: MemoryEstimate) -> int:
    """The largest batch whose memory fits, 0 when even the smallest does not.

    What the allocator holds beyond live tensors is taken to grow as they do: the ratio at this batch holds at others.
    """
    overhead = memory.reserved_mb / max(memory.allocated_mb, 1e-9)
    room = (memory_mb - memory.context_mb) / max(overhead, 1.0) - memory.parts_mb.get("workspace", 0.0)
    low, high = graph.min_batch, MAX_BATCH
    if peak_allocated_mb(graph, np.array([low]))[0] > room:
        return 0
    while high - low > 1:  # 64 candidates a round: four rounds reach a million
        candidates = np.unique(np.linspace(low, high, 66).astype(int))
        fits = peak_allocated_mb(graph, candidates) <= room
        if fits.all():
            return int(high)
        first_miss = int(np.argmin(fits))
        low, high = int(candidates[first_miss - 1]), int(candidates[first_miss])
    return low
