"""Operators that resize images and volumes: pooling, resizing, padding, pixel shuffle, sampling at points."""

from __future__ import annotations

import torch
from torch.nn import functional

from .registry import Arguments, Built, operator

_IMAGE = {"b": 2, "c": 4, "h": 6, "w": 6}
_VOLUME = {"b": 2, "c": 3, "depth": 4, "h": 5, "w": 5}
_POOL = {"r": 3, "stride": 2}


@operator("max_pool", _IMAGE | _POOL)
def max_pool(a: Arguments) -> Built:
    x = a.new(*a.sizes("b c h w"))
    return lambda: functional.max_pool2d(x, a["r"], a["stride"], a["r"] // 2), [x]


@operator("avg_pool", _IMAGE | _POOL)
def avg_pool(a: Arguments) -> Built:
    x = a.new(*a.sizes("b c h w"))
    return lambda: functional.avg_pool2d(x, a["r"], a["stride"], a["r"] // 2), [x]


@operator("global_pool", _IMAGE)
def global_pool(a: Arguments) -> Built:
    x = a.new(*a.sizes("b c h w"))
    return lambda: functional.adaptive_avg_pool2d(x, 1), [x]


@operator("adaptive_pool", _IMAGE | {"to": 3})
def adaptive_pool(a: Arguments) -> Built:
    x = a.new(*a.sizes("b c h w"))
    return lambda: functional.adaptive_avg_pool2d(x, a["to"]), [x]


@operator("max_pool3d", _VOLUME | _POOL)
def max_pool3d(a: Arguments) -> Built:
    x = a.new(*a.sizes("b c depth h w"))
    return lambda: functional.max_pool3d(x, a["r"], a["stride"], a["r"] // 2), [x]


@operator("upsample", _IMAGE, _IMAGE | {"last": 1})
def upsample(a: Arguments) -> Built:
    """Twice as high and wide, bilinear."""
    x, image = a.images(a["c"])
    return lambda: functional.interpolate(image, scale_factor=2, mode="bilinear"), [x]


@operator("bicubic", _IMAGE | {"to": 8}, _IMAGE | {"to": 3, "last": 1}, backward=False)
def bicubic(a: Arguments) -> Built:
    (x, image), to = a.images(a["c"]), (a["to"], a["to"])
    return lambda: functional.interpolate(image, size=to, mode="bicubic", align_corners=False), [x]


@operator("resize_nearest", _IMAGE | {"to": 9}, _IMAGE | {"to": 3, "last": 1})
def resize_nearest(a: Arguments) -> Built:
    (x, image), to = a.images(a["c"]), (a["to"], a["to"])
    return lambda: functional.interpolate(image, size=to, mode="nearest"), [x]


@operator("resize_bilinear", _IMAGE | {"to": 9, "corners": 0}, _IMAGE | {"to": 3, "corners": 1, "last": 1})
def resize_bilinear(a: Arguments) -> Built:
    """`corners`: align_corners."""
    (x, image), to, corners = a.images(a["c"]), (a["to"], a["to"]), bool(a["corners"])
    return lambda: functional.interpolate(image, size=to, mode="bilinear", align_corners=corners), [x]


@operator("resize_trilinear", _VOLUME | {"corners": 0}, _VOLUME | {"corners": 1})
def resize_trilinear(a: Arguments) -> Built:
    """A volume twice as large along each side."""
    x, corners = a.new(*a.sizes("b c depth h w")), bool(a["corners"])
    return lambda: functional.interpolate(x, scale_factor=2, mode="trilinear", align_corners=corners), [x]


@operator("pixel_shuffle", {"b": 2, "c": 3, "h": 4, "w": 4, "factor": 2})
def pixel_shuffle(a: Arguments) -> Built:
    """`c` output channels, from factor x factor times as many."""
    x = a.new(a["b"], a["c"] * a["factor"] ** 2, a["h"], a["w"])
    return lambda: functional.pixel_shuffle(x, a["factor"]), [x]


@operator("pixel_unshuffle", {"b": 2, "c": 3, "h": 4, "w": 4, "factor": 2})
def pixel_unshuffle(a: Arguments) -> Built:
    x = a.new(a["b"], a["c"], a["h"] * a["factor"], a["w"] * a["factor"])
    return lambda: functional.pixel_unshuffle(x, a["factor"]), [x]


@operator("reflection_pad", _IMAGE | {"pad": 2})
def reflection_pad(a: Arguments) -> Built:
    x, pads = a.new(*a.sizes("b c h w")), (a["pad"],) * 4
    return lambda: functional.pad(x, pads, mode="reflect"), [x]


@operator("grid_sample", _IMAGE | {"to": 5})
def grid_sample(a: Arguments) -> Built:
    """Values at `to` x `to` points of each image, with a gradient for the points as well."""
    x = a.new(*a.sizes("b c h w"))
    grid = torch.rand(a["b"], a["to"], a["to"], 2, dtype=a.dtype, device=a.device) * 2 - 1
    grid.requires_grad_(a.gradient)
    return lambda: functional.grid_sample(x, grid, align_corners=False), [x, grid]
