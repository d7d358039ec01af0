"""What a compiler that fuses (torch.compile) makes of a graph: chains of memory-bound ops become one kernel each.

An op joins the kernel of the op that wrote its input as long as nothing else has read from that kernel. Inside a kernel
tensors stay on the chip: only what comes from outside is read and what is used outside is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from forerun.graph.ir import Graph, Op
from forerun.graph.op_names import UNFUSED_COPIES, plain_name

#: Ops that a fused kernel can hold. Concatenations, gathers and pools stay on their own, as do batch statistics.
_POINTWISE = frozenset({"elementwise", "fill", "random"})
_REDUCING = frozenset({"norm", "softmax", "reduce", "norm_backward", "softmax_backward"})


@dataclass
class _Kernel:
    ops: list[int] = field(default_factory=list)
    open: bool = True
    reduces: bool = False


def fusible(op: Op) -> bool:
    if op.kind == "copy":
        return plain_name(op.name) not in UNFUSED_COPIES
    return op.kind in _POINTWISE or op.kind in _REDUCING


def fuse(graph: Graph) -> Graph:
    """The graph with every fused kernel as one op, at the place of its last member."""
    kernels, kernel_of = _kernels(graph)
    readers = _readers(graph)
    last = {k.ops[-1]: k for k in kernels if len(k.ops) > 1}
    swallowed = {i for k in kernels if len(k.ops) > 1 for i in k.ops[:-1]}
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
        place[i] = place[kernel_of[i].ops[-1]]
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


def _kernels(graph: Graph) -> tuple[list[_Kernel], dict[int, _Kernel]]:
    kernels: list[_Kernel] = []
    kernel_of: dict[int, _Kernel] = {}
    for i, op in enumerate(graph.ops):
        sources = [p for t in op.inputs if (p := graph.tensors[t].producer) >= 0]
        joined: _Kernel | None = None
        if fusible(op):
            for p in reversed(sources):
                found = kernel_of.get(p)
                if found is not None and found.open and _together(graph, graph.ops[found.ops[-1]], op, found):
                    joined = found
                    break
        for p in sources:  # an op that reads from a kernel without joining it needs its results: the kernel ends here
            found = kernel_of.get(p)
            if found is not None and found is not joined:
                found.open = False
        if joined is not None:
            joined.ops.append(i)
            joined.reduces = joined.reduces or op.kind in _REDUCING
            kernel_of[i] = joined
        elif fusible(op):
            kernel_of[i] = _Kernel([i], reduces=op.kind in _REDUCING)
            kernels.append(kernel_of[i])
    return kernels, kernel_of


def _together(graph: Graph, before: Op, op: Op, kernel: _Kernel) -> bool:
    """Whether two ops share block and phase, without a second reduction over what the first one made."""
    if before.repeat != op.repeat or before.phase != op.phase:
        return False
    if op.kind in _REDUCING and kernel.reduces:
        return False
    if not (op.outputs and before.outputs):
        return False
    return not (op.attrs.get("type") == "batch" and op.attrs.get("training"))


def _readers(graph: Graph) -> dict[int, set[int]]:
    """Storage -> ops that read it."""
    found: dict[int, set[int]] = {}
    for i, op in enumerate(graph.ops):
        for t in op.inputs:
            found.setdefault(graph.tensors[t].storage, set()).add(i)
    return found


def _merged(graph: Graph, kernel: _Kernel, readers: dict[int, set[int]]) -> tuple[Op, set[int]]:
    """One op for a kernel's members, and the storages that stay on the chip."""
    members = set(kernel.ops)
    written = [t for i in kernel.ops for t in graph.ops[i].outputs]
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
    for i in kernel.ops:
        for t in graph.ops[i].inputs:
            storage = graph.tensors[t].storage
            if graph.tensors[t].producer not in members and storage not in born:
                inputs.setdefault(storage, t)
    outputs = {graph.tensors[t].storage: t for t in written if graph.tensors[t].storage not in unread}
    final = graph.ops[kernel.ops[-1]]
    reducer: Any = next((graph.ops[i] for i in kernel.ops if graph.ops[i].kind in _REDUCING), None)
    kind, attrs = ("elementwise", {"flops": len(kernel.ops)}) if reducer is None else (reducer.kind, reducer.attrs)
    head = [t for t in (reducer.inputs[:1] if reducer is not None else ()) if graph.tensors[t].storage in inputs]
    ordered = tuple(dict.fromkeys([*head, *inputs.values()])) or final.inputs[:1]
    return replace(final, kind=kind, name="fused", inputs=ordered, outputs=tuple(outputs.values()) or final.outputs,
                   attrs=attrs), gone  # fmt: skip


def _moved(index: int, place: dict[int, int], old: int, new: int) -> int:
    return new if index >= old else place.get(index, index)
