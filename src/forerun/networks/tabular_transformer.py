"""Deep networks on table rows: FT-Transformer with a token for each column, and a residual MLP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

VALUES = 100  # values of a categorical column
CLASSES = 10


def _residual(width: int, inner: int) -> nn.Module:
    from torch import nn

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.BatchNorm1d(width), nn.Linear(width, inner), nn.ReLU(), nn.Dropout(0.2), nn.Linear(inner, width)
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self.layers(x)

    return Residual()


def build(transformer: int, numbers: int, categories: int, width: int, depth: int, heads: int, inner: int) -> nn.Module:
    """The network; it takes (batch, numbers) real columns and (batch, categories) categorical ones."""
    import torch
    from torch import nn

    from forerun.networks.transformer_layers import Block

    class Tabular(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(categories * VALUES, width)
            self.register_buffer("offsets", torch.arange(categories) * VALUES, persistent=False)
            self.offsets: Tensor
            if transformer:
                self.scale = nn.Parameter(torch.randn(numbers, width) * 0.1)
                self.shift = nn.Parameter(torch.randn(numbers, width) * 0.1)
                self.summary = nn.Parameter(torch.randn(1, 1, width) * 0.1)
                self.layers = nn.ModuleList(Block(width, heads, inner, activation="relu") for _ in range(depth))
            else:
                self.stem = nn.Linear(numbers + categories * width, width)
                self.layers = nn.ModuleList(_residual(width, inner) for _ in range(depth))
            self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, CLASSES))

        def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
            embedded = self.embedding(categories + self.offsets)
            if transformer:
                columns = numbers.unsqueeze(-1) * self.scale + self.shift
                x = torch.cat([self.summary.expand(numbers.shape[0], -1, -1), columns, embedded], dim=1)
            else:
                x = self.stem(torch.cat([numbers, embedded.flatten(1)], dim=1))
            for layer in self.layers:
                x = layer(x)
            return self.head(x[:, 0] if transformer else x)

    return Tabular()


def inputs(settings: Settings) -> dict[str, Input]:
    return {"numbers": Input((settings["numbers"],)), "categories": Input((settings["categories"],), below=VALUES)}


def problem(settings: Settings) -> str | None:
    return "width must be a multiple of heads" if settings["width"] % settings["heads"] else None


FAMILY = Family(
    prefix="tabular_transformer",
    kind="tabular network",
    settings={
        "transformer": Setting(1, 0, 1),  # FT-Transformer, else a residual MLP
        "numbers": Setting(16, 1, 4096),
        "categories": Setting(8, 1, 1024),
        "width": Setting(192, 1, 8192),
        "depth": Setting(3, 1, 64),
        "heads": Setting(8, 1, 64),
        "inner": Setting(256, 1, 32768),
    },
    build=build,
    inputs=inputs,
    always_named=("transformer", "width", "depth"),
    problem=problem,
)
