"""The family of small CNNs for CIFAR-sized images, named by a string such as `cnn:depth=6,filters=32,classes=10`.

The one definition that the front door captures and the sweeps measure: `depth` 3x3 convolutions (padding 1) with ReLU,
the filters doubling every two convolutions up to eight times the first, a 2x2 max-pool after every two convolutions
while the image is larger than 4, then a global average pool and one linear layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.errors import ForerunError
from forerun.graph.sources.settings import read_settings

if TYPE_CHECKING:
    from torch import nn

PREFIX = "cnn:"
_REQUIRED = ("depth", "filters")
_DEFAULTS = {"classes": 10, "image": 32, "channels": 3}
_LIMITS = {
    "depth": (1, 100),
    "filters": (1, 4096),
    "classes": (1, 100_000),
    "image": (4, 1024),
    "channels": (1, 64),
}


def parse(name: str) -> dict[str, int]:
    """The settings in `cnn:depth=6,filters=32[,classes=10][,image=32][,channels=3]`; all keys filled in."""
    if not name.startswith(PREFIX):
        raise ForerunError(f"'{name}' does not name a CNN of the family: it must begin with '{PREFIX}'.")
    settings = read_settings(name, name[len(PREFIX) :].split(","), _LIMITS)
    for key in _REQUIRED:
        if key not in settings:
            raise ForerunError(f"'{name}' must say {key}=, as in cnn:depth=6,filters=32,classes=10.")
    return {**_DEFAULTS, **settings}


def name(depth: int, filters: int, classes: int = 10, image: int = 32, channels: int = 3) -> str:
    """The name that `parse` reads back to the same settings; defaults are left out."""
    said = {"depth": depth, "filters": filters, "classes": classes, "image": image, "channels": channels}
    kept = {k: v for k, v in said.items() if k in (*_REQUIRED, "classes") or v != _DEFAULTS[k]}
    return PREFIX + ",".join(f"{k}={v}" for k, v in kept.items())


def input_shape(settings: dict[str, int]) -> tuple[int, ...]:
    return (settings["channels"], settings["image"], settings["image"])


def build(depth: int, filters: int, classes: int = 10, image: int = 32, channels: int = 3) -> nn.Module:
    """The network itself; it takes (batch, channels, image, image) and gives (batch, classes)."""
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
