"""Decoder language models of Falcon's design: few key-value heads, attention beside the MLP, rotary positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn


def _attention(width: int, heads: int, groups: int, expand: int) -> nn.Module:
    from torch import nn
    from torch.nn import functional

    from forerun.networks.transformer_layers import merge_heads, rotate, split_heads

    head = width // heads

    class GroupedAttention(nn.Module):
        """Several query heads share one key-value head, repeated in memory or by enable_gqa."""

        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(width, (heads + 2 * groups) * head, bias=False)
            self.out = nn.Linear(width, width, bias=False)

        def forward(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
            q, k, v = split_heads(self.qkv(x), heads + 2 * groups).split([heads, groups, groups], dim=1)
            q, k = rotate(q, tables), rotate(k, tables)
            if expand:
                k, v = (t.repeat_interleave(heads // groups, dim=1) for t in (k, v))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=not expand)
            return self.out(merge_heads(y))

    return GroupedAttention()


def build(
    width: int, heads: int, groups: int, depth: int, length: int, vocab: int, expand: int, parallel: int
) -> nn.Module:
    """The network; it takes tokens (batch, length) and scores the next ones."""
    from torch import nn

    from forerun.networks.transformer_layers import FeedForward, rotary_tables

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.second_norm = None if parallel else nn.LayerNorm(width)
            self.attention = _attention(width, heads, groups, expand)
            self.feed = FeedForward(width, 4 * width, bias=False)

        def forward(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
            y = self.norm(x)
            if self.second_norm is None:
                return x + self.attention(y, tables) + self.feed(y)
            x = x + self.attention(y, tables)
            return x + self.feed(self.second_norm(x))

    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocab, width)
            self.blocks = nn.ModuleList(Block() for _ in range(depth))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocab, bias=False)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embedding(tokens)
            tables = rotary_tables(tokens.shape[1], width // heads, tokens.device)
            for block in self.blocks:
                x = block(x, tables)
            return self.head(self.norm(x))

    return LanguageModel()


def problem(settings: Settings) -> str | None:
    if settings["width"] % (2 * settings["heads"]):
        return "width must be a multiple of twice the heads"
    return "heads must be a multiple of groups" if settings["heads"] % settings["groups"] else None


FAMILY = Family(
    prefix="multi_query",
    kind="multi-query decoder",
    settings={
        "width": Setting(256, 2, 16384),
        "heads": Setting(4, 1, 128),
        "groups": Setting(1, 1, 128),  # key-value heads
        "depth": Setting(2, 1, 128),
        "length": Setting(128, 1, 16384),
        "vocab": Setting(8000, 2, 500000),
        "expand": Setting(0, 0, 1),  # key-value heads repeated in memory, else enable_gqa
        "parallel": Setting(1, 0, 1),  # attention beside the MLP, else before it
    },
    build=build,
    inputs=lambda settings: {"": Input((settings["length"],), below=settings["vocab"])},
    always_named=("width", "heads", "depth"),
    problem=problem,
)
