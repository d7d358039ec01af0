"""A graph whose ops are put together in kernels, as a compiler or a runtime chose them (fuse_inductor,
fuse_onnxruntime). Inside a kernel tensors stay on the chip: only what comes from outside is read and what is used
outside is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from forerun.graph.ir import Graph, Op
from forerun.graph.kinds import CONTRACTIONS

#: Kinds that sum over an axis: such an op says what a kernel is.
_REDUCING = frozenset({"norm", "softmax", "reduce", "norm_backward", "softmax_backward"})


def with_kernels(graph: Graph, kernels: Iterable[list[int]]) -> Graph:
    """The graph with the ops of every kernel (their places, in order) as one op, at the place of the last."""
    fused = [members for members in kernels if len(members) > 1]
    readers = _readers(graph)
    last = {members[-1]: members for members in fused}
    kernel_of = {i: members for members in fused for i in members}
    swallowed = {i for members in fused for i in members[:-1]}
    place: dict[int, int] = {}
    ops: list[Op] = []
    inside: set[int] = set()  # storages that fusion removes
    for i, op in enumerate(graph.ops):
        if i in swallowed:
            continue
        if i in last:
            op, gone = _merged(graph, last[i], readers)
            inside |= gone
        place[i] = len(ops)
        ops.append(op)
    for i in sorted(swallowed):
        place[i] = place[kernel_of[i][-1]]
    storages = [
        replace(
            s, bytes=0 if n in inside else s.bytes, per_sample=0 if n in inside else s.per_sample,
            per_sample2=0 if n in inside else s.per_sample2, born=place.get(s.born, s.born),
            dies=None if s.dies is None else _moved(s.dies, place, len(graph.ops), len(ops)),
        )
        for n, s in enumerate(graph.storages)
    ]  # fmt: skip
    tensors = [replace(t, producer=place.get(t.producer, t.producer)) for t in graph.tensors]
    return replace(graph, ops=ops, tensors=tensors, storages=storages, facts={**graph.facts, "fused": True})


def _readers(graph: Graph) -> dict[int, set[int]]:
    """Storage -> ops that read it."""
    readers: dict[int, set[int]] = {}
    for i, op in enumerate(graph.ops):
        for t in op.inputs:
            readers.setdefault(graph.tensors[t].storage, set()).add(i)
    return readers


def _merged(graph: Graph, kernel: list[int], readers: dict[int, set[int]]) -> tuple[Op, set[int]]:
    """One op for a kernel's members, and the storages that stay on the chip. A contraction or a reduction among them
    determines the kind of the op."""
    members = set(kernel)
    written = [t for i in kernel for t in graph.ops[i].outputs]
    made = {graph.tensors[t].storage for t in written}
    born = {s for s in made if graph.storages[s].born in members}  # others are written to in place
    outputs_of_model = {graph.tensors[t].storage for t in graph.outputs}
    unread = {
        s for s in made
        if s not in outputs_of_model and readers.get(s, set()) <= members and graph.storages[s].role == "activation"
        and graph.storages[s].dies is not None and graph.storages[s].born >= 0
    }  # fmt: skip
    gone = unread & born
    inputs: dict[int, int] = {}
    for i in kernel:
        for t in graph.ops[i].inputs:
            storage = graph.tensors[t].storage
            if graph.tensors[t].producer not in members and storage not in born:
                inputs.setdefault(storage, t)
    outputs = {graph.tensors[t].storage: t for t in written if graph.tensors[t].storage not in unread}
    final = graph.ops[kernel[-1]]
    contraction: Any = next((graph.ops[i] for i in kernel if graph.ops[i].kind in CONTRACTIONS), None)
    if contraction is not None:
        others = [t for t in inputs.values() if t not in contraction.inputs]
        return replace(
            contraction, inputs=(*contraction.inputs, *others), outputs=tuple(outputs.values()) or final.outputs
        ), gone
    reducer: Any = next((graph.ops[i] for i in kernel if graph.ops[i].kind in _REDUCING), None)
    kind, attrs = ("elementwise", {"flops": len(kernel)}) if reducer is None else (reducer.kind, reducer.attrs)
    head = [t for t in (reducer.inputs[:1] if reducer is not None else ()) if graph.tensors[t].storage in inputs]
    ordered = tuple(dict.fromkeys([*head, *inputs.values()])) or final.inputs[:1]
    return replace(final, kind=kind, name="fused", inputs=ordered, outputs=tuple(outputs.values()) or final.outputs,
                   attrs=attrs), gone  # fmt: skip


def _moved(index: int, place: dict[int, int], old: int, new: int) -> int:
    return new if index >= old else place.get(index, index)
