"""Puts ops into a captured graph that the framework runs but does not record, and takes ops out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from forerun.graph.ir import DTYPE_BYTES, Graph, Op, Storage, Tensor
from forerun.graph.variants import variant


def splice(
    graph: Graph, tensors: list[Tensor], storages: list[Storage], before: Mapping[int, Sequence[Op]],
    after: Mapping[int, Op | Sequence[Op]],
) -> Graph:  # fmt: skip
    """`graph` with ops before and after some of its own, over lists of tensors and storages that may be longer.

    Indices of ops in all that is given are those of `graph`; what an added op puts out is marked as its own.
    """
    ops: list[Op] = []
    place: dict[int, int] = {}
    added: list[int] = []
    for i, op in enumerate(graph.ops):
        behind = after.get(i, ())
        for one in (*before.get(i, ()), op, *((behind,) if isinstance(behind, Op) else behind)):
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


def without(graph: Graph, storages: list[Storage], dropped: Collection[int]) -> Graph:
    """`graph` without some of its ops (their places), over a list of its storages; what those wrote is there before the
    first op."""
    remain = [i not in dropped for i in range(len(graph.ops))]
    last = [many - 1 for many in itertools.accumulate(remain)]  # the last op that is kept, up to each of them

    def moved(i: int) -> int:
        return i if i < 0 else (last[i] if i < len(last) else i - len(dropped))

    def made(i: int) -> int:
        return -1 if i in dropped else moved(i)

    tensors = [replace(t, producer=made(t.producer)) for t in graph.tensors]
    placed = [replace(s, born=made(s.born), dies=None if s.dies is None else moved(s.dies)) for s in storages]
    return replace(graph, ops=list(itertools.compress(graph.ops, remain)), tensors=tensors, storages=placed)


def with_hidden_ops(graph: Graph) -> Graph:
    """The graph with what ops launch beside the kernel they are named after: biases of convolutions, and copies of
    inputs that a kernel cannot read as they lie."""
    return _with_copies(_with_bias_adds(graph))


def _with_bias_adds(graph: Graph) -> Graph:
    """Convolutions with a bias add it in a kernel of their own, in place; PyTorch's depthwise kernels do it at once."""
    tensors = list(graph.tensors)
    ops = list(graph.ops)
    after: dict[int, Op] = {}
    for i, op in enumerate(graph.ops):
        if op.kind != "conv" or len(op.inputs) < 3 or "split" in op.attrs:
            continue
        if graph.depthwise(op) and not variant(op, graph):
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


def _with_copies(graph: Graph) -> Graph:
    """Inputs that an op copies before its kernel runs (`layout.copied`), as copies of their own."""
    tensors, storages, ops = list(graph.tensors), list(graph.storages), list(graph.ops)
    before: dict[int, list[Op]] = {}
    for i, op in enumerate(graph.ops):
        places = op.attrs.get("copied")
        if not places:
            continue
        inputs = list(op.inputs)
        for place in places:
            source = graph.tensors[op.inputs[place]]
            inputs[place] = len(tensors)
            tensors.append(replace(source, storage=len(storages)))
            storages.append(storage_of(source, source.dtype, i, op.repeat))
            implied = {"strided": True, "implied": True}
            copy = Op("copy", "clone", (op.inputs[place],), (inputs[place],), implied, op.scope, op.phase, op.repeat)
            before.setdefault(i, []).append(copy)
        read_so = ("copied",) if op.kind in ("conv", "conv_backward") else ("copied", "strided")
        attrs = {name: value for name, value in op.attrs.items() if name not in read_so}
        ops[i] = replace(op, inputs=tuple(inputs), attrs=attrs)
    return splice(replace(graph, ops=ops), tensors, storages, before, {}) if before else graph


def storage_of(tensor: Tensor, dtype: str, at: int, repeat: int) -> Storage:
    """New memory for a tensor in a dtype that lives for one op, with its growth by the batch."""
    each, grows = DTYPE_BYTES[dtype], tensor.per_sample or (0,) * len(tensor.shape)
    sides = list(zip(tensor.shape, grows, strict=True))

    def power(order: int) -> int:
        """What multiplies this power of how many samples are added, in bytes."""
        chosen = itertools.combinations(range(len(sides)), order)
        terms = (math.prod(g if i in subset else d for i, (d, g) in enumerate(sides)) for subset in chosen)
        return round(each * sum(terms))

    return Storage(power(0), "activation", at, at, repeat, power(1), power(2))
