"""Semantic segmentation networks: `segmenter:decoder=0` (DeepLab), 1 (PSPNet), 2 (a U-Net's way up on a ResNet).

The first two keep the backbone at stride 8 by dilated convolutions; every decoder ends in a bilinear resize.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings
from forerun.networks.vision_layers import Backbone, conv_norm


def _resize(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


class _Pooled(nn.Module):
    """Averages over `bins` x `bins` regions, mapped by a 1x1 convolution, back at the size of the input."""

    def __init__(self, into: int, out: int, bins: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(bins), nn.Conv2d(into, out, 1), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _resize(self.body(x), x)


def _layer(into: int, out: int, kernel: int, dilation: int = 1) -> nn.Module:
    return nn.Sequential(*conv_norm(into, out, kernel, 1, dilation), nn.ReLU(inplace=True))


class _Aspp(nn.Module):
    """DeepLab's head: the same features under several dilations, and their average."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [_layer(into, out, 1), *(_layer(into, out, 3, rate) for rate in (6, 12, 18)), _Pooled(into, out, 1)]
        )
        self.join = nn.Sequential(_layer(5 * out, out, 1), nn.Dropout(0.1), _layer(out, out, 3))

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        return self.join(torch.cat([branch(features[-1]) for branch in self.branches], dim=1))


class _Psp(nn.Module):
    """PSPNet's head: averages over regions of four sizes beside the features themselves."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.pools = nn.ModuleList(_Pooled(into, into // 4, bins) for bins in (1, 2, 3, 6))
        self.join = _layer(into + 4 * (into // 4), out, 3)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        x = features[-1]
        return self.join(torch.cat([x, *(pool(x) for pool in self.pools)], dim=1))


class _WayUp(nn.Module):
    """A U-Net's decoder: resize, concatenate the finer features, two convolutions."""

    def __init__(self, widths: list[int], out: int) -> None:
        super().__init__()
        into, steps = widths[-1], []
        for width in reversed(widths[:-1]):
            steps.append(nn.Sequential(_layer(into + width, width, 3), _layer(width, width, 3)))
            into = width
        self.steps, self.last = nn.ModuleList(steps), _layer(into, out, 3)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        x = features[-1]
        for step, finer in zip(self.steps, reversed(features[:-1]), strict=True):
            x = step(torch.cat([_resize(x, finer), finer], dim=1))
        return self.last(x)


class Segmenter(nn.Module):
    """Takes an image and returns the logits of every class at every pixel."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.backbone = Backbone(s["width"], s["blocks"], bool(s["bottleneck"]), dilated=s["decoder"] < 2)
        widths, out = self.backbone.widths, s["head"]
        heads = (lambda: _Aspp(widths[-1], out), lambda: _Psp(widths[-1], out), lambda: _WayUp(widths, out))
        self.head = heads[s["decoder"]]()
        self.classify = nn.Conv2d(out, s["classes"], 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _resize(self.classify(self.head(self.backbone(x))), x)


def _build(**settings: int) -> nn.Module:
    return Segmenter(settings)


FAMILY = Family(
    prefix="segmenter",
    kind="semantic segmentation",
    settings={
        "image": Setting(512, 32, 2048),
        "width": Setting(64, 4, 512),
        "blocks": Setting(2, 1, 32),  # in each stage of the backbone
        "bottleneck": Setting(0, 0, 1),
        "decoder": Setting(0, 0, 2),
        "head": Setting(256, 4, 1024),
        "classes": Setting(21, 1, 1000),
    },
    build=_build,
    inputs=lambda s: {"": Input((3, s["image"], s["image"]))},
    always_named=("image",),
)
