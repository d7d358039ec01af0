"""The graph of an engine's decode step, taken apart by what decides how long each op takes: tokens of the iteration,
sequences that get a token, tokens in their caches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from forerun.graph.ir import DTYPE_BYTES, Graph, Op, Storage, Tensor
from forerun.graph.kinds import CONTRACTIONS

#: What an op's time goes with: tokens; sequences whose logits are wanted; sequences with a state; caches.
ROLES = ("token", "head", "state", "context", "attention")


@dataclass(frozen=True)
class Attention:
    """One kind of attention in a model, on one device."""

    layers: int
    heads: int
    kv_heads: int
    width: int  # of a key
    value_width: int
    dtype: str
    window: int | None  # keys that each query sees at most
    expanded: tuple[int, int, int] | None = None  # of a latent cache, in prefill: heads of keys, widths of keys, values

    @property
    def cache_bytes(self) -> float:
        """Bytes that one token takes in the caches of all its layers. Values of a latent cache are part of its keys."""
        widths = self.width if self.expanded else self.width + self.value_width
        return self.layers * self.kv_heads * widths * DTYPE_BYTES[self.dtype]


def roles(graph: Graph, length: int) -> list[str]:
    """The role of every op of a decode step against `length` cached tokens."""
    products = [i for i, op in enumerate(graph.ops) if op.kind == "matmul" and op.attrs.get("shared_b")]
    last = products[-1] if products else len(graph.ops)
    return [_role(graph, op, i >= last, (length, length + 1)) for i, op in enumerate(graph.ops)]


def _role(graph: Graph, op: Op, behind: bool, lengths: tuple[int, int]) -> str:
    if op.kind == "attention":
        return "attention"
    if behind:
        return "head"
    tensors = [graph.tensors[t] for t in (*op.inputs, *op.outputs)]
    if any(set(t.shape) & set(lengths) for t in tensors if graph.storages[t.storage].role != "parameter"):
        return "context"
    cached = any(graph.storages[t.storage].role == "cache" for t in tensors)
    return "state" if cached and op.kind not in CONTRACTIONS - {"conv"} else "token"


def attentions(graph: Graph, length: int) -> list[Attention]:
    """The kinds of attention of a decode step against `length` cached tokens."""
    found: dict[Attention, int] = {}
    for op in graph.ops:
        if op.kind != "attention":
            continue
        q, k, v = (graph.tensors[t] for t in op.inputs[:3])
        keys = k.shape[-2]
        window = op.attrs.get("window") or (keys if keys < length else None)
        expanded = tuple(op.attrs["expanded"]) if "expanded" in op.attrs else None
        one = Attention(0, q.shape[1], k.shape[1], k.shape[-1], v.shape[-1], k.dtype, window, expanded)
        found[one] = found.get(one, 0) + op.repeat
    return [replace(one, layers=many) for one, many in found.items()]


def decode_graph(like: Graph, one: Attention, lengths: Iterable[int]) -> Graph:
    """Attention of one layer in decode, an op for each length of the cache, for any number of sequences."""
    return _attention_graph(like, [_sizes(one, 1, n, one.kv_heads, one.width, one.value_width) for n in lengths], one)


def prefill_graph(like: Graph, one: Attention, lengths: Iterable[int]) -> Graph:
    """Attention of one layer over whole prompts, an op for each length."""
    heads, width, value_width = one.expanded or (one.kv_heads, one.width, one.value_width)
    return _attention_graph(like, [_sizes(one, n, n, heads, width, value_width) for n in lengths], one)


def _sizes(one: Attention, queries: int, keys: int, heads: int, width: int, value_width: int) -> list[tuple[int, ...]]:
    return [
        (1, one.heads, queries, width), (1, heads, keys, width), (1, heads, keys, value_width),
        (1, one.heads, queries, value_width),
    ]  # fmt: skip


def _attention_graph(like: Graph, sizes: list[list[tuple[int, ...]]], one: Attention) -> Graph:
    ops, tensors, storages = [], [], []
    for shapes in sizes:
        for n, shape in enumerate(shapes):
            held = shape[1] * shape[2] * shape[3] * DTYPE_BYTES[one.dtype]
            if n == 2 and one.expanded and shape[1] == 1:
                held = 0  # the values of a latent cache are among its keys
            storages.append(Storage(int(held), "activation", per_sample=int(held)))
            tensors.append(Tensor(shape, one.dtype, len(storages) - 1, per_sample=(1, 0, 0, 0)))
        at = len(tensors)
        attrs = {"causal": shapes[0][2] > 1}
        ops.append(Op("attention", "attention", (at - 4, at - 3, at - 2), (at - 1,), attrs))
    return replace(like, ops=ops, tensors=tensors, storages=storages, batch=1, min_batch=1, outputs=())
