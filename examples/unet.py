"""A U-Net for maps of 96 x 128 points and 3 channels, about 3.6 M parameters.

forerun report examples/unet.py:UNet --input-shape 3,96,128 --device v100-16gb,a100-sxm4-40gb,h200 -o report.html
"""

import torch
from torch import nn


def two_convolutions(into: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(into, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    """Three levels down, three up, and two maps of one channel each."""

    def __init__(self, channels: int = 3, base: int = 44, levels: int = 3, outputs: int = 2) -> None:
        super().__init__()
        widths = [base * 2**level for level in range(levels + 1)]
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(
            two_convolutions(a, b) for a, b in zip([channels, *widths], widths[:-1], strict=False)
        )
        self.bottom = two_convolutions(widths[-2], widths[-1])
        self.rise = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(two_convolutions(2 * w, w) for w in reversed(widths[:-1]))
        self.heads = nn.ModuleList(nn.Conv2d(base, 1, 1) for _ in range(outputs))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        skips = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for rise, level in zip(self.rise, self.up, strict=True):
            x = level(torch.cat([rise(x), skips.pop()], dim=1))
        return tuple(head(x) for head in self.heads)
