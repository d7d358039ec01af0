"""How an ONNX graph scales with the batch: derived from walks at other batch sizes, checked against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import UnsafeBatchError
from forerun.graph.ir import Graph, Op

#: Batch sizes at which every model is walked.
PROBES = (1, 2, 3, 7)


def check_rebatched(trace: Trace, base: Trace, old: int, new: int) -> None:
    """Checks that the outputs scale with the batch on the first axis, or behind the layers of a state."""
    grew = False
    if len(trace.outputs) != len(base.outputs):
        raise UnsafeBatchError("it has another number of outputs")
    for now, before in zip(trace.outputs, base.outputs, strict=True):
        a, b = trace.tensors[now].shape, base.tensors[before].shape
        if a == b:
            continue
        moved = [axis for axis, (x, y) in enumerate(zip(a, b, strict=False)) if x != y] or [0]
        axis = moved[0]
        able = axis == 0 or (axis == 1 and len(a) == 3 and b[1] == old)
        if len(a) != len(b) or len(moved) > 1 or not able or a[axis] * old != b[axis] * new:
            raise UnsafeBatchError("its outputs do not follow the batch")
        grew = True
    if not grew:
        raise UnsafeBatchError("its outputs do not follow the batch")


def _same_structure(a: Trace, b: Trace) -> bool:
    """Whether two walks have the same ops over the same memory, whatever the sizes."""

    def plain(op: Op) -> tuple[Any, ...]:
        return op.kind, op.name, op.inputs, op.outputs, op.attrs, op.repeat

    return (
        len(a.ops) == len(b.ops) and len(a.tensors) == len(b.tensors)
        and all(plain(x) == plain(y) for x, y in zip(a.ops, b.ops, strict=True))
        and all(x.storage == y.storage and len(x.shape) == len(y.shape)
                for x, y in zip(a.tensors, b.tensors, strict=True))
    )  # fmt: skip


@dataclass(frozen=True)
class Slopes:
    """How the tensors and storages of a graph grow with each further sample."""

    tensors: list[tuple[int, ...]]
    storages: list[int]

    def fill(self, graph: Graph) -> None:
        """Writes the slopes into the graph that they were derived from."""
        for tensor, slope in zip(graph.tensors, self.tensors, strict=True):
            tensor.per_sample = slope if any(slope) else None
        for storage, bytes_more in zip(graph.storages, self.storages, strict=True):
            storage.per_sample = bytes_more
        graph.scalable = True


def scalable_from(probed: dict[int, Trace | None]) -> tuple[int, Slopes] | None:
    """The least batch from which every dimension is affine, by walks at PROBES, and its slopes."""
    for low in PROBES[:-2]:
        first, *more = [probed[batch] for batch in PROBES if batch >= low]
        if first is None or any(walk is None or not _same_structure(first, walk) for walk in more):
            continue
        steps = [batch - low for batch in PROBES if batch > low]
        slopes = _slopes(first, more[0], steps[0])
        if slopes is not None and all(
            _follows(first, walk, slopes, step) for walk, step in zip(more, steps, strict=True) if walk is not None
        ):
            return low, slopes
    return None


def _slopes(first: Trace, second: Trace | None, step: int) -> Slopes | None:
    assert second is not None
    growth = [
        tuple(y - x for x, y in zip(a.shape, b.shape, strict=True))
        for a, b in zip(first.tensors, second.tensors, strict=True)
    ]
    grown = [b.bytes - a.bytes for a, b in zip(first.storages, second.storages, strict=True)]
    if any(n % step for dims in growth for n in dims) or any(n % step for n in grown):
        return None
    return Slopes([tuple(n // step for n in dims) for dims in growth], [n // step for n in grown])


def _follows(first: Trace, other: Trace, slopes: Slopes, step: int) -> bool:
    """Whether another walk has the sizes that the slopes give it."""
    return all(
        tuple(d + s * step for d, s in zip(a.shape, slope, strict=True)) == b.shape
        for a, slope, b in zip(first.tensors, slopes.tensors, other.tensors, strict=True)
    ) and all(
        a.bytes + more * step == b.bytes
        for a, more, b in zip(first.storages, slopes.storages, other.storages, strict=True)
    )
