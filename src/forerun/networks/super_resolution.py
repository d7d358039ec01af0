"""Networks that enlarge images (EDSR; RCAN with `attention=1`): `super_resolution:width=64,blocks=16,scale=2`.

Residual blocks without norm at the size of the input, in groups with a skip each, then pixel shuffles to the output.
"""

from __future__ import annotations

import torch
from torch import nn

from forerun.networks.base import Family, Input, Setting


class _ChannelAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        small = max(1, width // 16)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, small, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(small, width, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


class _Skip(nn.Module):
    """A body, scaled, and its input added."""

    def __init__(self, scale: float, *body: nn.Module) -> None:
        super().__init__()
        self.body, self.scale = nn.Sequential(*body), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        return x + (h if self.scale == 1 else h * self.scale)


def build(image: int, width: int, blocks: int, groups: int, scale: int, attention: int, channels: int) -> nn.Module:
    """Takes (batch, channels, image, image) and returns (batch, channels, scale*image, scale*image)."""

    def conv(into: int, out: int) -> nn.Module:
        return nn.Conv2d(into, out, 3, padding=1)

    def block() -> nn.Module:
        body = [conv(width, width), nn.ReLU(inplace=True), conv(width, width)]
        return _Skip(1.0 if attention else 0.1, *body, *([_ChannelAttention(width)] if attention else []))

    inner = [_Skip(1.0, *(block() for _ in range(blocks)), conv(width, width)) for _ in range(groups)]
    body = inner if groups == 1 else [_Skip(1.0, *inner, conv(width, width))]
    grow: list[nn.Module] = []
    for step in (2, 2, 2) if scale == 8 else (2, 2) if scale == 4 else (scale,):
        grow += [conv(width, width * step * step), nn.PixelShuffle(step)]
    return nn.Sequential(conv(channels, width), *body, *grow, conv(width, channels))


FAMILY = Family(
    prefix="super_resolution",
    kind="super-resolution",
    settings={
        "image": Setting(48, 4, 2048),
        "width": Setting(64, 1, 1024),
        "blocks": Setting(16, 1, 128),
        "groups": Setting(1, 1, 32),
        "scale": Setting(2, 1, 8),
        "attention": Setting(0, 0, 1),
        "channels": Setting(3, 1, 16),
    },
    build=build,
    inputs=lambda s: {"": Input((s["channels"], s["image"], s["image"]))},
    always_named=("width", "blocks"),
)
