"""The graph of a language model as a serving engine launches it: few kernels around matmuls and attention.

Projections that read the same input are one matmul (query, key and value; gate and up). What lies between two matmuls
is one kernel: a norm with the residual added before it and the cast after it, rotary embedding with the write into the
cache, an activation, the choice of experts. Attention reads keys and values where the cache holds them; a latent cache
(DeepSeek's) is attended to as it is, by one head that all queries share.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from forerun.graph.ir import DTYPE_BYTES, Graph, Op, Storage, Tensor
from forerun.graph.kinds import COLLECTIVES, CONTRACTIONS
from forerun.runtimes.fuse import with_kernels

_NORM = re.compile(r"norm|(^|\.)ln_", re.IGNORECASE)
#: Kinds that start a kernel of their own and end the one before.
_ALONE = CONTRACTIONS | COLLECTIVES | {"embedding"}


def fuse_engine(graph: Graph) -> Graph:
    """The graph as an engine launches it."""
    plain = _with_projections_together(_with_paged_attention(_with_shared_casts(graph)))
    runs = _runs(plain)
    marked = _marked(plain, runs)
    fused = with_kernels(marked, runs)
    return _with_residuals(replace(fused, ops=[_named(fused, i, op) for i, op in enumerate(fused.ops)]))


@dataclass
class _Edit:
    """A graph that is being changed: ops that are replaced or dropped (None), and tensors and storages that grow."""

    graph: Graph
    ops: list[Op | None]
    tensors: list[Tensor]
    storages: list[Storage]
    moved: dict[int, int]  # an op that became part of another one

    @classmethod
    def of(cls, graph: Graph) -> _Edit:
        return cls(graph, list(graph.ops), list(graph.tensors), list(graph.storages), {})

    def new(
        self, like: Tensor, shape: Sequence[int], grows: Sequence[int], role: str, born: int, many: int,
        made: bool = True,
    ) -> int:  # fmt: skip
        """A tensor in a storage of its own, allocated by the op at `born` and `made` by it."""
        after = [size + more for size, more in zip(shape, grows, strict=True)]
        size, larger = (int(math.prod(s) * DTYPE_BYTES[like.dtype]) for s in (shape, after))
        self.storages.append(Storage(size, role, born, None, many, larger - size))
        producer = born if made else -1
        self.tensors.append(Tensor(tuple(shape), like.dtype, len(self.storages) - 1, producer, tuple(grows)))
        return len(self.tensors) - 1

    def done(self) -> Graph:
        place: list[int] = []
        kept: list[Op] = []
        for op in self.ops:
            place.append(len(kept))
            if op is not None:
                kept.append(op)
        end = len(self.ops)

        def at(i: int) -> int:
            i = self.moved.get(i, i)
            return i if i < 0 else min(place[i], len(kept) - 1) if i < end else len(kept)

        tensors = [replace(t, producer=at(t.producer)) for t in self.tensors]
        storages = [replace(s, born=at(s.born), dies=None if s.dies is None else at(s.dies)) for s in self.storages]
        return replace(self.graph, ops=kept, tensors=tensors, storages=storages)


def _grows(tensor: Tensor) -> tuple[int, ...]:
    return tensor.per_sample or (0,) * len(tensor.shape)


def _with_shared_casts(graph: Graph) -> Graph:
    """One cast for all matmuls of an input; weights in the dtype that they are multiplied in."""
    edit = _Edit.of(graph)
    known: dict[tuple[object, ...], int] = {}
    same: dict[int, int] = {}
    for i, op in enumerate(graph.ops):
        inputs = tuple(same.get(t, t) for t in op.inputs)
        if op.kind == "copy" and op.name.endswith("_to_copy") and len(inputs) == 1:
            source, made = graph.tensors[inputs[0]], graph.tensors[op.outputs[0]]
            weight = graph.storages[source.storage].role == "parameter" and len(source.shape) > 1
            key = (source.storage, source.shape, source.producer, made.dtype)
            if weight or (key in known and graph.ops[known[key]].repeat == op.repeat):
                for t, tensor in enumerate(graph.tensors):
                    if tensor.storage == made.storage:
                        stands = source if weight else graph.tensors[graph.ops[known[key]].outputs[0]]
                        edit.tensors[t] = replace(
                            tensor, storage=stands.storage, dtype=stands.dtype, producer=stands.producer
                        )
                edit.ops[i] = None
                continue
            known[key] = i
        edit.ops[i] = replace(op, inputs=inputs)
    for i, kept in enumerate(edit.ops):
        if kept is not None and kept.kind in ("matmul", "moe_matmul") and "unit" not in kept.attrs:
            x, w = (edit.tensors[t].dtype for t in kept.inputs[:2])
            if w == "fp8" or (x == "fp32" and w in ("bf16", "fp16")):
                edit.ops[i] = replace(kept, attrs={**kept.attrs, "unit": w})
    return edit.done()


def _with_paged_attention(graph: Graph) -> Graph:
    """Attention as one kernel that reads keys and values where they are kept."""
    edit = _Edit.of(graph)
    for i, op in enumerate(graph.ops):
        if op.kind == "copy" and op.inputs and graph.storages[graph.tensors[op.inputs[0]].storage].role == "cache":
            joined = graph.tensors[op.outputs[0]]
            kept = graph.tensors[op.inputs[0]].storage
            if joined.storage == kept or op.name.endswith("copy_"):
                continue
            edit.storages[kept] = replace(
                graph.storages[joined.storage], role="cache", born=-1, dies=None, repeat=graph.storages[kept].repeat
            )
            edit.storages[joined.storage] = replace(graph.storages[joined.storage], bytes=0, per_sample=0)
            for t, tensor in enumerate(graph.tensors):
                if tensor.storage == joined.storage:
                    edit.tensors[t] = replace(tensor, storage=kept, producer=-1)
            edit.ops[i] = None
    for i, op in enumerate(graph.ops):
        if op.kind == "softmax":
            _join_scores(edit, i)
    latent = _latent_projections(graph)
    for i, op in enumerate(graph.ops):
        if op.kind == "attention" and (found := latent.get(i)) is not None:
            _attend_to_latent(edit, i, found)
        elif op.kind == "attention":
            _with_shared_heads(edit, i)
    return edit.done()


def _join_scores(edit: _Edit, place: int) -> None:
    """Two batched matmuls with a softmax between become attention."""
    graph, scope = edit.graph, edit.graph.ops[place].scope
    near = range(max(place - 24, 0), min(place + 16, len(graph.ops)))
    batched = [i for i in near if graph.ops[i].scope == scope and _batched(graph.ops[i])]
    before, after = [i for i in batched if i < place], [i for i in batched if i > place]
    if not before or not after:
        return
    first, last = before[-1], after[0]
    a, b = (graph.tensors[t] for t in graph.ops[first].inputs[:2])
    out = graph.tensors[graph.ops[last].outputs[0]]
    if len(a.shape) < 3:
        return
    samples, queries, size, keys = graph.batch, a.shape[-2], a.shape[-1], b.shape[-1]
    heads = math.prod(a.shape[:-2]) // samples
    wide = [
        _shared_heads(graph, i, keys, heads) for i in range(max(first - 16, 0), first) if graph.ops[i].scope == scope
    ]
    groups = min([n for n in wide if n], default=heads)
    cached = _caches(edit, range(max(first - 24, 0), first), scope)
    kept, groups = [t.storage for t in cached], min([t.shape[1] for t in cached], default=groups)
    a, b = (replace(t, dtype=cached[0].dtype) for t in (a, b)) if cached else (a, b)
    q = edit.new(
        a, (samples, heads, queries, size), (1, 0, 0, 0), "activation", first - 1, graph.ops[first].repeat, made=False
    )
    both = []
    for n, width in enumerate((size, out.shape[-1])):
        made = edit.new(b, (samples, groups, keys, width), (1, 0, 0, 0), "cache", -1, graph.ops[first].repeat)
        if n < len(kept):  # where the cache keeps it
            edit.storages.pop()
            edit.tensors[made] = replace(edit.tensors[made], storage=kept[n])
        both.append(made)
    edit.storages[edit.tensors[q].storage] = replace(
        edit.storages[edit.tensors[q].storage], bytes=graph.storages[a.storage].bytes
    )
    attrs = {"causal": queries > 1, "sinks": True}
    joined = replace(graph.ops[last], kind="attention", name="forerun::attention", inputs=(q, *both), attrs=attrs)
    made = edit.new(out, (samples, heads, queries, out.shape[-1]), (1, 0, 0, 0), "activation", last, joined.repeat)
    edit.ops[last] = replace(joined, outputs=(made, *joined.outputs))
    for i in range(first, last):
        if i == first or (graph.ops[i].scope == scope and graph.ops[i].kind != "matmul"):
            edit.ops[i] = None
    for i in range(max(first - 16, 0), first):  # keys and values are neither copied for every head nor cast
        op = graph.ops[i]
        stored = bool(op.inputs) and edit.tensors[op.inputs[0]].storage in kept
        if op.scope == scope and op.kind == "copy" and (stored or _shared_heads(graph, i, keys, heads)):
            edit.ops[i] = None


def _batched(op: Op) -> bool:
    return op.kind == "matmul" and not op.attrs.get("shared_b")


def _shared_heads(graph: Graph, i: int, keys: int, heads: int) -> int:
    """The heads of keys that an op copies for every head of queries; 0 where it does nothing of the kind."""
    op = graph.ops[i]
    shape = graph.tensors[op.inputs[0]].shape if op.kind == "copy" and op.inputs else ()
    return shape[1] if len(shape) == 5 and shape[1] * shape[2] == heads and keys in shape[3:] else 0


def _caches(edit: _Edit, near: range, scope: str) -> list[Tensor]:
    """The caches of keys and values that ops of a module read, in order."""
    found: dict[int, Tensor] = {}
    for i in near:
        op = edit.graph.ops[i]
        if op.scope == scope and op.kind == "copy" and op.inputs:
            cache = edit.graph.tensors[op.inputs[0]]
            if edit.graph.storages[cache.storage].role == "cache" and len(cache.shape) == 4:
                found.setdefault(cache.storage, cache)
    return list(found.values())


def _with_shared_heads(edit: _Edit, place: int) -> None:
    """Attention that was given a copy of keys and values for every head of queries reads them where they are."""
    graph, op = edit.graph, edit.graph.ops[place]
    heads, keys = graph.tensors[op.inputs[0]].shape[1], graph.tensors[op.inputs[1]].shape[-2]
    before = range(max(place - 12, 0), place)
    copies = [i for i in before if graph.ops[i].scope == op.scope and _shared_heads(graph, i, keys, heads)]
    if not copies:
        return
    groups = _shared_heads(graph, copies[0], keys, heads)
    cached = _caches(edit, range(max(place - 24, 0), place), op.scope)
    both = []
    for n, t in enumerate(op.inputs[1:3]):
        like = graph.tensors[t]
        shape = (like.shape[0], groups, *like.shape[2:])
        both.append(edit.new(like, shape, (1, 0, 0, 0), "cache", -1, op.repeat))
        if n < len(cached):  # where the cache keeps it
            edit.storages.pop()
            edit.tensors[both[-1]] = replace(edit.tensors[both[-1]], storage=cached[n].storage)
    edit.ops[place] = replace(op, inputs=(op.inputs[0], *both, *op.inputs[3:]))
    for i in copies:
        edit.ops[i] = None


def _latent_projections(graph: Graph) -> dict[int, int]:
    """Attention -> the matmul that makes keys and values of a whole latent cache."""
    found, last = {}, -1
    for i, op in enumerate(graph.ops):
        if op.kind == "matmul" and op.scope.endswith("kv_b_proj"):
            last = i
        if op.kind == "attention" and last >= 0 and graph.ops[last].scope.rpartition(".")[0] == op.scope:
            queries, rows = graph.tensors[op.inputs[0]].shape[-2], graph.tensors[graph.ops[last].inputs[0]].shape[0]
            if queries == 1 and rows > graph.batch:
                found[i] = last
    return found


def _attend_to_latent(edit: _Edit, place: int, projection: int) -> None:
    """Queries are taken to the latent space and results back, with the same weights and the same work as making keys
    and values of the new token; the cache is read as it is."""
    graph, op, project = edit.graph, edit.graph.ops[place], edit.graph.ops[projection]
    samples, many = graph.batch, op.repeat
    x, w = (graph.tensors[t] for t in project.inputs[:2])
    q, k = (graph.tensors[t] for t in op.inputs[:2])
    latent, heads, keys = w.shape[0], q.shape[1], k.shape[-2]
    turned = k.shape[-1] - (w.shape[1] // k.shape[1] - graph.tensors[op.outputs[0]].shape[-1])  # with positions
    rows = edit.new(x, (samples, latent), (1, 0), "activation", projection - 1, many, made=False)
    made = edit.new(x, (samples, w.shape[1]), (1, 0), "activation", projection, many)
    edit.ops[projection] = replace(project, inputs=(rows, *project.inputs[1:]), outputs=(made,))
    asked = edit.new(q, (samples, heads, 1, latent + turned), (1, 0, 0, 0), "activation", projection, many, made=False)
    cache = edit.new(k, (samples, 1, keys, latent + turned), (1, 0, 0, 0), "cache", -1, many)
    values = edit.new(k, (samples, 1, keys, latent), (1, 0, 0, 0), "cache", -1, 0)
    edit.storages[edit.tensors[values].storage] = replace(
        edit.storages[edit.tensors[values].storage], bytes=0, per_sample=0
    )
    out = edit.new(q, (samples, heads, 1, latent), (1, 0, 0, 0), "activation", place, many)
    attrs = {**op.attrs, "expanded": [k.shape[1], k.shape[-1], graph.tensors[op.inputs[2]].shape[-1]]}
    edit.ops[place] = replace(op, inputs=(asked, cache, values), outputs=(out, *op.outputs), attrs=attrs)
    source = x.producer  # a cast of the whole cache
    if 0 <= source < projection and graph.ops[source].kind == "copy" and graph.ops[source].scope == project.scope:
        edit.ops[source] = None
    for i in range(projection + 1, place):  # copies of what the projection made
        if graph.ops[i].scope == op.scope and graph.ops[i].kind == "copy":
            edit.ops[i] = None


def _with_projections_together(graph: Graph) -> Graph:
    """Matmuls of one module that read the same input as one."""
    edit = _Edit.of(graph)
    groups: dict[Any, list[int]] = {}
    for i, op in enumerate(graph.ops):
        if op.kind != "matmul" or not op.attrs.get("shared_b"):
            continue
        x, w = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]]
        module, _, name = op.scope.rpartition(".")
        if graph.storages[w.storage].role == "parameter" and name and len(w.shape) == 2:
            key = (module, x.storage, x.shape, x.producer, w.dtype, len(op.inputs), op.repeat, op.phase, repr(op.attrs))
            groups.setdefault(key, []).append(i)
    for members in groups.values():
        if len(members) > 1:
            _join_projections(edit, members)
    return edit.done()


def _join_projections(edit: _Edit, members: list[int]) -> None:
    graph, first = edit.graph, edit.graph.ops[members[0]]
    weights = [graph.tensors[graph.ops[i].inputs[1]] for i in members]
    outputs = [graph.tensors[graph.ops[i].outputs[0]] for i in members]
    columns = sum(w.shape[1] for w in weights)
    weight = edit.new(weights[0], (weights[0].shape[0], columns), (0, 0), "parameter", -1, first.repeat)
    for w in weights:
        edit.storages[w.storage] = replace(edit.storages[w.storage], bytes=0)
    grows = (*_grows(outputs[0])[:-1], 0)
    out = edit.new(outputs[0], (*outputs[0].shape[:-1], columns), grows, "activation", members[0], first.repeat)
    stands = edit.tensors[out].storage
    last = [graph.storages[t.storage].dies for t in outputs]
    known = [d for d in last if d is not None]
    edit.storages[stands] = replace(edit.storages[stands], dies=max(known) if len(known) == len(last) else None)
    for made in outputs:
        edit.storages[made.storage] = replace(graph.storages[made.storage], bytes=0, per_sample=0)
        for t, tensor in enumerate(edit.tensors):
            if tensor.storage == made.storage and t < len(graph.tensors):
                edit.tensors[t] = replace(tensor, storage=stands, producer=members[0])
    biases = [t for i in members for t in graph.ops[i].inputs[2:]]
    edit.ops[members[0]] = replace(first, inputs=(first.inputs[0], weight, *biases), outputs=(out,))
    for i in members[1:]:
        edit.ops[i] = None
        edit.moved[i] = members[0]


def _runs(graph: Graph) -> list[list[int]]:
    """Ops between two matmuls, attentions or collectives of a block: each run is a kernel."""
    runs: list[list[int]] = []
    current: list[int] = []
    for i, op in enumerate(graph.ops):
        same = current and (graph.ops[current[-1]].repeat, graph.ops[current[-1]].phase) == (op.repeat, op.phase)
        if op.kind in _ALONE or not same:
            runs.append(current)
            current = []
        if op.kind not in _ALONE:
            current.append(i)
    return [run for run in [*runs, current] if run]


def _marked(graph: Graph, runs: list[list[int]]) -> Graph:
    """The graph with the first sum of every run that holds a norm written out marked: what is made of it is a norm."""
    ops = list(graph.ops)
    for run in runs:
        sums = [i for i in run if ops[i].kind == "reduce"]
        if sums and any(_NORM.search(ops[i].scope.rpartition(".")[2]) for i in sums):
            ops[sums[0]] = replace(ops[sums[0]], attrs={**ops[sums[0]].attrs, "norm": "rms"})
    return replace(graph, ops=ops)


def _named(graph: Graph, place: int, op: Op) -> Op:
    """A fused kernel as what it mostly is: a norm, or a pass over its numbers."""
    if op.kind in _ALONE or op.name != "fused":
        return op
    outside = [t for t in op.inputs if graph.tensors[t].producer < place]
    inputs = tuple(sorted(outside, key=lambda t: -math.prod(graph.tensors[t].shape)))
    if inputs and (op.kind == "norm" or "norm" in op.attrs):
        attrs = {"type": op.attrs.get("type", "rms"), "training": False, "generated": True}
        return replace(op, kind="norm", inputs=inputs, attrs=attrs)
    return replace(op, kind="elementwise", inputs=inputs, attrs={"generated": True})


def _with_residuals(graph: Graph) -> Graph:
    """The sum at the end of a block as part of the norm that begins the next one."""
    edit = _Edit.of(graph)
    for i, op in enumerate(graph.ops[:-1]):
        norm = graph.ops[i + 1]
        if op.kind == "elementwise" and op.name.endswith("add.Tensor") and norm.kind == "norm":
            edit.ops[i], edit.moved[i] = None, i + 1
            inputs = dict.fromkeys([*op.inputs, *(t for t in norm.inputs if t not in op.outputs)])
            edit.ops[i + 1] = replace(norm, inputs=tuple(inputs), outputs=(*norm.outputs, *op.outputs))
    return edit.done()
