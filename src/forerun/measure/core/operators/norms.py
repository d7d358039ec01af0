"""Normalisation, softmax, and the losses of classifiers."""

from __future__ import annotations

import torch
from torch.nn import functional

from .registry import Arguments, Built, operator

_ROWS = {"rows": 4, "cols": 7}
_IMAGE = {"b": 2, "c": 4, "h": 5, "w": 5}
_VOLUME = _IMAGE | {"depth": 3}


@operator("softmax", _ROWS)
def softmax(a: Arguments) -> Built:
    x = a.new(a["rows"], a["cols"])
    return lambda: torch.softmax(x, -1), [x]


@operator("log_softmax", _ROWS)
def log_softmax(a: Arguments) -> Built:
    x = a.new(a["rows"], a["cols"])
    return lambda: torch.log_softmax(x, -1), [x]


@operator("softmax_channels", _IMAGE)
def softmax_channels(a: Arguments) -> Built:
    """Softmax over the channels of each pixel, which are strided in memory."""
    x = a.new(*a.sizes("b c h w"))
    return lambda: torch.softmax(x, 1), [x]


@operator("cross_entropy", _ROWS)
def cross_entropy(a: Arguments) -> Built:
    x, labels = a.new(a["rows"], a["cols"]), a.integers(a["cols"], a["rows"])
    return lambda: functional.cross_entropy(x, labels), [x]


@operator("layer_norm", _ROWS)
def layer_norm(a: Arguments) -> Built:
    x, w, b = a.new(a["rows"], a["cols"]), a.new(a["cols"]), a.new(a["cols"])
    return lambda: functional.layer_norm(x, (a["cols"],), w, b), [x, w, b]


@operator("rms_norm", _ROWS)
def rms_norm(a: Arguments) -> Built:
    x, w = a.new(a["rows"], a["cols"]), a.new(a["cols"])
    return lambda: functional.rms_norm(x, (a["cols"],), w), [x, w]


def _batch_norm(a: Arguments, training: bool) -> Built:
    """`mixed`: weights in single precision, as under autocast."""
    x, w, b = _images(a)
    if a.get("mixed"):
        w, b = (values.detach().float().requires_grad_(a.gradient) for values in (w, b))
    mean, var = torch.zeros_like(w, requires_grad=False), torch.ones_like(w, requires_grad=False)
    return lambda: functional.batch_norm(x, mean, var, w, b, training), [x, w, b]


@operator("batch_norm", _IMAGE, _VOLUME | {"mixed": 1}, backward=False)
def batch_norm(a: Arguments) -> Built:
    return _batch_norm(a, training=False)


@operator("batch_norm_train", _IMAGE, _VOLUME | {"mixed": 1})
def batch_norm_train(a: Arguments) -> Built:
    return _batch_norm(a, training=True)


def _images(a: Arguments) -> list[torch.Tensor]:
    """Images, or volumes if the shape has a `depth`, with a weight and a bias per channel."""
    sizes = "b c depth h w" if "depth" in a.shape else "b c h w"
    return [a.new(*a.sizes(sizes)), a.new(a["c"]), a.new(a["c"])]


@operator("group_norm", _IMAGE | {"groups": 2}, _VOLUME | {"groups": 2})
def group_norm(a: Arguments) -> Built:
    x, w, b = _images(a)
    return lambda: functional.group_norm(x, a["groups"], w, b), [x, w, b]


@operator("instance_norm", _IMAGE, _VOLUME)
def instance_norm(a: Arguments) -> Built:
    x, w, b = _images(a)
    return lambda: functional.instance_norm(x, weight=w, bias=b), [x, w, b]
