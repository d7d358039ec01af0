"""Channel counts off the grid of matrix units: which there are, and the graph with them rounded up.

In half precision matrix units take rows of 8 numbers; a size that is no multiple of 8 runs in slower kernels.
"""

from __future__ import annotations

import math
from dataclasses import replace

from forerun.graph.ir import Graph, Op, Storage

#: Sizes are rounded up to a multiple of the first; those of at least the third, such as vocabularies, of the second.
_GRID, _WIDE_GRID, _WIDE = 8, 64, 1024
#: Smaller sizes are those of images or gates: rounding them up multiplies their work.
_SMALLEST = 16


def off_grid(graph: Graph) -> dict[int, tuple[int, str]]:
    """Channel counts of half-precision layers that are off the grid: the next size on it, and a layer that has it."""
    places: dict[int, tuple[int, str]] = {}
    for op in graph.ops:
        for size in _channels(graph, op):
            if size >= _SMALLEST and size % _GRID:
                step = _WIDE_GRID if size >= _WIDE else _GRID
                places.setdefault(size, (-(-size // step) * step, op.scope))
    return places


def _channels(graph: Graph, op: Op) -> tuple[int, ...]:
    """Channels in and out of a layer in half precision."""
    if op.kind == "conv" and op.attrs.get("groups", 1) == 1:
        weight = graph.conv_weight(op)
        return weight.shape[:2] if weight.dtype in ("fp16", "bf16") else ()
    if op.kind == "matmul" and op.attrs.get("shared_b"):
        weight = graph.tensors[op.inputs[1]]
        return weight.shape[-2:] if weight.dtype in ("fp16", "bf16") else ()
    return ()


def widened(graph: Graph, sizes: dict[int, int]) -> Graph:
    """The graph with these channel counts replaced, wherever a tensor has them; what grows with the batch stays."""
    tensors = []
    grown: dict[int, float] = {}
    for t in graph.tensors:
        slopes = t.per_sample or (0,) * len(t.shape)
        shape = tuple(d if slope else sizes.get(d, d) for d, slope in zip(t.shape, slopes, strict=True))
        tensors.append(replace(t, shape=shape) if shape != t.shape else t)
        if shape != t.shape and (before := math.prod(t.shape)):
            grown[t.storage] = max(grown.get(t.storage, 1.0), math.prod(shape) / before)
    storages = [_grown(s, grown.get(i, 1.0)) for i, s in enumerate(graph.storages)]
    added = sum(
        (math.prod(new.shape) - math.prod(old.shape)) * graph.storages[old.storage].repeat
        for old, new in {t.storage: (t, n) for t, n in zip(graph.tensors, tensors, strict=True)}.values()
        if graph.storages[old.storage].role == "parameter"
    )
    note = f"channel counts are rounded up: {', '.join(f'{a} to {b}' for a, b in sorted(sizes.items()))}"
    return replace(
        graph, tensors=tensors, storages=storages, parameters=graph.parameters + added,
        active_parameters=graph.active_parameters + added, notes=[*graph.notes, note],
    )  # fmt: skip


def _grown(storage: Storage, by: float) -> Storage:
    if by == 1.0:
        return storage
    sizes = {name: round(getattr(storage, name) * by) for name in ("bytes", "per_sample", "per_sample2")}
    return replace(storage, **sizes)
