"""Operators that move data: embeddings, gathering and scattering, copies in another order."""

from __future__ import annotations

import torch
from torch.nn import functional

from .registry import Arguments, Built, operator

_PICK = {"rows": 8, "cols": 3, "picked": 5}


@operator("embedding", {"vocab": 10, "cols": 4, "rows": 6})
def embedding(a: Arguments) -> Built:
    """An embedding lookup; its backward writes a gradient for the whole table."""
    table, ids = a.new(a["vocab"], a["cols"]), a.integers(a["vocab"], a["rows"])
    return lambda: functional.embedding(ids, table), [table]


@operator("embedding_bag", *({"vocab": 10, "cols": 4, "bags": 3, "each": 5, "mean": mean} for mean in (0, 1)))
def embedding_bag(a: Arguments) -> Built:
    """`bags` sums (or means) of `each` rows of a table, as for categories in recommendation models."""
    table, ids = a.new(a["vocab"], a["cols"]), a.integers(a["vocab"], a["bags"], a["each"])
    mode = "mean" if a["mean"] else "sum"
    return lambda: functional.embedding_bag(ids, table, mode=mode), [table]


def _picked(a: Arguments) -> tuple[torch.Tensor, torch.Tensor]:
    """`picked` row indices, equal in every column."""
    rows = a.integers(a["rows"], a["picked"])
    return rows, rows.unsqueeze(1).expand(a["picked"], a["cols"])


@operator("gather", _PICK)
def gather(a: Arguments) -> Built:
    x, (_, ids) = a.new(a["rows"], a["cols"]), _picked(a)
    return lambda: torch.gather(x, 0, ids), [x]


@operator("index_select", _PICK)
def index_select(a: Arguments) -> Built:
    x, (rows, _) = a.new(a["rows"], a["cols"]), _picked(a)
    return lambda: torch.index_select(x, 0, rows), [x]


@operator("index_rows", _PICK)
def index_rows(a: Arguments) -> Built:
    """x[rows], as for relative position biases; its backward sorts the indices."""
    x, (rows, _) = a.new(a["rows"], a["cols"]), _picked(a)
    return lambda: x[rows], [x]


@operator("scatter_add", _PICK)
def scatter_add(a: Arguments) -> Built:
    x, (_, ids), source = a.new(a["rows"], a["cols"]), _picked(a), a.new(a["picked"], a["cols"])
    return lambda: torch.scatter_add(x, 0, ids, source), [x, source]


@operator("index_add", _PICK)
def index_add(a: Arguments) -> Built:
    x, (rows, _), source = a.new(a["rows"], a["cols"]), _picked(a), a.new(a["picked"], a["cols"])
    return lambda: torch.index_add(x, 0, rows, source), [x, source]


def _scatter_reduce(a: Arguments, how: str) -> Built:
    x, (_, ids), source = a.new(a["rows"], a["cols"]), _picked(a), a.new(a["picked"], a["cols"])
    return lambda: torch.scatter_reduce(x, 0, ids, source, how), [x, source]


@operator("scatter_mean", _PICK)
def scatter_mean(a: Arguments) -> Built:
    """Mean aggregation over edges in graph networks."""
    return _scatter_reduce(a, "mean")


@operator("scatter_max", _PICK)
def scatter_max(a: Arguments) -> Built:
    return _scatter_reduce(a, "amax")


@operator("transpose", {"b": 2, "rows": 3, "cols": 4})
def transpose(a: Arguments) -> Built:
    x = a.new(*a.sizes("b rows cols"))
    return lambda: x.transpose(1, 2).contiguous(), [x]


@operator("cat", {"b": 2, "rows": 3, "more": 2, "cols": 4})
def cat(a: Arguments) -> Built:
    x, y = a.new(*a.sizes("b rows cols")), a.new(*a.sizes("b more cols"))
    return lambda: torch.cat([x, y], 1), [x, y]


@operator("cache_append", {"b": 2, "heads": 2, "length": 3, "cols": 4, "parts": 3}, backward=False)
def cache_append(a: Arguments) -> Built:
    """Keys of one more token appended to the cache; `parts`: 1, or 3 if one projection makes queries, keys and values,
    which leaves gaps between the keys of two samples."""
    cache, width = a.new(*a.sizes("b heads length cols")), a["heads"] * a["cols"]
    fresh = a.new(a["b"], 1, a["parts"] * width)[..., :width].view(a["b"], 1, a["heads"], a["cols"]).transpose(1, 2)
    return lambda: torch.cat([cache, fresh], -2), [cache, fresh]


@operator("join_features", {"b": 2, "heads": 2, "length": 3, "first": 2, "cols": 4}, backward=False)
def join_features(a: Arguments) -> Built:
    """Partial rotary positions: the rotated features of a head concatenated with the others."""
    rotated = a.new(*a.sizes("b heads length first"))
    heads = a.new(a["b"], a["length"], a["heads"], 3 * a["cols"]).transpose(1, 2)[..., : a["cols"]]
    return lambda: torch.cat([rotated, heads[..., a["first"] :]], -1), [rotated, heads]


@operator("roll", {"b": 2, "h": 4, "w": 4, "c": 3, "shift": 2})
def roll(a: Arguments) -> Built:
    """A cyclic shift of channels-last images by half a window, as in Swin."""
    x = a.new(*a.sizes("b h w c"))
    return lambda: torch.roll(x, (-a["shift"], -a["shift"]), (1, 2)), [x]
