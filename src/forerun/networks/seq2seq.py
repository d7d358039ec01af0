"""Encoder-decoder transformers for text: T5 with relative position biases, BART with learned positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

BUCKETS = 32


def build(
    biased: int, width: int, heads: int, depth: int, inner: int, source: int, target: int, vocab: int
) -> nn.Module:
    """The network; it takes source and target tokens and scores the next target tokens."""
    import torch
    from torch import nn

    from forerun.networks.transformer_layers import Block, Positions, relative_buckets

    def blocks(cross: bool) -> nn.ModuleList:
        style: dict[str, Any] = {"rms": True, "bias": False, "gated": True} if biased else {}
        return nn.ModuleList(Block(width, heads, inner, causal=cross, cross=cross, **style) for _ in range(depth))

    norm = nn.RMSNorm if biased else nn.LayerNorm

    class RelativeBias(nn.Module):
        """The bias of every head by distance; shared by all layers, -inf after the query if causal."""

        def __init__(self, causal: bool) -> None:
            super().__init__()
            self.causal = causal
            self.weight = nn.Embedding(BUCKETS, heads)

        def forward(self, x: Tensor) -> Tensor:
            length = x.shape[1]
            index = relative_buckets(length, length, BUCKETS, not self.causal, x.device)
            bias = self.weight(index).permute(2, 0, 1).unsqueeze(0)
            if self.causal:
                after = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
                bias = bias.masked_fill(after, -torch.inf)
            return bias.expand(x.shape[0], -1, -1, -1)

    class EncoderDecoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocab, width)
            self.encoder, self.decoder = blocks(cross=False), blocks(cross=True)
            self.norms = nn.ModuleList([norm(width), norm(width)])
            self.positions = nn.ModuleList(
                [RelativeBias(False), RelativeBias(True)]
                if biased else [Positions(source, width), Positions(target, width)]
            )  # fmt: skip

        def forward(self, tokens: Tensor, decoder_tokens: Tensor) -> Tensor:
            x = self._run(self.encoder, 0, self.embedding(tokens), None)
            y = self._run(self.decoder, 1, self.embedding(decoder_tokens), x)
            return nn.functional.linear(y, self.embedding.weight)

        def _run(self, layers: nn.ModuleList, side: int, x: Tensor, context: Tensor | None) -> Tensor:
            mask = None
            if biased:
                mask = self.positions[side](x)
            else:
                x = self.positions[side](x)
            for layer in layers:
                x = layer(x, context, mask)
            return self.norms[side](x)

    return EncoderDecoder()


def inputs(settings: Settings) -> dict[str, Input]:
    return {
        "tokens": Input((settings["source"],), below=settings["vocab"]),
        "decoder_tokens": Input((settings["target"],), below=settings["vocab"]),
    }


def problem(settings: Settings) -> str | None:
    return "width must be a multiple of heads" if settings["width"] % settings["heads"] else None


FAMILY = Family(
    prefix="seq2seq",
    kind="text encoder-decoder",
    settings={
        "biased": Setting(1, 0, 1),  # T5's relative position biases, else BART's learned positions
        "width": Setting(256, 1, 8192),
        "heads": Setting(4, 1, 128),
        "depth": Setting(2, 1, 48),  # of the encoder and of the decoder
        "inner": Setting(1024, 1, 65536),
        "source": Setting(128, 1, 8192),
        "target": Setting(64, 1, 8192),
        "vocab": Setting(8000, 2, 500000),
    },
    build=build,
    inputs=inputs,
    always_named=("biased", "width", "depth"),
    problem=problem,
)
