"""Which tensors of a graph are divided among the devices of tensor parallelism, and where they must be put together.

One walk along the ops: what an op does to a divided input decides what its outputs are. A matmul of something whole
with a weight divides the weight by columns, so that its output is divided; a matmul of something divided divides the
weight by rows, so that every device holds an addend of the output. An addend is summed up (all-reduce) before the first
op that is not linear in it. Where an op cannot work on a part, the column division that led there is undone: `Division`
records it, and `divide` (division_rules.py) walks again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from forerun.graph.ir import Graph, Op
from forerun.graph.layout import Layout
from forerun.graph.views import follow

#: A dimension this long is a vocabulary: longer than any table of positions. It is divided even where a rest remains.
VOCABULARY = 10_000


@dataclass(frozen=True)
class Part:
    """A tensor of which every device holds one of `ways` parts along `dim`; `made` are the ops that divided it."""

    dim: int
    ways: int
    made: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Addend:
    """A tensor that is the sum of what `ways` devices hold; `op` made it."""

    op: int
    ways: int


State = Part | Addend | None  # None: every device holds the whole


@dataclass
class Exchange:
    """A collective that belongs before or after an op: what of, among how many."""

    kind: str
    tensor: int
    ways: int
    rows: bool = False  # of one number for each row of the tensor, in fp32


@dataclass
class Division:
    """The outcome of a walk: the state of every tensor, what ops read in parts, and what is exchanged."""

    state: dict[int, State] = field(default_factory=dict)
    reads: dict[tuple[int, int], Part | None] = field(default_factory=dict)  # (op, input), where it differs
    weights: dict[int, set[tuple[int, int]]] = field(default_factory=dict)  # storage -> (ways, extent) it is read in
    before: dict[int, list[Exchange]] = field(default_factory=dict)
    after: dict[int, list[Exchange]] = field(default_factory=dict)
    whole: list[int] = field(default_factory=list)  # matmuls with weights that every device computes alike
    undone: dict[int, int] = field(default_factory=dict)  # op -> in how many parts its weight may be divided at most


class Walk:
    """What is known along one walk over the ops of a graph: the states of its tensors."""

    def __init__(self, graph: Graph, layout: Layout, most: dict[int, int]) -> None:
        self.graph, self.tp, self.ep, self.most = graph, layout.tp, layout.ep, most
        self.out = Division()
        self._seen: dict[int, list[int]] = {}  # tensors of a storage whose state is known, in order
        self._weights: dict[int, Part] = {}  # weights that matmuls and tables have divided; dim is an extent here
        self._readers, self._tables = _readers_and_tables(graph)
        self._casts = _casts_of_weights(graph)
        self._views: dict[int, list[int]] = {}
        for t, tensor in enumerate(graph.tensors):
            self._views.setdefault(tensor.storage, []).append(t)

    # -- states ------------------------------------------------------------------------------------------------------
    def of(self, t: int) -> State:
        """The state of a tensor: its own, or that of another view of the same memory."""
        if t in self.out.state:
            return self.out.state[t]
        storage = self.graph.tensors[t].storage
        seen = self._seen.get(storage, [])
        if not any(isinstance(self.out.state[k], Part) for k in seen):
            return self.out.state[seen[-1]] if seen else None
        for k in self._views[storage]:  # views of views, in the order in which they were made
            if seen[0] < k < t and k not in self.out.state and (found := self._followed(k)) is not None:
                self._set(k, found)
        found = self._followed(t)
        if found is not None:
            extent = self.graph.tensors[t].shape[found.dim]
            if extent % found.ways == 0 or extent >= VOCABULARY:
                return self._set(t, found)
            self._undo(found, math.gcd(extent, found.ways))
            return None
        state = next(s for k in seen if isinstance(s := self.out.state[k], Part))
        self._undo(state, 1)
        return None

    def _followed(self, t: int) -> Part | None:
        """The part that a tensor is of its memory, from the views of it whose state is known."""
        tensor = self.graph.tensors[t]
        numel = math.prod(tensor.shape)
        parts = [k for k in self._seen[tensor.storage] if isinstance(self.out.state[k], Part)]
        equal = [k for k in reversed(parts) if math.prod(self.graph.tensors[k].shape) == numel]
        for k in (*equal, *(k for k in parts if k not in equal)):
            state, source = self.out.state[k], self.graph.tensors[k]
            dim = follow(source, state.dim, tensor) if isinstance(state, Part) else None
            if isinstance(state, Part) and dim is not None:
                return replace(state, dim=dim)
        return None

    def _set(self, t: int, state: State) -> State:
        self.out.state[t] = state
        self._seen.setdefault(self.graph.tensors[t].storage, []).append(t)
        return state

    def _undo(self, state: Part, ways: int) -> None:
        """A part that cannot be used: the matmuls that made it may divide their weights in so many parts at most."""
        for op in state.made:
            self.out.undone[op] = min(ways if ways < state.ways else 1, self.out.undone.get(op, self.tp))

    def _sum_up(self, t: int, state: Addend) -> None:
        storage = self.graph.tensors[t].storage
        made = next((k for k in self.graph.ops[state.op].outputs if self.graph.tensors[k].storage == storage), t)
        self.out.after.setdefault(state.op, []).append(Exchange("all_reduce", made, state.ways))
        for k in self._seen[storage]:
            self.out.state[k] = None

    def _need(self, i: int, place: int, part: Part) -> None:
        """An op reads an input in this part: cut out of the whole for nothing, or more finely than it is divided."""
        t = self.graph.ops[i].inputs[place]
        storage, state = self.graph.tensors[t].storage, self.of(t)
        role = self.graph.storages[storage].role
        if self._is_weight(t):
            extent = self.graph.tensors[t].shape[part.dim]
            self.out.weights.setdefault(self._casts.get(storage, storage), set()).add((part.ways, extent))
            self.out.reads[i, place] = part
        elif state is None and role == "cache" and storage not in self._seen:
            self._set(t, part)
        elif state is None:
            self.out.reads[i, place] = part
        elif isinstance(state, Part) and state.dim == part.dim and part.ways % state.ways == 0:
            if part.ways != state.ways:
                self.out.reads[i, place] = part
        elif isinstance(state, Part):
            self._cannot(i, place)

    def _cannot(self, i: int, place: int) -> None:
        """An op needs an input whole that is divided."""
        state = self.of(self.graph.ops[i].inputs[place])
        if isinstance(state, Part):
            self._undo(state, 1)
            self.out.reads[i, place] = None

    def _need_whole(self, i: int, op: Op, but: Sequence[int] = ()) -> None:
        for place, t in enumerate(op.inputs):
            if place not in but:
                self._cannot(i, place)
                if self._is_weight(t):
                    self._read_whole(t)

    def _outputs(self, op: Op, state: State) -> None:
        for t in op.outputs:
            self._set(t, state)

    def _is_weight(self, t: int) -> bool:
        storage = self.graph.tensors[t].storage
        return self.graph.storages[storage].role == "parameter" or storage in self._casts

    def _weights_whole(self, op: Op, only: int | None = None) -> None:
        cast = any(self.graph.tensors[t].storage in self._casts for t in op.outputs)
        for place, t in enumerate(op.inputs):
            if self._is_weight(t) and only in (None, place) and not cast:
                self._read_whole(t)

    def _read_whole(self, t: int) -> None:
        storage = self.graph.tensors[t].storage
        self.out.weights.setdefault(self._casts.get(storage, storage), set()).add((1, 1))

    def _of_list(self, t: int) -> State:
        """The state of a tensor of an optimizer; a weight's is that in which it is read."""
        tensor = self.graph.tensors[t]
        if not self._is_weight(t):
            return self.of(t)
        read = self.out.weights.get(tensor.storage, set())
        ways, extent = next(iter(read)) if len(read) == 1 else (1, 1)
        return Part(tensor.shape.index(extent), ways) if ways > 1 and extent in tensor.shape else None

    def _sent(self, where: dict[int, list[Exchange]], i: int, t: int) -> None:
        if self.ep > self.tp:
            where.setdefault(i, []).append(Exchange("all_to_all", t, self.ep))


