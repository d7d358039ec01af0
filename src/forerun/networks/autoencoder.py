"""Autoencoders of images with a linear bottleneck: `autoencoder:image=64,width=32,latent=128`.

Strided convolutions down, a linear layer to the latent vector (a mean and a variance to draw from with `variational`),
a linear layer back, and transposed convolutions up.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings


class Autoencoder(nn.Module):
    """Takes an image and returns its reconstruction; a variational one returns mean and log variance too."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        norm, self.variational = bool(s["norm"]), bool(s["variational"])
        widths = [s["channels"], *(min(s["width"] * 2**i, max(s["width"], 512)) for i in range(s["levels"]))]
        size = s["image"] // 2 ** s["levels"]
        flat = widths[-1] * size * size

        def normed(conv: nn.Module, out: int) -> list[nn.Module]:
            return [conv, *([nn.BatchNorm2d(out)] if norm else []), nn.LeakyReLU(0.2, inplace=True)]

        down: list[nn.Module] = []
        for into, out in pairwise(widths):
            down += normed(nn.Conv2d(into, out, 4, stride=2, padding=1, bias=not norm), out)
        self.encode = nn.Sequential(*down, nn.Flatten(), nn.Linear(flat, s["latent"] * (2 if self.variational else 1)))
        up: list[nn.Module] = [nn.Linear(s["latent"], flat), nn.Unflatten(1, (widths[-1], size, size))]
        for into, out in zip(reversed(widths[2:]), reversed(widths[1:-1]), strict=True):
            up += normed(nn.ConvTranspose2d(into, out, 4, stride=2, padding=1, bias=not norm), out)
        last = nn.ConvTranspose2d(widths[1], widths[0], 4, stride=2, padding=1)
        self.decode = nn.Sequential(*up, last, nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        code = self.encode(x)
        if not self.variational:
            return (self.decode(code),)
        mean, log_variance = code.chunk(2, dim=1)
        drawn = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decode(drawn), mean, log_variance


def _build(**settings: int) -> nn.Module:
    return Autoencoder(settings)


def _problem(s: Settings) -> str | None:
    step = 2 ** s["levels"]
    return f"image must be a multiple of {step} for {s['levels']} levels" if s["image"] % step else None


FAMILY = Family(
    prefix="autoencoder",
    kind="autoencoder",
    settings={
        "image": Setting(64, 4, 1024),
        "channels": Setting(3, 1, 16),
        "width": Setting(32, 1, 512),
        "levels": Setting(4, 1, 8),
        "latent": Setting(128, 1, 8192),
        "variational": Setting(0, 0, 1),
        "norm": Setting(1, 0, 1),
    },
    build=_build,
    inputs=lambda s: {"": Input((s["channels"], s["image"], s["image"]))},
    always_named=("image", "width"),
    problem=_problem,
)
