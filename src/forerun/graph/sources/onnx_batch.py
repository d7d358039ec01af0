"""How an ONNX graph grows with the batch: learned from walks at other batch sizes, checked against them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forerun.errors import ForerunError
from forerun.graph.ir import Graph, Op
from forerun.graph.sources.onnx_trace import Trace
from forerun.graph.sources.onnx_values import UnsafeBatchError


def check_rebatched(trace: Trace, base: Trace, old: int, new: int) -> None:
    """After a change of batch the outputs grew in front by the same factor, and nowhere else."""
    grew = False
    for now, before in zip(trace.outputs, base.outputs, strict=True):
        a, b = trace.tensors[now].shape, base.tensors[before].shape
        if a == b:
            continue
        if len(a) != len(b) or a[0] * old != b[0] * new or a[1:] != b[1:]:
            raise UnsafeBatchError("its outputs do not follow the batch")
        grew = True
    if not grew:
        raise UnsafeBatchError("its outputs do not follow the batch")


def _same_structure(a: Trace, b: Trace) -> bool:
    """Whether two walks wrote the same ops over the same memory, whatever the sizes."""

    def plain(op: Op) -> tuple[Any, ...]:
        return op.kind, op.name, op.inputs, op.outputs, op.attrs

    return (
        len(a.ops) == len(b.ops) and len(a.tensors) == len(b.tensors)
        and all(plain(x) == plain(y) for x, y in zip(a.ops, b.ops, strict=True))
        and all(x.storage == y.storage and len(x.shape) == len(y.shape)
                for x, y in zip(a.tensors, b.tensors, strict=True))
    )  # fmt: skip


def learn_slopes(graph: Graph, trace: Trace, walk: Callable[[int], Trace]) -> None:
    """Fill `per_sample` from the walk at two batch sizes, and check it at the asked one."""
    for low in dict.fromkeys((1, 2, graph.batch)):
        try:
            first = trace if low == graph.batch else walk(low)
            second = trace if low + 1 == graph.batch else walk(low + 1)
        except (UnsafeBatchError, ForerunError):
            continue
        if not (_same_structure(first, trace) and _same_structure(second, trace)):
            continue
        step = graph.batch - low
        slopes = [
            tuple(y - x for x, y in zip(a.shape, b.shape, strict=True))
            for a, b in zip(first.tensors, second.tensors, strict=True)
        ]
        straight = all(
            tuple(d + s * step for d, s in zip(a.shape, slope, strict=True)) == t.shape
            for a, slope, t in zip(first.tensors, slopes, trace.tensors, strict=True)
        )
        grown = [b.bytes - a.bytes for a, b in zip(first.storages, second.storages, strict=True)]
        straight = straight and all(
            a.bytes + g * step == s.bytes for a, g, s in zip(first.storages, grown, trace.storages, strict=True)
        )
        if not straight:
            continue
        for tensor, slope in zip(graph.tensors, slopes, strict=True):
            tensor.per_sample = slope if any(slope) else None
        for storage, bytes_more in zip(graph.storages, grown, strict=True):
            storage.per_sample = bytes_more
        graph.scalable, graph.min_batch = True, low
        return
