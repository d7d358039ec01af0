"""3-D U-Nets for medical volumes, as nnU-Net sets them up: `volume:size=96,width=32,levels=4`.

Two 3x3x3 convolutions per level with instance norm and leaky ReLU (with a skip by `residual`), strided convolutions
down, transposed ones up; with `supervised` every level of the way up gives its own labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings

_WIDEST = 320


class _Double(nn.Module):
    def __init__(self, into: int, out: int, stride: int, residual: bool) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv3d(into, out, 3, stride, 1), nn.InstanceNorm3d(out, affine=True)
        self.conv2, self.norm2 = nn.Conv3d(out, out, 3, 1, 1), nn.InstanceNorm3d(out, affine=True)
        self.skip = nn.Conv3d(into, out, 1, stride, bias=False) if residual else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.leaky_relu(self.norm1(self.conv1(x)), 0.01)
        h = self.norm2(self.conv2(h))
        return F.leaky_relu(h if self.skip is None else h + self.skip(x), 0.01)


class VolumeUNet(nn.Module):
    """Takes a volume and gives the scores of every class at every voxel, from fine to coarse where supervised."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        residual, levels = bool(s["residual"]), s["levels"]
        widths = [min(s["width"] * 2**i, max(_WIDEST, s["width"])) for i in range(levels)]
        into = [s["channels"], *widths[:-1]]
        self.down = nn.ModuleList(
            _Double(a, b, 2 if i else 1, residual) for i, (a, b) in enumerate(zip(into, widths, strict=True))
        )
        ups = list(zip(reversed(widths[1:]), reversed(widths[:-1]), strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, stride=2) for a, b in ups)
        self.up = nn.ModuleList(_Double(2 * b, b, 1, residual) for _, b in ups)
        labelled = ups if s["supervised"] else ups[-1:]
        self.label = nn.ModuleList(nn.Conv3d(b, s["classes"], 1) for _, b in labelled)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
        skips.pop()
        maps = []
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat([grow(x), skips.pop()], dim=1))
            maps.append(x)
        labelled = maps[-len(self.label) :]
        return tuple(label(features) for label, features in zip(reversed(self.label), reversed(labelled), strict=True))


def _build(**settings: int) -> nn.Module:
    return VolumeUNet(settings)


def _problem(s: Settings) -> str | None:
    step = 2 ** (s["levels"] - 1)
    # The coarsest volume holds more than one voxel: instance norm takes no fewer in training.
    if s["size"] % step or s["size"] == step:
        return f"size must be a multiple of {step} for {s['levels']} levels, and larger"
    return None


FAMILY = Family(
    prefix="volume",
    kind="3-D U-Net",
    settings={
        "size": Setting(96, 4, 512),
        "channels": Setting(1, 1, 16),
        "width": Setting(32, 1, 512),
        "levels": Setting(4, 2, 7),
        "classes": Setting(3, 1, 200),
        "residual": Setting(0, 0, 1),
        "supervised": Setting(0, 0, 1),
    },
    build=_build,
    inputs=lambda s: {"": Input((s["channels"], s["size"], s["size"], s["size"]))},
    always_named=("size", "width"),
    problem=_problem,
)
