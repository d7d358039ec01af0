"""Layers that several families of vision networks share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


def group_norm(width: int) -> nn.GroupNorm:
    """Group norm with 32 groups, or with as many as the width allows."""
    return nn.GroupNorm(math.gcd(32, width), width)


def sinusoidal(steps: torch.Tensor, width: int, dtype: torch.dtype) -> torch.Tensor:
    """The embedding of diffusion steps: cosines and sines of growing wavelength, (batch, width)."""
    rates = torch.exp(-math.log(10_000) * torch.arange(width // 2, device=steps.device) / (width // 2))
    angles = steps[:, None].float() * rates[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1).to(dtype)


class Attention(nn.Module):
    """Multi-head attention over tokens, to themselves or to those of a context."""

    def __init__(self, width: int, heads: int, context: int | None = None, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=bias)
        self.kv = nn.Linear(context or width, 2 * width, bias=bias)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        q = self.q(x)
        k, v = self.kv(x if context is None else context).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Residual(nn.Module):
    """A residual block of a ResNet: two 3x3 convolutions, or a bottleneck of 1x1, 3x3 and 1x1."""

    def __init__(self, into: int, width: int, stride: int, bottleneck: bool, dilation: int = 1) -> None:
        super().__init__()
        out = width * 4 if bottleneck else width
        if bottleneck:
            self.body = nn.Sequential(
                *conv_norm(into, width, 1),
                nn.ReLU(inplace=True),
                *conv_norm(width, width, 3, stride, dilation),
                nn.ReLU(inplace=True),
                *conv_norm(width, out, 1),
            )
        else:
            self.body = nn.Sequential(
                *conv_norm(into, width, 3, stride, dilation),
                nn.ReLU(inplace=True),
                *conv_norm(width, out, 3, 1, dilation),
            )
        same = stride == 1 and into == out
        self.skip = nn.Identity() if same else nn.Sequential(*conv_norm(into, out, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.skip(x))


def conv_norm(into: int, out: int, kernel: int, stride: int = 1, dilation: int = 1) -> list[nn.Module]:
    """A convolution that keeps the size (but for its stride), and batch norm."""
    padding = dilation * (kernel // 2)
    conv = nn.Conv2d(into, out, kernel, stride, padding, dilation=dilation, bias=False)
    return [conv, nn.BatchNorm2d(out)]


class Backbone(nn.Module):
    """A ResNet without its head: the features of its four stages, at strides 4, 8, 16 and 32.

    With `dilated` the last two stages keep stride 8 and dilate their convolutions instead.
    """

    def __init__(self, width: int, blocks: int, bottleneck: bool, dilated: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *conv_norm(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)
        )
        self.widths = [width * 2**i * (4 if bottleneck else 1) for i in range(4)]
        self.stages = nn.ModuleList()
        into = width
        for i, out in enumerate(self.widths):
            spread = 2 ** max(0, i - 1) if dilated else 1
            stride = 1 if i == 0 or spread > 1 else 2
            inner = width * 2**i
            self.stages.append(
                nn.Sequential(
                    Residual(into, inner, stride, bottleneck, spread),
                    *(Residual(out, inner, 1, bottleneck, spread) for _ in range(blocks - 1)),
                )
            )
            into = out

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class TransformerBlock(nn.Module):
    """Layer norm, then a mixer of tokens (attention, or what `mixer` makes); layer norm, then an MLP."""

    def __init__(self, width: int, heads: int, ratio: int = 4, mixer: Callable[[], nn.Module] | None = None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix = mixer() if mixer else Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(self.norm1(x))
        return x + self.mlp(self.norm2(x))
