"""What every kind of op makes of divided inputs: the rules of tensor parallelism (division.py holds the states)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from forerun.graph import op_names
from forerun.graph.division import VOCABULARY, Addend, Division, Exchange, Part, State, Walk
from forerun.graph.ir import DTYPE_BYTES, Graph, Op
from forerun.graph.layout import Layout
from forerun.graph.views import follow, kept_dim

#: Columns that every device must get at least, for a matmul to be worth dividing.
_COLUMNS = 16
#: Reductions that are the sum of those of the parts, but for a factor.
_SUMS = frozenset({"sum", "mean", "nll_loss_forward", "nll_loss2d_forward"})
#: Walks that are enough for every model: each undoes at least one division.
_WALKS = 64


def divide(graph: Graph, layout: Layout) -> Division:
    """The division of a graph among `layout.tp` devices, its experts among `layout.ep`."""
    most: dict[int, int] = {}
    for _ in range(_WALKS):
        walk = _Rules(graph, layout, most)
        division = walk.run()
        if not division.undone:
            return division
        for op, ways in division.undone.items():
            most[op] = min(ways, most.get(op, layout.tp))
    raise RuntimeError(f"{graph.name}: the division among {layout.tp} devices did not come to an end")


class _Rules(Walk):
    """One walk along the ops of a graph."""

    def __init__(self, graph: Graph, layout: Layout, most: dict[int, int]) -> None:
        super().__init__(graph, layout, most)
        self._rules: dict[str, Callable[[int, Op, list[State]], None]] = {
            "matmul": self._matmul, "moe_matmul": self._experts, "moe_matmul_backward": self._expert_gradient,
            "attention": self._attention, "attention_backward": self._attention, "embedding": self._embedding,
            "embedding_backward": self._table_gradient, "norm": self._norm, "norm_backward": self._norm,
            "softmax": self._softmax, "softmax_backward": self._softmax, "reduce": self._reduce,
            "gather": self._gather, "sort": self._norm, "elementwise": self._aligned, "copy": self._copy,
            "scatter": self._copy, "random": self._aligned, "fill": self._aligned, "optimizer": self._optimizer,
        }  # fmt: skip

    def run(self) -> Division:
        for i, op in enumerate(self.graph.ops):
            states = [self.of(t) for t in op.inputs]
            if any(isinstance(s, Addend) for s in states):
                if self._linear(op, states):
                    ways = max(s.ways for s in states if isinstance(s, Addend))
                    for t in op.outputs:
                        self._set(t, Addend(i, ways))
                    continue
                for t, s in zip(op.inputs, states, strict=True):
                    if isinstance(s, Addend):
                        self._sum_up(t, s)
                states = [self.of(t) for t in op.inputs]
            self._rules.get(op.kind, self._opaque)(i, op, states)
        self._finish()
        return self.out

    # -- ops that every device computes alike, or that are linear ------------------------------------------------------
    def _opaque(self, i: int, op: Op, states: list[State]) -> None:
        self._need_whole(i, op)
        self._outputs(op, None)
        if any(self._is_weight(t) for t in op.inputs):
            self.out.whole.append(i)

    def _linear(self, op: Op, states: list[State]) -> bool:
        """Whether the op may be applied to addends as well as to their sum; nothing else may read these."""
        if any(
            isinstance(s, Addend) and self._readers.get(self.graph.tensors[t].storage, 0) > 1
            for t, s in zip(op.inputs, states, strict=True)
        ):
            return False
        name = op_names.plain_name(op.name)
        addends = [isinstance(s, Addend) for s in states]
        others_whole = not any(isinstance(s, Part) for s in states)
        if op.kind == "elementwise" and name in ("add", "sub"):
            return len(op.inputs) > 1 and all(addends)
        if op.kind == "elementwise" and name in ("mul", "div", "neg"):
            return sum(addends) == 1 and others_whole and (addends[0] or name == "mul")
        if op.kind == "reduce":
            return name in _SUMS and addends[0]
        if op.kind == "gather":
            return addends[0] and others_whole and not any(addends[1:])
        if op.kind == "copy" and op.inputs and op.outputs:
            wide = (
                DTYPE_BYTES[self.graph.tensors[op.outputs[0]].dtype]
                > DTYPE_BYTES[self.graph.tensors[op.inputs[0]].dtype]
            )
            return all(addends) and not wide
        return False

    # -- matmuls -----------------------------------------------------------------------------------------------------
    def _matmul(self, i: int, op: Op, states: list[State]) -> None:
        if self._is_weight(op.inputs[1]):
            self._with_weight(i, op, states[0])
        else:
            self._product(i, op, states)

    def _with_weight(self, i: int, op: Op, a: State) -> None:
        x, w = (self.graph.tensors[t] for t in op.inputs[:2])
        rank, last = len(w.shape), len(x.shape) - 1
        known = self._weights.get(w.storage)
        if isinstance(a, Part) and a.dim == last:  # rows
            if known is None or known.dim == w.shape[-2]:
                self._weights.setdefault(w.storage, Part(w.shape[-2], a.ways))
                self._need(i, 1, Part(rank - 2, a.ways))
                self._rest_whole(i, op)
                self._outputs(op, Addend(i, a.ways))
                return
            self._cannot(i, 0)
        elif isinstance(a, Part):  # rows of x
            self._need_whole(i, op, but=(0,))
            self._outputs(op, a)
            return
        columns = w.shape[-1]
        ways = self._ways(i, columns) if known is None else known.ways
        if ways > 1 and (known is None or known.dim == columns):
            made = frozenset({i}) if known is None else known.made
            self._weights.setdefault(w.storage, Part(columns, ways, made))
            self._need(i, 1, Part(rank - 1, ways))
            if len(op.inputs) > 2 and op.kind == "matmul":
                self._need(i, 2, Part(len(self.graph.tensors[op.inputs[2]].shape) - 1, ways))
            y = self.graph.tensors[op.outputs[0]]
            self._outputs(op, Part(len(y.shape) - 1, ways, made))
        elif (
            ways > 1 and known is not None and known.dim == w.shape[-2]
        ):  # the gradient by the input of divided columns
            self._need(i, 0, Part(last, ways))
            self._need(i, 1, Part(rank - 2, ways))
            self._rest_whole(i, op)
            self._outputs(op, Addend(i, ways))
        else:
            self._need_whole(i, op)
            self._outputs(op, None)
            self.out.whole.append(i)

    def _ways(self, i: int, columns: int) -> int:
        ways = self.tp if columns >= VOCABULARY else math.gcd(columns, self.tp)
        ways = math.gcd(ways, self.most.get(i, self.tp)) if self.most.get(i, self.tp) < ways else ways
        return ways if columns // ways >= _COLUMNS else 1

    def _rest_whole(self, i: int, op: Op) -> None:
        self._need_whole(i, op, but=(0, 1))

    def _product(self, i: int, op: Op, states: list[State]) -> None:
        """Of two activations: along the sum, the rows of one, the columns of the other, or a batch of products."""
        a, b = states[:2]
        left, right = (len(self.graph.tensors[t].shape) for t in op.inputs[:2])
        rank = len(self.graph.tensors[op.outputs[0]].shape)
        if (isinstance(a, Part) and a.dim == left - 1) or (isinstance(b, Part) and b.dim == right - 2):
            ways = max(s.ways for s in (a, b) if isinstance(s, Part))
            self._need(i, 0, Part(left - 1, ways))
            self._need(i, 1, Part(right - 2, ways))
            self._rest_whole(i, op)
            self._outputs(op, Addend(i, ways))
        elif isinstance(a, Part) and a.dim == left - 2:
            self._need_whole(i, op, but=(0,))
            self._outputs(op, replace(a, dim=rank - 2))
        elif isinstance(b, Part) and b.dim == right - 1:
            self._need_whole(i, op, but=(1,))
            self._outputs(op, replace(b, dim=rank - 1))
        elif isinstance(a, Part) or isinstance(b, Part):
            part = max((s for s in (a, b) if isinstance(s, Part)), key=lambda s: s.ways)
            for place, size in ((0, left), (1, right)):
                if size == rank and not (place and op.attrs.get("shared_b")):
                    self._need(i, place, part)
            self._rest_whole(i, op)
            self._outputs(op, part)
        else:
            self._outputs(op, None)

    # -- experts -----------------------------------------------------------------------------------------------------
    def _experts(self, i: int, op: Op, states: list[State]) -> None:
        if self.ep == 1:
            self._with_weight(i, op, states[0])
            return
        # Whole experts: each device computes the rows that are routed to its own, those of all replicas.
        rows = Part(0, self.tp)
        if states[0] is None:
            self._need(i, 0, rows)
            self._sent(self.out.before, i, op.inputs[0])
        self._need(i, 1, Part(0, self.ep))
        self._outputs(op, rows)

    def _expert_gradient(self, i: int, op: Op, states: list[State]) -> None:
        x, gy = states[:2]
        if self.ep > 1:
            for place in (0, 1):
                self._need(i, place, Part(0, self.tp))
            self._outputs(op, Part(0, self.ep))
        elif isinstance(x, Part) and x.dim == 1:
            self._outputs(op, replace(x, dim=1))
        elif isinstance(gy, Part) and gy.dim == 1:
            self._outputs(op, replace(gy, dim=2))
        else:
            self._opaque(i, op, states)

    # -- attention, tables, norms ------------------------------------------------------------------------------------
    def _attention(self, i: int, op: Op, states: list[State]) -> None:
        parts = [s for s in states if isinstance(s, Part)]
        if not parts:
            self._outputs(op, None)
            return
        if any(s.dim != 1 for s in parts):
            self._opaque(i, op, states)
            return
        made = frozenset().union(*(s.made for s in parts))
        first = 1 if op.kind == "attention_backward" else 0
        heads = self.graph.tensors[op.inputs[first]].shape[1]
        ways = math.gcd(heads, max(s.ways for s in parts))

        def by_heads(t: int) -> State:
            shape = self.graph.tensors[t].shape
            several = math.gcd(shape[1], ways) if len(shape) > 1 else 1
            return Part(1, several, made) if several > 1 else None

        for place, t in enumerate(op.inputs):
            state = by_heads(t)
            if isinstance(state, Part):
                self._need(i, place, state)
        for t in op.outputs:
            self._set(t, by_heads(t))

    def _embedding(self, i: int, op: Op, states: list[State]) -> None:
        table = self.graph.tensors[op.inputs[0]]
        if table.storage in self._tables and self._is_weight(op.inputs[0]) and self.tp > 1:
            self._weights.setdefault(table.storage, Part(table.shape[0], self.tp))
            self._need(i, 0, Part(0, self.tp))
            self._outputs(op, Addend(i, self.tp))
        else:
            self._opaque(i, op, states)

    def _table_gradient(self, i: int, op: Op, states: list[State]) -> None:
        self._need_whole(i, op)
        rows = self.graph.tensors[op.outputs[0]].shape[0]
        divided = any(p.dim == rows for s, p in self._weights.items() if s in self._tables)
        self._outputs(op, Part(0, self.tp) if divided else None)

    def _norm(self, i: int, op: Op, states: list[State]) -> None:
        """Along the last dimension, which must be whole."""
        x = states[0] if op.inputs else None
        if not isinstance(x, Part) or x.dim == len(self.graph.tensors[op.inputs[0]].shape) - 1:
            self._need_whole(i, op)
            self._outputs(op, None)
            return
        shape = self.graph.tensors[op.inputs[0]].shape
        for place, t in enumerate(op.inputs):
            if self.graph.tensors[t].shape[: x.dim + 1] == shape[: x.dim + 1]:
                self._need(i, place, x)
            else:
                self._cannot(i, place)
        for t in op.outputs:
            same = self.graph.tensors[t].shape[: x.dim + 1] == shape[: x.dim + 1]
            self._set(t, x if same else Addend(i, x.ways))  # gradients of weights that all parts share

    def _softmax(self, i: int, op: Op, states: list[State]) -> None:
        x = states[0]
        rank = len(self.graph.tensors[op.inputs[0]].shape)
        if isinstance(x, Part) and x.dim == rank - 1 and self.graph.tensors[op.inputs[0]].shape[-1] >= VOCABULARY:
            # Of divided logits: the greatest of each row and the sum of its exponentials are exchanged.
            self.out.after.setdefault(i, []).append(Exchange("all_reduce", op.outputs[0], x.ways, rows=True))
            self._aligned(i, op, states)
        else:
            self._norm(i, op, states)

    # -- everything else ---------------------------------------------------------------------------------------------
    def _aligned(self, i: int, op: Op, states: list[State]) -> None:
        """Dimensions line up from the last, as broadcasting has it; concatenation may add some up."""
        shapes = [self.graph.tensors[t].shape for t in op.inputs]
        parts = [(len(shapes[k]) - s.dim, s, k) for k, s in enumerate(states) if isinstance(s, Part)]
        if not parts:
            self._weights_whole(op)
            self._outputs(op, None)
            return
        from_last, part, leader = max(parts, key=lambda p: (p[1].ways, math.prod(shapes[p[2]])))
        made = frozenset().union(*(p[1].made for p in parts if p[0] == from_last))
        for place, shape in enumerate(shapes):
            state, dim = states[place], len(shape) - from_last
            if isinstance(state, Part) and len(shape) - state.dim != from_last:
                self._cannot(i, place)
            elif dim >= 0 and shape[dim] > 1:
                if shape[dim] % part.ways and shape[dim] != shapes[leader][part.dim]:
                    self._undo(part, math.gcd(shape[dim], part.ways))
                self._need(i, place, Part(dim, part.ways, made))
            elif self._is_weight(op.inputs[place]):
                self._weights_whole(op, only=place)
        for t in op.outputs:
            dim = len(self.graph.tensors[t].shape) - from_last
            self._set(t, Part(dim, part.ways, made) if dim >= 0 else None)

    def _copy(self, i: int, op: Op, states: list[State]) -> None:
        if not op.outputs:
            self._opaque(i, op, states)
            return
        y = self.graph.tensors[op.outputs[0]]
        x = self.graph.tensors[op.inputs[0]] if op.inputs else y
        into = op_names.in_place(op.name) or op.kind == "scatter"
        if op.inputs and not into and len(x.shape) != len(y.shape) and isinstance(states[0], Part):
            dim = follow(x, states[0].dim, y)
            if dim is None or (y.shape[dim] % states[0].ways and y.shape[dim] != x.shape[states[0].dim]):
                self._opaque(i, op, states)
            else:
                self._outputs(op, replace(states[0], dim=dim))
            return
        empty = [k for k, t in enumerate(op.inputs) if 0 in self.graph.tensors[t].shape]
        ranks = {len(self.graph.tensors[t].shape) for k, t in enumerate(op.inputs) if k not in empty}
        source = states[-1] if op.kind == "scatter" and states else None
        if isinstance(source, Part) and source.dim == 0 and len(op.inputs) > 2:  # rows written where an index says
            self._outputs(op, Addend(i, source.ways))
            return
        if into and len(ranks) > 1 and not any(isinstance(s, Part) for s in states):
            self._outputs(op, None)
            return
        self._aligned(i, op, states)

    def _reduce(self, i: int, op: Op, states: list[State]) -> None:
        x = states[0] if op.inputs else None
        parts = [k for k, s in enumerate(states) if isinstance(s, Part)]
        if not parts:
            self._weights_whole(op)
            self._outputs(op, None)
            return
        if not isinstance(x, Part):  # the gradient of a loss: like the divided logits
            shape = self.graph.tensors[op.inputs[parts[0]]].shape
            for t in op.outputs:
                self._set(t, states[parts[0]] if self.graph.tensors[t].shape == shape else None)
            return
        shape = self.graph.tensors[op.inputs[0]].shape
        # Forward, only losses are summed up in parts: a norm in parts would leave its whole layer so.
        sums = op.phase != "forward" or shape[x.dim] >= VOCABULARY
        sums = sums and op_names.plain_name(op.name) in _SUMS
        for t in op.outputs:
            out = self.graph.tensors[t]
            kept = kept_dim(shape, x.dim, out.shape)
            if kept is None and not sums:
                self._opaque(i, op, states)
                return
            self._set(t, Addend(i, x.ways) if kept is None else replace(x, dim=kept))

    def _gather(self, i: int, op: Op, states: list[State]) -> None:
        x = states[0] if op.inputs else None
        if not isinstance(x, Part):
            self._need_whole(i, op)
            self._outputs(op, None)
            return
        source, out = self.graph.tensors[op.inputs[0]], self.graph.tensors[op.outputs[0]]
        from_last = len(source.shape) - x.dim
        dim = len(out.shape) - from_last
        if x.dim and dim >= 0 and out.shape[dim] == source.shape[x.dim]:
            self._outputs(op, replace(x, dim=dim))
        elif x.dim == 0 and not x.made:  # rows of experts, brought back into the order of tokens
            self._sent(self.out.before, i, op.inputs[0])
            self._outputs(op, Addend(i, x.ways) if x.ways > 1 else None)
        elif x.dim == 0 or source.shape[x.dim] >= VOCABULARY:
            self._outputs(op, Addend(i, x.ways))
        else:
            self._opaque(i, op, states)

    def _optimizer(self, i: int, op: Op, states: list[State]) -> None:
        """Elementwise on lists of tensors: what is divided in one list is divided in all of them."""
        lists = max(int(op.attrs.get("lists", 1)), 1)
        size = len(op.inputs) // lists if len(op.inputs) % lists == 0 else 0
        for k in range(size):
            places = [k + size * j for j in range(lists)]
            parts = [s for p in places if isinstance(s := self._of_list(op.inputs[p]), Part)]
            for p in places if parts else ():
                t = op.inputs[p]
                if not self._is_weight(t) and self.out.state.get(t) is None and self.of(t) is None:
                    self._set(t, parts[0])
        for k, t in enumerate(op.outputs):
            like = op.inputs[k % size] if size else None
            state = self._of_list(like) if like is not None else None
            if self.of(t) is None and isinstance(state, Part) and not self._is_weight(t):
                self._set(t, state)

    def _finish(self) -> None:
        """What a call returns is put together; a matmul whose result goes nowhere else is better computed whole."""
        graph = self.graph
        training = any(op.phase != "forward" for op in graph.ops)
        for t in graph.outputs or graph.ops[-1].outputs if graph.ops and not training else ():
            state = self.of(t)
            if isinstance(state, Addend):
                self._sum_up(t, state)
            elif isinstance(state, Part) and self._readers.get(graph.tensors[t].storage, 0) == 0:
                if graph.tensors[t].shape[state.dim] < VOCABULARY:
                    self._undo(state, 1)
                else:
                    at = max(graph.tensors[t].producer, 0)
                    self.out.after.setdefault(at, []).append(Exchange("all_gather", t, state.ways))
