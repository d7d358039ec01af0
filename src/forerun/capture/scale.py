"""Derives how a graph scales with the batch from two captures, so that one pair serves every batch size.

Every dimension of every tensor is an affine function of the batch (a constant plus a number per sample); two captures
of the same structure give both numbers. Where the structure itself depends on the batch (some models copy at batch 2
what they view at batch 1), the pair does not match and the caller captures another pair.
"""

from __future__ import annotations

import math
from dataclasses import replace

from forerun.graph.ir import DTYPE_BYTES, Graph, Tensor, stable_attrs


def merge(small: Graph, large: Graph) -> Graph | None:
    """`small` with its slopes filled in from `large` (captured one or more samples larger), or None if they differ."""
    step = large.batch - small.batch
    if step <= 0 or len(small.ops) != len(large.ops) or len(small.tensors) != len(large.tensors):
        return None
    for a, b in zip(small.ops, large.ops, strict=True):
        if (a.kind, a.inputs, a.outputs, a.phase) != (b.kind, b.inputs, b.outputs, b.phase):
            return None
        if a.attrs != b.attrs and stable_attrs(a.attrs) != stable_attrs(b.attrs):
            return None
    tensors = []
    for t, u in zip(small.tensors, large.tensors, strict=True):
        if len(t.shape) != len(u.shape) or t.dtype != u.dtype:
            return None
        growth = [n - m for m, n in zip(t.shape, u.shape, strict=True)]
        if any(g % step or g < 0 for g in growth):
            return None
        slope = tuple(g // step for g in growth)
        tensors.append(replace(t, per_sample=slope if any(slope) else None))
    if len(small.storages) != len(large.storages):
        return None
    squares = _squares(tensors)
    if squares is None:
        return None
    storages = []
    for i, (old, new) in enumerate(zip(small.storages, large.storages, strict=True)):
        square = squares.get(i, 0)
        linear = (new.bytes - old.bytes - square * step * step) // step
        storages.append(replace(old, per_sample=max(0, linear), per_sample2=square))
    # A batch of 1 hides strides: the larger graph has the layouts of inputs.
    return replace(small, ops=large.ops, tensors=tensors, storages=storages, scalable=True, min_batch=small.batch)


def _squares(tensors: list[Tensor]) -> dict[int, int] | None:
    """Bytes that grow with the square of the batch, per storage; None where a size grows faster."""
    squares: dict[int, int] = {}
    for t in tensors:
        growing = [g for g in t.per_sample or () if g]
        if len(growing) > 2:
            return None
        if len(growing) == 2:
            rest = math.prod(d for d, g in zip(t.shape, t.per_sample or (), strict=True) if not g)
            squares[t.storage] = max(squares.get(t.storage, 0), round(math.prod(growing) * rest * DTYPE_BYTES[t.dtype]))
    return squares
