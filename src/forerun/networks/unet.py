"""U-Nets for image-to-image regression, named by a string such as `unet:base=44,levels=3,outputs=2`.

The stock member takes 96x128x3 and gives two 96x128x1 maps (temperature downscaling) with about 3.6 M parameters. Each
level is two 3x3 convolutions with batch norm and ReLU; the filters double at every level; the way up is a 2x2
transposed convolution, the skip concatenated, and again two convolutions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import nn


def build(base: int, levels: int, outputs: int, channels: int, height: int, width: int) -> nn.Module:
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


def _problem(settings: Settings) -> str | None:
    step = 2 ** settings["levels"]
    if settings["height"] % step or settings["width"] % step:
        return f"height and width must be multiples of {step} for {settings['levels']} levels"
    return None


FAMILY = Family(
    prefix="unet",
    kind="U-Net",
    settings={
        "base": Setting(44, 1, 1024),
        "levels": Setting(3, 1, 7),
        "outputs": Setting(2, 1, 16),
        "channels": Setting(3, 1, 64),
        "height": Setting(96, 2, 4096),
        "width": Setting(128, 2, 4096),
    },
    build=build,
    inputs=lambda s: {"": Input((s["channels"], s["height"], s["width"]))},
    always_named=("base", "levels"),
    problem=_problem,
)
