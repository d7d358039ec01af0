"""Image-to-image generators of style transfer, as CycleGAN has them: `style_transfer:image=256,width=64,blocks=9`.

Reflection padding, instance norm, strided convolutions down, residual blocks, and transposed convolutions up (with
`resize=1`: nearest upsampling and a convolution).
"""

from __future__ import annotations

import torch
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings


def _layer(into: int, out: int, kernel: int, stride: int = 1, affine: bool = False) -> list[nn.Module]:
    return [
        nn.ReflectionPad2d(kernel // 2),
        nn.Conv2d(into, out, kernel, stride),
        nn.InstanceNorm2d(out, affine=affine),
    ]


class _Block(nn.Module):
    def __init__(self, width: int, affine: bool) -> None:
        super().__init__()
        first, second = _layer(width, width, 3, affine=affine), _layer(width, width, 3, affine=affine)
        self.body = nn.Sequential(*first, nn.ReLU(inplace=True), *second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


def build(image: int, width: int, blocks: int, steps: int, resize: int, affine: int) -> nn.Module:
    """Takes and returns (batch, 3, image, image)."""
    scaled = bool(affine)
    layers = [*_layer(3, width, 7, affine=scaled), nn.ReLU(inplace=True)]
    for i in range(steps):
        layers += [*_layer(width * 2**i, width * 2 ** (i + 1), 3, 2, scaled), nn.ReLU(inplace=True)]
    layers += [_Block(width * 2**steps, scaled) for _ in range(blocks)]
    for i in reversed(range(steps)):
        into, out = width * 2 ** (i + 1), width * 2**i
        if resize:
            layers += [nn.Upsample(scale_factor=2.0, mode="nearest"), *_layer(into, out, 3, affine=scaled)]
        else:
            grow = nn.ConvTranspose2d(into, out, 3, stride=2, padding=1, output_padding=1)
            layers += [grow, nn.InstanceNorm2d(out, affine=scaled)]
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())


def _problem(s: Settings) -> str | None:
    step = 2 ** s["steps"]
    if s["image"] % step or s["image"] // step < 2:
        return f"image must be a multiple of {step} for {s['steps']} steps, and at least {2 * step}"
    return None


FAMILY = Family(
    prefix="style_transfer",
    kind="image-to-image GAN",
    settings={
        "image": Setting(256, 8, 2048),
        "width": Setting(64, 1, 512),
        "blocks": Setting(9, 1, 64),
        "steps": Setting(2, 0, 5),
        "resize": Setting(0, 0, 1),
        "affine": Setting(0, 0, 1),
    },
    build=build,
    inputs=lambda s: {"": Input((3, s["image"], s["image"]))},
    always_named=("image", "width"),
    problem=_problem,
)
