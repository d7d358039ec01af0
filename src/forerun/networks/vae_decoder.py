"""Decoders of KL autoencoders, which turn the latents of diffusion into images: `vae_decoder:latent=64,width=128`.

Residual blocks with group norm and SiLU, nearest upsampling with a 3x3 convolution, one attention in the middle.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting
from forerun.networks.vision_layers import Attention, group_norm

_GROWTH = (1, 2, 4, 4, 8, 8)


class _Block(nn.Module):
    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = group_norm(into), nn.Conv2d(into, out, 3, padding=1)
        self.norm2, self.conv2 = group_norm(out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Identity() if into == out else nn.Conv2d(into, out, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class _MapAttention(nn.Module):
    """Attention with one head over all positions of a feature map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention = group_norm(width), Attention(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.attention(self.norm(x).flatten(2).transpose(1, 2))
        return x + h.transpose(1, 2).unflatten(2, x.shape[2:])


def build(latent: int, channels: int, width: int, levels: int, blocks: int, attention: int) -> nn.Module:
    """Takes (batch, channels, latent, latent); every level but one doubles the size."""
    widths = [width * _GROWTH[i] for i in reversed(range(levels))]
    into = widths[0]
    layers: list[nn.Module] = [nn.Conv2d(channels, into, 3, padding=1), _Block(into, into)]
    if attention:
        layers.append(_MapAttention(into))
    layers.append(_Block(into, into))
    for i, out in enumerate(widths):
        for _ in range(blocks + 1):
            layers.append(_Block(into, out))
            into = out
        if i < levels - 1:
            layers += [nn.Upsample(scale_factor=2.0, mode="nearest"), nn.Conv2d(out, out, 3, padding=1)]
    return nn.Sequential(*layers, group_norm(into), nn.SiLU(), nn.Conv2d(into, 3, 3, padding=1))


FAMILY = Family(
    prefix="vae_decoder",
    kind="VAE decoder",
    settings={
        "latent": Setting(32, 4, 256),
        "channels": Setting(4, 1, 64),
        "width": Setting(128, 4, 512),
        "levels": Setting(4, 1, 6),
        "blocks": Setting(2, 1, 8),
        "attention": Setting(1, 0, 1),
    },
    build=build,
    inputs=lambda s: {"": Input((s["channels"], s["latent"], s["latent"]))},
    always_named=("width",),
)
