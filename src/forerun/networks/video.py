"""Classifiers of video by 3-D convolutions: R3D, R(2+1)D with `factorised=1`, a slow pathway with `slow=1`.

`video:frames=16,image=112,blocks=2`. The slow pathway keeps all its frames and convolves over time in its last two
stages only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings


def _conv(into: int, out: int, time: int, stride: tuple[int, int], factorised: bool) -> list[nn.Module]:
    """A 3x3 convolution over `time` frames; factorised, one over space and one over time."""
    over_time, over_space = stride
    if factorised and time > 1:
        middle = (into * out * time * 9) // (into * 9 + time * out)
        return [
            nn.Conv3d(into, middle, (1, 3, 3), (1, over_space, over_space), (0, 1, 1), bias=False),
            nn.BatchNorm3d(middle),
            nn.ReLU(inplace=True),
            nn.Conv3d(middle, out, (time, 1, 1), (over_time, 1, 1), (time // 2, 0, 0), bias=False),
        ]
    padding = (time // 2, 1, 1)
    return [nn.Conv3d(into, out, (time, 3, 3), (over_time, over_space, over_space), padding, bias=False)]


class _Block(nn.Module):
    def __init__(self, into: int, width: int, time: int, stride: tuple[int, int], s: Settings) -> None:
        super().__init__()
        factorised = bool(s["factorised"])
        if s["bottleneck"]:
            out = 4 * width
            first, middle = (time, 1) if s["slow"] else (1, time)
            self.body = nn.Sequential(
                nn.Conv3d(into, width, (first, 1, 1), padding=(first // 2, 0, 0), bias=False),
                nn.BatchNorm3d(width),
                nn.ReLU(inplace=True),
                *_conv(width, width, middle, stride, factorised),
                nn.BatchNorm3d(width),
                nn.ReLU(inplace=True),
                nn.Conv3d(width, out, 1, bias=False),
                nn.BatchNorm3d(out),
            )
        else:
            out = width
            self.body = nn.Sequential(
                *_conv(into, width, time, stride, factorised),
                nn.BatchNorm3d(width),
                nn.ReLU(inplace=True),
                *_conv(width, out, time, (1, 1), factorised),
                nn.BatchNorm3d(out),
            )
        steps = (stride[0], stride[1], stride[1])
        same = into == out and steps == (1, 1, 1)
        short = nn.Sequential(nn.Conv3d(into, out, 1, steps, bias=False), nn.BatchNorm3d(out))
        self.skip = nn.Identity() if same else short

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.skip(x))


def _build(**s: int) -> nn.Module:
    width, slow = s["width"], bool(s["slow"])
    stem_time = 1 if slow else 3
    stem = [
        nn.Conv3d(3, width, (stem_time, 7, 7), (1, 2, 2), (stem_time // 2, 3, 3), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(inplace=True),
    ]
    if slow:
        stem.append(nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)))
    stages, into = [], width
    for i in range(4):
        time = 1 if slow and i < 2 else 3
        inner = width * 2**i
        out = inner * (4 if s["bottleneck"] else 1)
        for j in range(s["blocks"]):
            first = 2 if i and not j else 1
            stages.append(_Block(into, inner, time, (1 if slow else first, first), s))
            into = out
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(into, s["classes"]))


def _problem(s: Settings) -> str | None:
    return "a slow pathway has no factorised convolutions" if s["slow"] and s["factorised"] else None


FAMILY = Family(
    prefix="video",
    kind="3-D video CNN",
    settings={
        "frames": Setting(16, 1, 128),
        "image": Setting(112, 16, 512),
        "width": Setting(64, 4, 256),
        "blocks": Setting(2, 1, 24),  # in each of the four stages
        "factorised": Setting(0, 0, 1),
        "bottleneck": Setting(0, 0, 1),
        "slow": Setting(0, 0, 1),
        "classes": Setting(400, 2, 10_000),
    },
    build=_build,
    inputs=lambda s: {"": Input((3, s["frames"], s["image"], s["image"]))},
    always_named=("frames", "image"),
    problem=_problem,
)
