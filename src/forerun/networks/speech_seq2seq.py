"""Speech-to-text transformers of Whisper's design: a convolutional stem, an encoder, a decoder with cross-attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn


def build(
    width: int, heads: int, encoder: int, decoder: int, mels: int, frames: int, target: int, vocab: int
) -> nn.Module:
    """The network; it takes mel features (batch, mels, frames) and target tokens, and scores the next tokens."""
    from torch import nn

    from forerun.networks.transformer_layers import Block, Positions

    class SpeechToText(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv1d(mels, width, 3, padding=1)
            self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
            self.encoder_positions = Positions((frames + 1) // 2, width)
            self.encoder = nn.ModuleList(Block(width, heads, 4 * width) for _ in range(encoder))
            self.encoder_norm = nn.LayerNorm(width)
            self.embedding = nn.Embedding(vocab, width)
            self.decoder_positions = Positions(target, width)
            self.decoder = nn.ModuleList(
                Block(width, heads, 4 * width, causal=True, cross=True) for _ in range(decoder)
            )
            self.decoder_norm = nn.LayerNorm(width)

        def forward(self, features: Tensor, tokens: Tensor) -> Tensor:
            x = nn.functional.gelu(self.second(nn.functional.gelu(self.first(features))))
            x = self.encoder_positions(x.transpose(1, 2))
            for block in self.encoder:
                x = block(x)
            x = self.encoder_norm(x)
            y = self.decoder_positions(self.embedding(tokens))
            for block in self.decoder:
                y = block(y, x)
            return nn.functional.linear(self.decoder_norm(y), self.embedding.weight)

    return SpeechToText()


def inputs(settings: Settings) -> dict[str, Input]:
    return {
        "features": Input((settings["mels"], settings["frames"])),
        "tokens": Input((settings["target"],), below=settings["vocab"]),
    }


def problem(settings: Settings) -> str | None:
    return "width must be a multiple of heads" if settings["width"] % settings["heads"] else None


FAMILY = Family(
    prefix="speech_seq2seq",
    kind="speech encoder-decoder",
    settings={
        "width": Setting(384, 8, 4096),
        "heads": Setting(6, 1, 64),
        "encoder": Setting(4, 1, 64),
        "decoder": Setting(4, 1, 64),
        "mels": Setting(80, 1, 256),
        "frames": Setting(3000, 2, 20000),
        "target": Setting(64, 1, 4096),
        "vocab": Setting(51865, 2, 500000),
    },
    build=build,
    inputs=inputs,
    always_named=("width", "encoder", "decoder"),
    problem=problem,
)
