"""A graph over several devices: the graph of one of them, its collectives among its ops.

    graph ─▶ divide (division_rules.py) ─▶ tensor_parallel ─▶ stages (pipeline.py) ─▶ shard: the slowest of them

Tensor parallelism divides what is inside a layer, as Megatron-LM does. A collective is an op whose bytes are those of
its tensors; what it costs is not for the graph to say (predictors/laws/collectives.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace

from forerun.errors import ForerunError
from forerun.graph.cost import Shapes, cost
from forerun.graph.division import Division, Exchange, Part
from forerun.graph.division_rules import divide
from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.graph.kinds import CONTRACTIONS
from forerun.graph.layout import Layout
from forerun.graph.pipeline import slowest_stage
from forerun.graph.splice import splice, storage_of

#: Replicated work below this share of a model's is not worth a note.
_NOTED = 0.01


def shard(graph: Graph, layout: Layout) -> Graph:
    """The graph of one device of `layout`: of the slowest stage where there are several."""
    return slowest_stage(tensor_parallel(graph, layout), layout.pp)


def tensor_parallel(graph: Graph, layout: Layout) -> Graph:
    """The graph of one device of `layout`, all stages of a pipeline in a row."""
    if layout.tp == 1 and layout.ep == 1:
        return graph
    check(graph, layout)
    return _Emission(graph, layout, divide(graph, layout)).graph()


def check(graph: Graph, layout: Layout) -> None:
    """Refuses what cannot be divided evenly."""
    for op in graph.ops:
        heads = graph.tensors[op.inputs[0]].shape[1] if op.kind == "attention" else 0
        if heads > 1 and heads % layout.tp:
            able = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
            raise ForerunError(
                f"tp={layout.tp} does not divide the {heads} attention heads of {graph.name}: choose from {able}"
            )
        experts = op.attrs["experts"] if op.kind == "moe_matmul" else 0
        if experts and experts % layout.ep:
            raise ForerunError(f"ep={layout.ep} does not divide the {experts} experts of {graph.name}")
    if layout.ep > 1 and not any(op.kind == "moe_matmul" for op in graph.ops):
        raise ForerunError(f"ep={layout.ep} divides experts, and {graph.name} has none")


class _Emission:
    """The graph of one device from a division."""

    def __init__(self, graph: Graph, layout: Layout, division: Division) -> None:
        self.source, self.layout, self.division = graph, layout, division
        self.tensors = list(graph.tensors)
        self.storages = list(graph.storages)
        self._cut: dict[tuple[int, Part | None], int] = {}

    def graph(self) -> Graph:
        graph, division = self.source, self.division
        self._find_weights()
        self._divide_tensors()
        ops = [self._op(i, op) for i, op in enumerate(graph.ops)]
        before = {i: [self._exchange(e, i) for e in found] for i, found in division.before.items()}
        after = {i: [self._exchange(e, i) for e in found] for i, found in division.after.items()}
        share = _weights(self.storages) / max(_weights(graph.storages), 1)
        made = splice(replace(graph, ops=ops), self.tensors, self.storages, before, after)
        return replace(
            made, parameters=round(graph.parameters * share),
            active_parameters=round(graph.active_parameters * share),
            facts={**graph.facts, "layout": asdict(self.layout)}, notes=[*graph.notes, *self._notes()],
        )  # fmt: skip

    # -- sizes ---------------------------------------------------------------------------------------------------------
    def _find_weights(self) -> None:
        """Weights that every op reads in the same part are held in it; others are held whole."""
        self._of_weight: dict[int, tuple[int, int]] = {}
        for storage, reads in self.division.weights.items():
            if len(reads) == 1 and (read := next(iter(reads)))[0] > 1:
                self._of_weight[storage] = read

    def _divide_tensors(self) -> None:
        shares: dict[int, float] = {}
        for t, tensor in enumerate(self.source.tensors):
            part = self._part(t)
            if part is None:
                continue
            self.tensors[t] = local = _cut(tensor, part)
            share = local.shape[part.dim] / max(tensor.shape[part.dim], 1)
            shares[tensor.storage] = max(share, shares.get(tensor.storage, 0.0))
        for storage, (ways, extent) in self._of_weight.items():
            shares[storage] = -(-extent // ways) / extent
        for storage, share in shares.items():
            old = self.storages[storage]
            self.storages[storage] = replace(
                old, bytes=math.ceil(old.bytes * share), per_sample=math.ceil(old.per_sample * share),
                per_sample2=math.ceil(old.per_sample2 * share),
            )  # fmt: skip

    def _part(self, t: int) -> Part | None:
        tensor = self.source.tensors[t]
        weight = self._of_weight.get(tensor.storage)
        if weight is not None:
            ways, extent = weight
            return Part(tensor.shape.index(extent), ways) if extent in tensor.shape else None
        state = self.division.state.get(t)
        return state if isinstance(state, Part) and state.ways > 1 else None

    # -- ops -----------------------------------------------------------------------------------------------------------
    def _op(self, i: int, op: Op) -> Op:
        inputs = tuple(self._read(i, place, t) for place, t in enumerate(op.inputs))
        attrs = op.attrs
        if op.kind == "moe_matmul" and self.layout.ep > 1:
            attrs = {**attrs, "experts": attrs["experts"] // self.layout.ep}
        if op.kind == "optimizer":
            attrs = self._optimizer(op)
        return replace(op, inputs=inputs, attrs=attrs)

    def _read(self, i: int, place: int, t: int) -> int:
        if (i, place) not in self.division.reads:
            return t
        part = self.division.reads[i, place]
        own = self._part(t)
        if part is None or part.ways == 1 or (own is not None and (own.dim, own.ways) == (part.dim, part.ways)):
            return t
        tensor = self.source.tensors[t]
        if own is not None and tensor.storage in self._of_weight:  # square: which dimension, only its reader knows
            self.tensors[t] = _cut(tensor, part)
            return t
        key = (t, Part(part.dim, part.ways))
        if key not in self._cut:
            self._cut[key] = len(self.tensors)
            self.tensors.append(_cut(tensor, part))
        return self._cut[key]

    def _optimizer(self, op: Op) -> dict[str, object]:
        """What one launch over lists of tensors moves, by the share of them that is here."""
        whole = local = 0.0
        for t in (*op.inputs, *op.outputs):
            repeat = self.source.storages[self.source.tensors[t].storage].repeat
            whole += math.prod(self.source.tensors[t].shape) * repeat
            local += math.prod(self.tensors[t].shape) * repeat
        share = local / max(whole, 1)
        return {**op.attrs, **{name: round(op.attrs[name] * share) for name in ("bytes_read", "bytes_written")}}

    def _exchange(self, exchange: Exchange, i: int) -> Op:
        beside = self.source.ops[i]
        t, tensor = exchange.tensor, self.tensors[exchange.tensor]
        if exchange.rows:
            tensor = Tensor(
                (*tensor.shape[:-1], 2), "fp32", 0, per_sample=tensor.per_sample and (*tensor.per_sample[:-1], 0)
            )
            t = self._new(tensor, i, beside.repeat)
            self.tensors.append(self.tensors[t])
            return self._collective(exchange, t, len(self.tensors) - 1, beside)
        if exchange.kind == "all_gather":
            whole = self.source.tensors[t]
            return self._collective(exchange, t, self._new(whole, i, beside.repeat), beside)
        self.tensors.append(replace(tensor))
        return self._collective(exchange, t, len(self.tensors) - 1, beside)

    def _new(self, like: Tensor, i: int, repeat: int) -> int:
        self.tensors.append(replace(like, storage=len(self.storages)))
        self.storages.append(storage_of(like, like.dtype, i, repeat))
        return len(self.tensors) - 1

    def _collective(self, exchange: Exchange, t: int, out: int, beside: Op) -> Op:
        return collective(exchange.kind, t, out, exchange.ways, beside)

    def _notes(self) -> Iterable[str]:
        graph, layout = self.source, self.layout
        shapes = Shapes(graph)
        flops = [float(cost(op, shapes).flops) * op.repeat for op in graph.ops]
        heavy = [i for i in self.division.whole if graph.ops[i].kind in CONTRACTIONS]
        alike = sum(flops[i] for i in heavy) / max(sum(flops), 1)
        if layout.tp > 1 and alike > _NOTED:
            names = list(dict.fromkeys(_layer(graph.ops[i]) for i in heavy))
            some = ", ".join(names[:4]) + (" and others" if len(names) > 4 else "")
            yield (
                f"tp={layout.tp}: {some} cannot be divided and run whole on every device ({alike:.0%} of the model's "
                "FLOPs)"
            )


def collective(kind: str, t: int, out: int, devices: int, beside: Op) -> Op:
    """A collective among so many devices, in the place and the scope of an op."""
    return Op(kind, kind, (t,), (out,), {"devices": devices}, beside.scope, beside.phase, beside.repeat)


def _cut(tensor: Tensor, part: Part) -> Tensor:
    """What one device holds of a tensor; a rest that cannot be divided fills the last one up."""

    def one(extents: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-e // part.ways) if k == part.dim else e for k, e in enumerate(extents))

    return replace(tensor, shape=one(tensor.shape), per_sample=tensor.per_sample and one(tensor.per_sample))


def _weights(storages: Iterable[Storage]) -> float:
    return sum(s.bytes * s.repeat for s in storages if s.role == "parameter")


def _layer(op: Op) -> str:
    """The name of an op's module without the number of its layer."""
    words = [word for word in op.scope.split(".") if not word.isdigit()]
    return ".".join(words[-2:]) or op.name
