"""Learns how a graph grows with the batch from two captures, so that one capture pair serves every batch size.

Every dimension of every tensor is an affine function of the batch (a constant, or so many per sample); two captures of
the same structure give both numbers. Where the structure itself depends on the batch (some models copy at batch 2
what they view at batch 1), the pair does not match and the caller captures another pair.
"""

from __future__ import annotations

from dataclasses import replace

from forerun.graph.ir import Graph


def merge(small: Graph, large: Graph) -> Graph | None:
    """`small` with its slopes filled in from `large` (captured one or more samples larger), or None if they differ."""
    step = large.batch - small.batch
    if step <= 0 or len(small.ops) != len(large.ops) or len(small.tensors) != len(large.tensors):
        return None
    for a, b in zip(small.ops, large.ops, strict=True):
        if (a.kind, a.inputs, a.outputs, a.attrs, a.phase) != (b.kind, b.inputs, b.outputs, b.attrs, b.phase):
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
    storages = [
        replace(s, per_sample=max(0, (u.bytes - s.bytes) // step))
        for s, u in zip(small.storages, large.storages, strict=True)
    ]
    return replace(small, tensors=tensors, storages=storages, scalable=True, min_batch=small.batch)
