"""Small CNNs for CIFAR-sized images, named by a string such as `cnn:depth=6,filters=32,classes=10`.

`depth` 3x3 convolutions (padding 1) with ReLU, the filters doubling every two convolutions up to eight times the first,
a 2x2 max-pool after every two convolutions while the image is larger than 4, then a global average pool and one linear
layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting

if TYPE_CHECKING:
    from torch import nn


def build(depth: int, filters: int, classes: int, image: int, channels: int) -> nn.Module:
    """The network itself; it takes (batch, channels, image, image) and returns (batch, classes)."""
    from torch import nn

    layers: list[nn.Module] = []
    width, size = channels, image
    for i in range(depth):
        out = filters * min(2 ** (i // 2), 8)
        layers += [nn.Conv2d(width, out, 3, padding=1), nn.ReLU()]
        width = out
        if i % 2 == 1 and size > 4:
            layers.append(nn.MaxPool2d(2))
            size //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


FAMILY = Family(
    prefix="cnn",
    kind="small CNN",
    settings={
        "depth": Setting(None, 1, 100),
        "filters": Setting(None, 1, 4096),
        "classes": Setting(10, 1, 100_000),
        "image": Setting(32, 4, 1024),
        "channels": Setting(3, 1, 64),
    },
    build=build,
    inputs=lambda s: {"": Input((s["channels"], s["image"], s["image"]))},
    always_named=("depth", "filters", "classes"),
)
