"""Generators and discriminators of GANs: `gan:image=64,width=64` (DCGAN), with `style=1` as StyleGAN modulates them.

The generator grows 4x4 maps to the image by transposed convolutions with batch norm and ReLU. With `style` a mapping
network of linear layers scales the channels before each convolution, demodulates them after it and adds noise. The
discriminator is strided convolutions with leaky ReLU.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings


class _Styled(nn.Module):
    """A 3x3 convolution whose input channels a style scales; demodulated, with noise."""

    def __init__(self, into: int, out: int, latent: int, grow: bool) -> None:
        super().__init__()
        self.grow = grow
        self.style = nn.Linear(latent, into)
        self.weight = nn.Parameter(torch.randn(out, into, 3, 3) / (3 * into**0.5))
        self.strength = nn.Parameter(torch.zeros(1))
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        style = 1 + self.style(w)
        demodulate = torch.rsqrt(style.square() @ self.weight.square().sum(dim=(2, 3)).t() + 1e-6)
        if self.grow:
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = F.conv2d(x * style[:, :, None, None], self.weight, padding=1) * demodulate[:, :, None, None]
        noise = torch.randn_like(x[:, :1])
        return F.leaky_relu(x + self.strength * noise + self.bias[:, None, None], 0.2)


class StyleGenerator(nn.Module):
    """Mapping network and styled convolutions, two per size, each size adding to the image."""

    def __init__(self, widths: list[int], latent: int, mapping: int) -> None:
        super().__init__()
        linear = (m for _ in range(mapping) for m in (nn.Linear(latent, latent), nn.LeakyReLU(0.2)))
        self.mapping = nn.Sequential(*linear)
        self.start = nn.Parameter(torch.randn(1, widths[0], 4, 4))
        into = [widths[0], *widths[:-1]]
        self.first = nn.ModuleList(
            _Styled(a, b, latent, grow=i > 0) for i, (a, b) in enumerate(zip(into, widths, strict=True))
        )
        self.second = nn.ModuleList(_Styled(b, b, latent, grow=False) for b in widths)
        self.images = nn.ModuleList(nn.Conv2d(b, 3, 1) for b in widths)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        w = self.mapping(F.normalize(z, dim=1))
        x = self.start.expand(z.shape[0], -1, -1, -1)
        image: torch.Tensor | None = None
        for first, second, to_image in zip(self.first, self.second, self.images, strict=True):
            x = second(first(x, w), w)
            new = to_image(x)
            if image is not None:
                new = new + F.interpolate(image, scale_factor=2.0, mode="bilinear", align_corners=False)
            image = new
        assert image is not None
        return image


def build(image: int, latent: int, width: int, style: int, mapping: int, discriminator: int, norm: int) -> nn.Module:
    """`width` filters next to the image, doubled at each step away from it, 512 or `width` at most."""
    steps = (image // 4).bit_length() - 1
    widths = [min(width * 2**i, max(width, 512)) for i in reversed(range(steps + 1))]
    if discriminator:
        return _discriminator(list(reversed(widths)), bool(norm))
    if style:
        return StyleGenerator(widths, latent, mapping)
    layers: list[nn.Module] = [
        nn.Unflatten(1, (latent, 1, 1)),
        *_with_norm(nn.ConvTranspose2d(latent, widths[0], 4, bias=not norm), bool(norm)),
    ]
    for into, out in pairwise(widths):
        layers += _with_norm(nn.ConvTranspose2d(into, out, 4, stride=2, padding=1, bias=not norm), bool(norm))
    return nn.Sequential(*layers, nn.Conv2d(widths[-1], 3, 3, padding=1), nn.Tanh())


def _with_norm(conv: nn.ConvTranspose2d, norm: bool) -> list[nn.Module]:
    return [conv, *([nn.BatchNorm2d(conv.out_channels)] if norm else []), nn.ReLU(inplace=True)]


def _discriminator(widths: list[int], norm: bool) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, padding=1), nn.LeakyReLU(0.2, inplace=True)]
    for into, out in pairwise(widths):
        layers.append(nn.Conv2d(into, out, 4, stride=2, padding=1, bias=not norm))
        layers += [*([nn.BatchNorm2d(out)] if norm else []), nn.LeakyReLU(0.2, inplace=True)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(widths[-1] * 16, 1))


def _problem(s: Settings) -> str | None:
    return "image must be a power of two" if s["image"] & (s["image"] - 1) else None


FAMILY = Family(
    prefix="gan",
    kind="GAN",
    settings={
        "image": Setting(64, 8, 1024),
        "latent": Setting(128, 8, 2048),
        "width": Setting(64, 4, 1024),
        "style": Setting(0, 0, 1),
        "mapping": Setting(8, 1, 16),  # layers of the mapping network of a style generator
        "discriminator": Setting(0, 0, 1),
        "norm": Setting(1, 0, 1),
    },
    build=build,
    inputs=lambda s: {"": Input((3, s["image"], s["image"]) if s["discriminator"] else (s["latent"],))},
    always_named=("image", "width"),
    problem=_problem,
)
