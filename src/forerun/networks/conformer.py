"""Conformer encoders for speech recognition: attention and depthwise convolutions between two half feed-forwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

MELS = 80


def _relative_attention(width: int, heads: int) -> nn.Module:
    import torch
    from torch import nn

    from forerun.networks.transformer_layers import merge_heads, split_heads

    class RelativeAttention(nn.Module):
        """Attention with Transformer-XL's relative positions, its scores computed step by step."""

        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.position = nn.Linear(width, width, bias=False)
            self.out = nn.Linear(width, width)
            self.content_bias = nn.Parameter(torch.zeros(heads, 1, width // heads))
            self.position_bias = nn.Parameter(torch.zeros(heads, 1, width // heads))

        def forward(self, x: Tensor, positions: Tensor) -> Tensor:
            q, k, v = (split_heads(t, heads) for t in self.qkv(x).chunk(3, dim=-1))
            p = split_heads(self.position(positions.to(x.dtype)), heads)
            content = (q + self.content_bias) @ k.transpose(-1, -2)
            scores = content + self._shift((q + self.position_bias) @ p.transpose(-1, -2))
            weights = torch.softmax(scores * (width // heads) ** -0.5, dim=-1)
            return self.out(merge_heads(weights.to(v.dtype) @ v))

        def _shift(self, scores: Tensor) -> Tensor:
            """(…, length, 2 length - 1) by distance as (…, length, length) by key."""
            length = scores.shape[-2]
            padded = nn.functional.pad(scores, (1, 0))
            shifted = padded.reshape(*scores.shape[:2], 2 * length, length)[:, :, 1:]
            return shifted.reshape(scores.shape)[..., :length]

    return RelativeAttention()


def _convolution(width: int, kernel: int) -> nn.Module:
    from torch import nn

    class Convolution(nn.Module):
        """Pointwise with a gated linear unit, depthwise, batch norm, Swish, pointwise."""

        def __init__(self) -> None:
            super().__init__()
            self.into = nn.Conv1d(width, 2 * width, 1)
            self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
            self.norm = nn.BatchNorm1d(width)
            self.out = nn.Conv1d(width, width, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = nn.functional.glu(self.into(x.transpose(1, 2)), dim=1)
            return self.out(nn.functional.silu(self.norm(self.depthwise(y)))).transpose(1, 2)

    return Convolution()


def _block(width: int, heads: int, kernel: int, relative: int) -> nn.Module:
    from torch import nn

    from forerun.networks.transformer_layers import Attention, FeedForward

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
            self.first = FeedForward(width, 4 * width, activation="silu")
            self.attention = _relative_attention(width, heads) if relative else Attention(width, heads)
            self.convolution = _convolution(width, kernel)
            self.second = FeedForward(width, 4 * width, activation="silu")

        def forward(self, x: Tensor, positions: Tensor) -> Tensor:
            x = x + 0.5 * self.first(self.norms[0](x))
            normed = self.norms[1](x)
            x = x + (self.attention(normed, positions) if relative else self.attention(normed))
            x = x + self.convolution(self.norms[2](x))
            return self.norms[4](x + 0.5 * self.second(self.norms[3](x)))

    return Block()


def build(width: int, depth: int, heads: int, kernel: int, frames: int, vocab: int, relative: int) -> nn.Module:
    """The network; it takes mel features (batch, frames, 80) and returns token logits for a quarter of the frames."""
    import torch
    from torch import nn

    class Conformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.subsample = nn.Sequential(
                nn.Conv2d(1, width, 3, stride=2), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU()
            )
            self.project = nn.Linear(width * (((MELS - 1) // 2 - 1) // 2), width)
            self.blocks = nn.ModuleList(_block(width, heads, kernel, relative) for _ in range(depth))
            self.head = nn.Linear(width, vocab)

        def forward(self, x: Tensor) -> Tensor:
            x = self.subsample(x.unsqueeze(1))
            x = self.project(x.transpose(1, 2).flatten(2))
            positions = self._positions(x.shape[1], x.device)
            for block in self.blocks:
                x = block(x, positions)
            return self.head(x)

        def _positions(self, length: int, device: Any) -> Tensor:
            """Sinusoids of every distance between two frames."""
            distance = torch.arange(length - 1, -length, -1, device=device, dtype=torch.float32)
            rates = torch.exp(torch.arange(0, width, 2, device=device, dtype=torch.float32) * (-9.21 / width))
            angles = distance[:, None] * rates
            return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[None]

    return Conformer()


def inputs(settings: Settings) -> dict[str, Input]:
    return {"": Input((settings["frames"], MELS))}


def problem(settings: Settings) -> str | None:
    if settings["width"] % settings["heads"] or settings["width"] % 2:
        return "width must be even and a multiple of heads"
    return None if settings["kernel"] % 2 else "kernel must be odd"


FAMILY = Family(
    prefix="conformer",
    kind="speech conformer",
    settings={
        "width": Setting(144, 8, 4096),
        "depth": Setting(4, 1, 100),
        "heads": Setting(4, 1, 64),
        "kernel": Setting(31, 1, 129),  # of the depthwise convolutions
        "frames": Setting(400, 16, 20000),
        "vocab": Setting(128, 2, 100000),
        "relative": Setting(1, 0, 1),  # relative positions, else scaled_dot_product_attention
    },
    build=build,
    inputs=inputs,
    always_named=("width", "depth"),
    problem=problem,
)
