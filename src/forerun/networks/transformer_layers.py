"""Layers that several families share: attention, feed-forward, transformer blocks.

It imports PyTorch, so families import it inside `build` only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, length, width) as (batch, heads, length, width / heads)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(batch, heads, length, head) as (batch, length, width)."""
    return x.transpose(1, 2).flatten(2)


def rotary_tables(length: int, head: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of rotary positions, each (length, head)."""
    rates = 1.0 / 10000.0 ** (torch.arange(0, head, 2, device=device, dtype=torch.float32) / head)
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), rates)
    doubled = torch.cat([angles, angles], dim=-1)
    return doubled.cos(), doubled.sin()


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Queries or keys turned by their rotary positions."""
    cos, sin = (t.to(x.dtype) for t in tables)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    """Multi-head attention by scaled_dot_product_attention, on itself or on a context."""

    def __init__(self, width: int, heads: int, *, bias: bool = True, causal: bool = False, head: int = 0) -> None:
        super().__init__()
        inner = heads * (head or width // heads)
        self.heads, self.causal = heads, causal
        self.query = nn.Linear(width, inner, bias=bias)
        self.key = nn.Linear(width, inner, bias=bias)
        self.value = nn.Linear(width, inner, bias=bias)
        self.out = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        q = split_heads(self.query(x), self.heads)
        k = split_heads(self.key(source), self.heads)
        v = split_heads(self.value(source), self.heads)
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(q.dtype)
        causal = self.causal and mask is None
        return self.out(merge_heads(functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)))


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, or a gated one (three linear layers)."""

    def __init__(self, width: int, inner: int, *, activation: str = "gelu", gated: bool = False, bias: bool = True):
        super().__init__()
        self.up = nn.Linear(width, inner, bias=bias)
        self.gate = nn.Linear(width, inner, bias=bias) if gated else None
        self.down = nn.Linear(inner, width, bias=bias)
        self.activation = {"gelu": nn.GELU(), "relu": nn.ReLU(), "silu": nn.SiLU()}[activation]

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """A transformer block, norm first: attention, attention on a context if `cross`, feed-forward."""

    def __init__(
        self, width: int, heads: int, inner: int, *, causal: bool = False, cross: bool = False, rms: bool = False,
        bias: bool = True, activation: str = "gelu", gated: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        norm = nn.RMSNorm if rms else nn.LayerNorm
        self.norm_attention = norm(width)
        self.attention = Attention(width, heads, bias=bias, causal=causal)
        self.norm_cross = norm(width) if cross else None
        self.cross = Attention(width, heads, bias=bias) if cross else None
        self.norm_feed = norm(width)
        self.feed = FeedForward(width, inner, activation=activation, gated=gated, bias=bias)

    def forward(self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm_attention(x), mask=mask)
        if self.cross is not None and self.norm_cross is not None:
            x = x + self.cross(self.norm_cross(x), context)
        return x + self.feed(self.norm_feed(x))


class Positions(nn.Module):
    """Adds learned positions to (batch, length, width)."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(length, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[: x.shape[1]]


def relative_buckets(queries: int, keys: int, buckets: int, both_ways: bool, device: torch.device) -> Tensor:
    """T5's bucket of every distance between a query and a key: near ones alone, far ones on a log scale."""
    distance = torch.arange(keys, device=device)[None, :] - torch.arange(queries, device=device)[:, None]
    start = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        start = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    near = buckets // 2
    far = near + (torch.log(distance.float().clamp(min=1) / near) / math.log(128 / near) * (buckets - near)).long()
    return start + torch.where(distance < near, distance, far.clamp(max=buckets - 1))
