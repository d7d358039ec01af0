"""Decoder language models whose attention takes a mask: ALiBi biases, a sliding window, or padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

ALIBI, WINDOW, PADDING = range(3)


def build(
    design: int, width: int, heads: int, depth: int, inner: int, length: int, window: int, vocab: int
) -> nn.Module:
    """The network; it takes tokens (batch, length), zero for padding, and scores the next ones."""
    import torch
    from torch import nn

    from forerun.networks.transformer_layers import Block

    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocab, width)
            self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(depth))
            self.norm = nn.LayerNorm(width)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embedding(tokens)
            mask = self._mask(tokens, x)
            for block in self.blocks:
                x = block(x, mask=mask)
            return nn.functional.linear(self.norm(x), self.embedding.weight)

        def _mask(self, tokens: Tensor, x: Tensor) -> Tensor:
            """The mask of attention: biases of every head (ALiBi), or whether a query may attend to a key."""
            places = torch.arange(tokens.shape[1], device=tokens.device)
            distance = places[:, None] - places[None, :]
            seen = distance >= 0
            if design == ALIBI:
                slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1, device=tokens.device) / heads)
                bias = -slopes.view(1, heads, 1, 1) * distance.clamp(min=0)
                return bias.masked_fill(~seen, -torch.inf).to(x.dtype).expand(tokens.shape[0], -1, -1, -1)
            if design == WINDOW:
                return (seen & (distance < window))[None, None].expand(tokens.shape[0], heads, -1, -1)
            # Every query attends to the first key, so that no row is empty where a text starts with padding.
            filled = (tokens != 0)[:, None, None, :] | (places == 0)
            return seen[None, None] & filled

    return LanguageModel()


def problem(settings: Settings) -> str | None:
    return "width must be a multiple of heads" if settings["width"] % settings["heads"] else None


FAMILY = Family(
    prefix="biased_attention",
    kind="decoder with masked attention",
    settings={
        "design": Setting(0, 0, 2),  # 0 ALiBi, 1 sliding window, 2 padding mask
        "width": Setting(256, 1, 16384),
        "heads": Setting(4, 1, 128),
        "depth": Setting(2, 1, 128),
        "inner": Setting(1024, 1, 65536),
        "length": Setting(128, 1, 16384),
        "window": Setting(64, 1, 16384),
        "vocab": Setting(8000, 2, 500000),
    },
    build=build,
    inputs=lambda settings: {"": Input((settings["length"],), below=settings["vocab"])},
    always_named=("design", "width", "depth"),
    problem=problem,
)
