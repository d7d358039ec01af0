"""Puts ops into a captured graph that its recording does not show, but that run all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forerun.graph.ir import Graph, Op, Storage, Tensor


def splice(
    graph: Graph, tensors: list[Tensor], storages: list[Storage], before: Mapping[int, Op], after: Mapping[int, Op]
) -> Graph:
    """`graph` with one op before or after some of its own, over lists of tensors and storages that may be longer.

    Indices of ops in all that is given are those of `graph`; what an added op puts out is marked as its own.
    """
    ops: list[Op] = []
    place: dict[int, int] = {}
    added: list[int] = []
    for i, op in enumerate(graph.ops):
        for one in (before.get(i), op, after.get(i)):
            if one is None:
                continue
            if one is op:
                place[i] = len(ops)
            else:
                added.append(len(ops))
            ops.append(one)
    end = len(graph.ops)
    moved_tensors = [replace(t, producer=place.get(t.producer, t.producer)) for t in tensors]
    for i in added:
        for t in ops[i].outputs:
            moved_tensors[t] = replace(moved_tensors[t], producer=i)
    moved_storages = [
        replace(
            s, born=place.get(s.born, s.born),
            dies=s.dies if s.dies is None or s.dies < 0 else place.get(s.dies, s.dies + len(ops) - end),
        )
        for s in storages
    ]  # fmt: skip
    return replace(graph, ops=ops, tensors=moved_tensors, storages=moved_storages)


def with_bias_adds(graph: Graph) -> Graph:
    """Convolutions with a bias add it in a kernel of their own, in place; depthwise ones do not (seen with cuDNN)."""
    tensors = list(graph.tensors)
    ops = list(graph.ops)
    after: dict[int, Op] = {}
    for i, op in enumerate(graph.ops):
        if op.kind != "conv" or len(op.inputs) < 3 or "split" in op.attrs or graph.depthwise(op):
            continue
        if op.attrs.get("unit") == "int8":  # such kernels add the bias before they round their result
            continue
        bare = len(tensors)
        tensors.append(replace(graph.tensors[op.outputs[0]], producer=i))
        ops[i] = replace(op, outputs=(bare, *op.outputs[1:]), attrs={**op.attrs, "split": True})
        after[i] = Op(
            "elementwise", "bias", (bare, op.inputs[2]), op.outputs[:1], {"bias": True}, op.scope, op.phase, op.repeat
        )
    if not after:
        return graph
    return splice(replace(graph, ops=ops), tensors, list(graph.storages), {}, after)
