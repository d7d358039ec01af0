"""Recurrent networks: LSTM, GRU or plain, on tokens or on features, as language models or as classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

CLASSES = 10


def build(
    cell: int, hidden: int, layers: int, both_ways: int, length: int, features: int, vocab: int, each_step: int
) -> nn.Module:
    """The network; it takes tokens (batch, length), or real numbers (batch, length, features) where features > 0."""
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = None if features else nn.Embedding(vocab, hidden)
            layer = (nn.LSTM, nn.GRU, nn.RNN)[cell]
            self.layers = layer(features or hidden, hidden, layers, batch_first=True, bidirectional=bool(both_ways))
            self.head = nn.Linear(hidden * (1 + both_ways), vocab if each_step else CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            if self.embedding is not None:
                x = self.embedding(x)
            y, _ = self.layers(x)
            return self.head(y if each_step else y[:, -1])

    return Recurrent()


def inputs(settings: Settings) -> dict[str, Input]:
    length, features = settings["length"], settings["features"]
    return {"": Input((length, features)) if features else Input((length,), below=settings["vocab"])}


FAMILY = Family(
    prefix="recurrent",
    kind="recurrent",
    settings={
        "cell": Setting(0, 0, 2),  # 0 LSTM, 1 GRU, 2 plain
        "hidden": Setting(256, 1, 8192),
        "layers": Setting(2, 1, 16),
        "both_ways": Setting(0, 0, 1),
        "length": Setting(64, 1, 8192),
        "features": Setting(0, 0, 8192),  # 0: tokens
        "vocab": Setting(1000, 2, 500000),
        "each_step": Setting(0, 0, 1),  # scores over the vocabulary at each step, else 10 classes at the end
    },
    build=build,
    inputs=inputs,
    always_named=("cell", "hidden", "layers"),
)
