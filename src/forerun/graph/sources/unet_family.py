"""The U-Net family for image-to-image regression, named by a string such as `unet:base=44,levels=3,outputs=2`.

The stock member takes 96x128x3 and gives two 96x128x1 maps (temperature downscaling) with about 3.6 M parameters. Each
level is two 3x3 convolutions with batch norm and ReLU; the filters double at every level; the way up is a 2x2
transposed convolution, the skip concatenated, and again two convolutions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.errors import ForerunError
from forerun.graph.sources.settings import read_settings

if TYPE_CHECKING:
    from torch import nn

PREFIX = "unet:"
_DEFAULTS = {"base": 44, "levels": 3, "outputs": 2, "channels": 3, "height": 96, "width": 128}
_LIMITS = {
    "base": (1, 1024),
    "levels": (1, 7),
    "outputs": (1, 16),
    "channels": (1, 64),
    "height": (2, 4096),
    "width": (2, 4096),
}


def parse(name: str) -> dict[str, int]:
    """The settings in `unet:[base=44][,levels=3][,outputs=2][,channels=3][,height=96][,width=128]`; all filled in."""
    if not name.startswith(PREFIX):
        raise ForerunError(f"'{name}' does not name a U-Net of the family: it must begin with '{PREFIX}'.")
    said = read_settings(name, filter(None, name[len(PREFIX) :].split(",")), _LIMITS)
    settings = {**_DEFAULTS, **said}
    step = 2 ** settings["levels"]
    if settings["height"] % step or settings["width"] % step:
        raise ForerunError(f"height and width in '{name}' must be multiples of {step} for {settings['levels']} levels.")
    return settings


def name(**settings: int) -> str:
    """The name that `parse` reads back to the same settings; defaults are left out, but for base and levels."""
    said = {**_DEFAULTS, **settings}
    kept = {k: v for k, v in said.items() if k in ("base", "levels") or v != _DEFAULTS[k]}
    return PREFIX + ",".join(f"{k}={v}" for k, v in kept.items())


def input_shape(settings: dict[str, int]) -> tuple[int, ...]:
    return (settings["channels"], settings["height"], settings["width"])


def build(
    base: int = 44, levels: int = 3, outputs: int = 2, channels: int = 3, height: int = 96, width: int = 128
) -> nn.Module:
    """The network; it takes (batch, channels, height, width) and gives a tuple of `outputs` one-channel maps."""
    import torch
    from torch import nn

    def double(into: int, out: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(into, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [base * 2**i for i in range(levels + 1)]
            self.down = nn.ModuleList(
                double(into, out) for into, out in zip([channels, *widths[:-2]], widths[:-1], strict=True)
            )
            self.bottom = double(widths[-2], widths[-1])
            self.rise = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
            self.up = nn.ModuleList(double(2 * w, w) for w in reversed(widths[:-1]))
            self.heads = nn.ModuleList(nn.Conv2d(base, 1, 1) for _ in range(outputs))
            self.pool = nn.MaxPool2d(2)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            skips = []
            for level in self.down:
                x = level(x)
                skips.append(x)
                x = self.pool(x)
            x = self.bottom(x)
            for rise, up in zip(self.rise, self.up, strict=True):
                x = up(torch.cat([rise(x), skips.pop()], dim=1))
            return tuple(head(x) for head in self.heads)

    return UNet()