def _readers_and_tables(graph: Graph) -> tuple[dict[int, int], set[int]]:
    """How many ops read every storage that they do not write, and the storages of tables of a vocabulary."""
    readers: dict[int, int] = {}
    tables = {
        graph.tensors[op.inputs[0]].storage for op in graph.ops
        if op.kind == "embedding" and graph.tensors[op.inputs[0]].shape[0] >= VOCABULARY
    }  # fmt: skip
    for op in graph.ops:
        for storage in {graph.tensors[t].storage for t in op.inputs}:
            readers[storage] = readers.get(storage, 0) + 1
    return readers, tables


def _casts_of_weights(graph: Graph) -> dict[int, int]:
    """Memory that holds a weight in another dtype: its storage, and that of the weight."""
    casts: dict[int, int] = {}
    for op in graph.ops:
        if op.kind in ("copy", "elementwise") and op.inputs and len(op.outputs) == 1:
            sources = {graph.tensors[t].storage for t in op.inputs}
            x, y = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
            stored = all(graph.storages[casts.get(s, s)].role == "parameter" for s in sources)
            if stored and len(sources) == 1 and len(y.shape) > 1 and x.storage != y.storage and x.shape == y.shape:
                casts[y.storage] = casts.get(x.storage, x.storage)
    return casts
