"""Attention as dispatched by PyTorch (flash, memory-efficient, or unfused matmuls), and a complete encoder layer."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from .registry import Arguments, Built, operator

_SMALL = {"b": 2, "heads": 4, "q": 6, "kv": 6, "d": 8}


def _queries(a: Arguments, kv_heads: int | None = None) -> list[torch.Tensor]:
    """Queries, keys and values."""
    kv = (a["b"], kv_heads or a["heads"], a["kv"], a["d"])
    return [a.new(a["b"], a["heads"], a["q"], a["d"]), a.new(*kv), a.new(*kv)]


def _attend(tensors: list[torch.Tensor], **settings: Any) -> Built:
    q, k, v = tensors
    return lambda: functional.scaled_dot_product_attention(q, k, v, **settings), tensors


@operator("sdpa", _SMALL | {"causal": 0}, _SMALL | {"causal": 1}, _SMALL | {"causal": 0, "d": 5})
def sdpa(a: Arguments) -> Built:
    return _attend(_queries(a), is_causal=bool(a["causal"]))


@operator("sdpa_mask", _SMALL | {"per_query": 0}, _SMALL | {"per_query": 1})
def sdpa_mask(a: Arguments) -> Built:
    """A boolean padding mask, shared by all queries or one row per query."""
    lengths = a["kv"] // 2 + a.integers(a["kv"] - a["kv"] // 2, a["b"], 1, 1, 1) + 1
    mask = torch.arange(a["kv"], device=a.device) < lengths
    if a["per_query"]:
        mask = mask.expand(a["b"], 1, a["q"], a["kv"]).contiguous()
    return _attend(_queries(a), attn_mask=mask)


@operator(
    "sdpa_bias",
    _SMALL | {"per_sample": 0, "per_head": 1, "learned": 1},
    _SMALL | {"per_sample": 1, "per_head": 0, "learned": 0},
)
def sdpa_bias(a: Arguments) -> Built:
    """A bias added to the scores, such as relative positions: learned or not, per head or shared."""
    bias = a.new(a["b"] if a["per_sample"] else 1, a["heads"] if a["per_head"] else 1, a["q"], a["kv"])
    if not a["learned"]:
        bias = bias.detach()
    call, tensors = _attend(_queries(a), attn_mask=bias)
    return call, [*tensors, bias] if a["learned"] else tensors


@operator("sdpa_window", _SMALL | {"window": 2})
def sdpa_window(a: Arguments) -> Built:
    """Each query attends to the `window` keys up to its own position; the last query is at the last key."""
    places = torch.arange(a["q"], device=a.device)[:, None] + a["kv"] - a["q"]
    keys = torch.arange(a["kv"], device=a.device)[None, :]
    return _attend(_queries(a), attn_mask=(keys <= places) & (keys > places - a["window"]))


@operator("sdpa_gqa", _SMALL | {"kv_heads": 2, "causal": 1}, _SMALL | {"kv_heads": 1, "causal": 0})
def sdpa_gqa(a: Arguments) -> Built:
    """Grouped-query attention: fewer key/value heads than query heads; with one, multi-query attention."""
    return _attend(_queries(a, a["kv_heads"]), is_causal=bool(a["causal"]), enable_gqa=True)


@operator("rotary", {"b": 2, "heads": 3, "q": 5, "d": 8})
def rotary(a: Arguments) -> Built:
    """Rotary positions as in Hugging Face models: the two parts of a head are swapped by `cat`."""
    x = a.new(a["b"], a["heads"], a["q"], a["d"])
    cos, sin = a.new(a["q"], a["d"]).detach(), a.new(a["q"], a["d"]).detach()

    def run() -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    return run, [x]


@operator(
    "transformer_layer",
    {"b": 2, "length": 5, "hidden": 8, "heads": 2, "inner": 16, "norm_first": 0},
    {"b": 2, "length": 5, "hidden": 8, "heads": 2, "inner": 16, "norm_first": 1},
    backward=False,
    tf32=True,
)
def transformer_layer(a: Arguments) -> Built:
    """nn.TransformerEncoderLayer in eval mode without gradients, which PyTorch runs by its fused fast path."""
    layer = torch.nn.TransformerEncoderLayer(
        *(a["hidden"], a["heads"], a["inner"]), dropout=0.0, activation="gelu", batch_first=True,
        norm_first=bool(a["norm_first"]), device=a.device, dtype=a.dtype,
    ).eval()  # fmt: skip
    x = a.new(a["b"], a["length"], a["hidden"])
    return lambda: layer(x), [x]
