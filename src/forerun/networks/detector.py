"""Dense object detectors without their box selection: `detector:blocks=3,bottleneck=1,image=512`.

A ResNet, a feature pyramid of five levels, and on each level the same two towers of convolutions for classes and boxes:
RetinaNet's with anchors, or with `anchor_free` those of FCOS, with group norm and a centredness.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings
from forerun.networks.vision_layers import Backbone, group_norm


class Pyramid(nn.Module):
    """Features of stages 2 to 4 in one width, the coarse ones added to the fine ones, and two coarser levels."""

    def __init__(self, widths: list[int], out: int) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(w, out, 1) for w in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(out, out, 3, padding=1) for _ in widths)
        self.sixth = nn.Conv2d(out, out, 3, stride=2, padding=1)
        self.seventh = nn.Conv2d(out, out, 3, stride=2, padding=1)

    def forward(self, features: list[torch.Tensor]) -> list[torch.Tensor]:
        maps = [lateral(x) for lateral, x in zip(self.lateral, features, strict=True)]
        for i in range(len(maps) - 1, 0, -1):
            maps[i - 1] = maps[i - 1] + F.interpolate(maps[i], size=maps[i - 1].shape[-2:], mode="nearest")
        maps = [smooth(x) for smooth, x in zip(self.smooth, maps, strict=True)]
        maps.append(self.sixth(maps[-1]))
        maps.append(self.seventh(F.relu(maps[-1])))
        return maps


class Detector(nn.Module):
    """Class scores and boxes of every position of every level, (batch, positions, ...)."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        width, self.free = s["pyramid"], bool(s["anchor_free"])
        self.backbone = Backbone(s["width"], s["blocks"], bool(s["bottleneck"]))
        self.pyramid = Pyramid(self.backbone.widths[1:], width)
        anchors = 1 if self.free else s["anchors"]

        def tower() -> nn.Module:
            layers: list[nn.Module] = []
            for _ in range(s["convs"]):
                layers.append(nn.Conv2d(width, width, 3, padding=1))
                layers += [*([group_norm(width)] if self.free else []), nn.ReLU(inplace=True)]
            return nn.Sequential(*layers)

        self.class_tower, self.box_tower = tower(), tower()
        self.scores = nn.Conv2d(width, anchors * s["classes"], 3, padding=1)
        self.boxes = nn.Conv2d(width, anchors * 4, 3, padding=1)
        self.centre = nn.Conv2d(width, 1, 3, padding=1) if self.free else None

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_level: list[list[torch.Tensor]] = []
        for level in self.pyramid(self.backbone(x)[1:]):
            boxes = self.box_tower(level)
            outputs = [self.scores(self.class_tower(level)), self.boxes(boxes)]
            if self.centre is not None:
                outputs[1] = F.relu(outputs[1])
                outputs.append(self.centre(boxes))
            by_level.append([out.permute(0, 2, 3, 1).flatten(1, 2) for out in outputs])
        return tuple(torch.cat(parts, dim=1) for parts in zip(*by_level, strict=True))


def _build(**settings: int) -> nn.Module:
    return Detector(settings)


FAMILY = Family(
    prefix="detector",
    kind="object detector",
    settings={
        "image": Setting(512, 64, 2048),
        "width": Setting(64, 4, 512),
        "blocks": Setting(2, 1, 32),  # in each stage of the backbone
        "bottleneck": Setting(0, 0, 1),
        "pyramid": Setting(256, 4, 1024),
        "convs": Setting(4, 0, 8),  # in each tower
        "anchors": Setting(9, 1, 64),
        "anchor_free": Setting(0, 0, 1),
        "classes": Setting(80, 1, 10_000),
    },
    build=_build,
    inputs=lambda s: {"": Input((3, s["image"], s["image"]))},
    always_named=("image",),
)
