"""Forecasters of time series: PatchTST, N-BEATS, N-HiTS and Informer."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

PATCHES, BEATS, HITS, INFORMER = range(4)


def _patches(channels: int, length: int, horizon: int, width: int, depth: int, heads: int, patch: int) -> nn.Module:
    from torch import nn

    from forerun.networks.transformer_layers import Block, Positions

    count = (length - patch) // max(1, patch // 2) + 1

    class PatchTST(nn.Module):
        """A transformer on overlapping patches, every channel a series of its own."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(patch, width)
            self.positions = Positions(count, width)
            self.blocks = nn.ModuleList(Block(width, heads, 2 * width) for _ in range(depth))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(count * width, horizon)

        def forward(self, x: Tensor) -> Tensor:
            mean, spread = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-3
            series = ((x - mean) / spread).transpose(1, 2).flatten(0, 1)
            y = self.positions(self.embed(series.unfold(-1, patch, max(1, patch // 2))))
            for block in self.blocks:
                y = block(y)
            forecast = self.head(self.norm(y).flatten(1)).unflatten(0, (x.shape[0], channels))
            return forecast.transpose(1, 2) * spread + mean

    return PatchTST()


def _blocks(design: int, length: int, horizon: int, width: int, depth: int) -> nn.Module:
    from torch import nn

    class Stack(nn.Module):
        """Four layers, then the backcast (not used after the last block) and the forecast."""

        def __init__(self, pool: int, last: bool) -> None:
            super().__init__()
            self.pool = pool
            sizes = [math.ceil(length / pool), width, width, width, width]
            layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
            self.layers = nn.Sequential(*layers)
            self.past = None if last else nn.Linear(width, max(1, length // pool))
            self.future = nn.Linear(width, max(1, horizon // pool))

        def forward(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
            pooled = nn.functional.max_pool1d(x, self.pool, ceil_mode=True) if self.pool > 1 else x
            y = self.layers(pooled)
            past = None if self.past is None else self._stretched(self.past(y), length)
            return past, self._stretched(self.future(y), horizon)

        def _stretched(self, coarse: Tensor, size: int) -> Tensor:
            return nn.functional.interpolate(coarse, size=size, mode="linear") if self.pool > 1 else coarse

    class Forecaster(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            pools = [max(1, 8 // 2 ** (4 * i // depth)) if design == HITS else 1 for i in range(depth)]
            self.stacks = nn.ModuleList(Stack(pool, i == depth - 1) for i, pool in enumerate(pools))

        def forward(self, x: Tensor) -> Tensor:
            left = x.transpose(1, 2)
            past, total = self.stacks[0](left)
            for stack in self.stacks[1:]:
                left = left - past
                past, future = stack(left)
                total = total + future
            return total.transpose(1, 2)

    return Forecaster()


def _sparse_attention(width: int, heads: int) -> nn.Module:
    import torch
    from torch import nn

    from forerun.networks.transformer_layers import merge_heads, split_heads

    class SparseAttention(nn.Module):
        """ProbSparse attention: the queries with the sharpest scores attend, the others take the mean value."""

        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor:
            length = x.shape[1]
            q, k, v = (split_heads(t, heads) for t in self.qkv(x).chunk(3, dim=-1))
            top = min(length, 5 * math.ceil(math.log(length + 1)))
            sample = torch.randint(0, length, (top,), device=x.device)
            scores = q @ k.index_select(2, sample).transpose(-1, -2)
            sharpness = scores.amax(-1) - scores.mean(-1)
            rows = sharpness.topk(top, dim=-1)[1].unsqueeze(-1).expand(-1, -1, -1, q.shape[-1])
            attended = nn.functional.scaled_dot_product_attention(q.gather(2, rows), k, v)
            mean = v.mean(2, keepdim=True).expand_as(v)
            return self.out(merge_heads(mean.scatter(2, rows, attended.to(v.dtype))))

    return SparseAttention()


def _informer(channels: int, length: int, horizon: int, width: int, depth: int, heads: int) -> nn.Module:
    import torch
    from torch import nn

    from forerun.networks.transformer_layers import Block, FeedForward, Positions

    class Layer(nn.Module):
        """Sparse attention, feed-forward, and a convolution and pooling that halve the length."""

        def __init__(self, halve: bool) -> None:
            super().__init__()
            self.attention, self.feed = _sparse_attention(width, heads), FeedForward(width, 4 * width)
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.distil = nn.Sequential(
                nn.Conv1d(width, width, 3, padding=1, padding_mode="circular"),
                nn.BatchNorm1d(width), nn.ELU(), nn.MaxPool1d(3, stride=2, padding=1),
            ) if halve else None  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            x = self.norms[0](x + self.attention(x))
            x = self.norms[1](x + self.feed(x))
            return x if self.distil is None else self.distil(x.transpose(1, 2)).transpose(1, 2)

    class Informer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Conv1d(channels, width, 3, padding=1, padding_mode="circular")
            self.positions = Positions(length, width)
            self.encoder = nn.ModuleList(Layer(i < depth - 1) for i in range(depth))
            self.start = nn.Parameter(torch.randn(horizon, width) * 0.02)
            self.decoder = Block(width, heads, 4 * width, causal=True, cross=True)
            self.head = nn.Linear(width, channels)

        def forward(self, x: Tensor) -> Tensor:
            y = self.positions(self.embed(x.transpose(1, 2)).transpose(1, 2))
            for layer in self.encoder:
                y = layer(y)
            start = self.start.expand(x.shape[0], -1, -1).to(y.dtype)
            return self.head(self.decoder(start, y))

    return Informer()


def build(
    design: int, channels: int, length: int, horizon: int, width: int, depth: int, heads: int, patch: int
) -> nn.Module:
    """The network; it takes the past (batch, length, channels) and returns the next `horizon` steps."""
    if design == PATCHES:
        return _patches(channels, length, horizon, width, depth, heads, patch)
    if design == INFORMER:
        return _informer(channels, length, horizon, width, depth, heads)
    return _blocks(design, length, horizon, width, depth)


def problem(settings: Settings) -> str | None:
    if settings["width"] % settings["heads"]:
        return "width must be a multiple of heads"
    return "patch must not be longer than length" if settings["patch"] > settings["length"] else None


FAMILY = Family(
    prefix="time_series",
    kind="time-series forecaster",
    settings={
        "design": Setting(0, 0, 3),  # 0 PatchTST, 1 N-BEATS, 2 N-HiTS, 3 Informer
        "channels": Setting(7, 1, 4096),
        "length": Setting(336, 4, 16384),
        "horizon": Setting(96, 1, 8192),
        "width": Setting(128, 4, 8192),
        "depth": Setting(3, 1, 64),
        "heads": Setting(8, 1, 64),
        "patch": Setting(16, 2, 1024),  # of PatchTST
    },
    build=build,
    inputs=lambda settings: {"": Input((settings["length"], settings["channels"]))},
    always_named=("design", "width", "depth"),
    problem=problem,
)
