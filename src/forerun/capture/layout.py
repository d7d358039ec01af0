"""Memory layout: which results CUDA leaves channels-last, and which ops read non-contiguous inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import suggest_memory_format


def cuda_layout(name: str, args: Any, out: Any) -> Any:
    """The result of a call in the layout CUDA would give it, where meta tensors have another: a convolution of
    channels-last images stays so, the gradient of a layer norm is contiguous whatever its input was."""
    if name == "convolution" and runs_channels_last(*args[:2]):
        return torch.empty_like(out, memory_format=torch.channels_last)
    if name == "convolution_backward" and out[0] is not None and runs_channels_last(*args[1:3]):
        return torch.empty_like(out[0], memory_format=torch.channels_last), *out[1:]
    if name == "native_layer_norm_backward" and out[0] is not None:
        return torch.empty_like(out[0], memory_format=torch.contiguous_format), *out[1:]
    return out


def runs_channels_last(image: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether a convolution, forward or backward, runs channels-last: its image or its weight is."""
    return _channels_last(image) or _channels_last(weight)


def _channels_last(t: torch.Tensor) -> bool:
    """By strides alone, as CUDA checks: tokens without the first one leave gaps between images."""
    return t.dim() == 4 and suggest_memory_format(t) == torch.channels_last


#: Ops whose kernels run several times slower on inputs that are not contiguous.
_MEMORY_BOUND = frozenset({"copy", "elementwise", "reduce", "norm", "softmax", "gather"})
#: Convolutions and how many of their inputs are images (gradients first); the weight follows.
_IMAGES = {"conv": 1, "conv_backward": 2}


def strided(kind: str, inputs: Any) -> bool:
    """Whether the inputs are not contiguous: gaps, different orders, or broadcast rows. For ops on images, whether
    these are channels-last."""
    if kind in _IMAGES:
        return runs_channels_last(*inputs[_IMAGES[kind] - 1 : _IMAGES[kind] + 1])
    if kind == "resize":
        return _channels_last(inputs[0])
    if kind not in _MEMORY_BOUND:
        return False
    seen = [t for t in inputs if t.numel() > 1 and t.is_floating_point()]
    if not seen:
        return False
    if kind != "elementwise":
        return any(not t.is_contiguous() for t in seen)
    first = seen[0]
    return any(t.shape != first.shape or t.stride() != first.stride() for t in seen) or not _dense(first)


#: Layer norms and their gradients, and how many of their inputs must be contiguous.
_LAYER_NORMS = {"native_layer_norm": 1, "layer_norm": 1, "native_layer_norm_backward": 2}


def copied(kind: str, name: str, inputs: Any) -> list[int]:
    """The indices of inputs that an op makes contiguous before its kernel runs: convolutions and layer norms do so with
    images split along their channels and transposed sequences."""
    if kind in _IMAGES:
        images = inputs[: _IMAGES[kind]]
        as_read = torch.channels_last if strided(kind, inputs) else torch.contiguous_format
        return [i for i, t in enumerate(images) if not (t.is_contiguous(memory_format=as_read) or _last_3d(t))]
    return [i for i, t in enumerate(inputs[: _LAYER_NORMS.get(name, 0)]) if not t.is_contiguous()]


def _last_3d(t: torch.Tensor) -> bool:
    return t.dim() == 5 and t.is_contiguous(memory_format=torch.channels_last_3d)


def _dense(t: torch.Tensor) -> bool:
    """Whether a tensor fills its memory without gaps, in whatever order of dimensions."""
    if t.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True
