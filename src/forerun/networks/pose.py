"""Pose estimators that keep several resolutions side by side, as HRNet does: `pose:width=32,branches=4,modules=3`.

A stem to a quarter of the size; then stages that each add a branch of half the resolution and twice the width. A module
is residual blocks on each branch, then an exchange: every branch gets the sum of all, by strided convolutions or by 1x1
convolutions and nearest upsampling. The finest branch gives one heat map per joint.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings
from forerun.networks.vision_layers import Residual, conv_norm


def _path(widths: list[int], source: int, target: int) -> nn.Module:
    """Maps one branch to the width and size of another."""
    if source == target:
        return nn.Identity()
    if source > target:
        up = nn.Upsample(scale_factor=float(2 ** (source - target)), mode="nearest")
        return nn.Sequential(*conv_norm(widths[source], widths[target], 1), up)
    layers: list[nn.Module] = []
    for i in range(source, target):
        out = widths[target] if i == target - 1 else widths[source]
        layers += [*conv_norm(widths[source], out, 3, 2), *([nn.ReLU(inplace=True)] if i < target - 1 else [])]
    return nn.Sequential(*layers)


class _Module(nn.Module):
    """Residual blocks on each branch, then the exchange between all of them; the last module returns the finest
    only."""

    def __init__(self, widths: list[int], blocks: int, last: bool) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(*(Residual(w, w, 1, bottleneck=False) for _ in range(blocks))) for w in widths
        )
        n, outputs = len(widths), 1 if last else len(widths)
        self.paths = nn.ModuleList(nn.ModuleList(_path(widths, i, j) for i in range(n)) for j in range(outputs))

    def forward(self, maps: list[torch.Tensor]) -> list[torch.Tensor]:
        maps = [branch(x) for branch, x in zip(self.branches, maps, strict=True)]
        out = []
        for paths in self.paths:
            total: torch.Tensor | None = None
            for path, x in zip(paths, maps, strict=True):  # type: ignore[call-overload]
                total = path(x) if total is None else total + path(x)
            assert total is not None
            out.append(F.relu(total))
        return out


class Pose(nn.Module):
    """Takes an image and returns one heat map per joint, at a quarter of the size."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        widths = [s["width"] * 2**i for i in range(s["branches"])]
        stem = [*conv_norm(3, 64, 3, 2), nn.ReLU(inplace=True), *conv_norm(64, 64, 3, 2), nn.ReLU(inplace=True)]
        first = [Residual(64 if i == 0 else 256, 64, 1, bottleneck=True) for i in range(s["blocks"])]
        self.stem = nn.Sequential(*stem, *first)
        self.enter = nn.ModuleList()
        self.stages = nn.ModuleList()
        self.enter.append(nn.Sequential(*conv_norm(256, widths[0], 3), nn.ReLU(inplace=True)))
        for n in range(2, s["branches"] + 1):
            into = 256 if n == 2 else widths[n - 2]
            self.enter.append(nn.Sequential(*conv_norm(into, widths[n - 1], 3, 2), nn.ReLU(inplace=True)))
            modules = s["modules"] if n > 2 else 1
            last = [n == s["branches"] and i == modules - 1 for i in range(modules)]
            self.stages.append(nn.ModuleList(_Module(widths[:n], s["blocks"], last=final) for final in last))
        self.last = nn.Conv2d(widths[0], s["joints"], 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        maps = [self.enter[0](x)]
        for n, stage in enumerate(self.stages):
            maps.append(self.enter[n + 1](x if n == 0 else maps[-1]))
            for module in stage:  # type: ignore[attr-defined]
                maps = module(maps)
        return self.last(maps[0])


def _build(**settings: int) -> nn.Module:
    return Pose(settings)


def _problem(s: Settings) -> str | None:
    step = 4 * 2 ** (s["branches"] - 1)
    if s["height"] % step or s["across"] % step:
        return f"height and across must be multiples of {step} for {s['branches']} branches"
    return None


FAMILY = Family(
    prefix="pose",
    kind="pose estimator",
    settings={
        "height": Setting(256, 16, 2048),
        "across": Setting(192, 16, 2048),  # the width of the image
        "width": Setting(32, 2, 256),  # of the finest branch
        "branches": Setting(4, 2, 5),
        "blocks": Setting(4, 1, 8),
        "modules": Setting(3, 1, 8),
        "joints": Setting(17, 1, 200),
    },
    build=_build,
    inputs=lambda s: {"": Input((3, s["height"], s["across"]))},
    always_named=("width",),
    problem=_problem,
)
