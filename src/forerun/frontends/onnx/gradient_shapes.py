"""Rules of `gradients` for nodes that move, choose or sum up elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from forerun.frontends.onnx.gradient_call import Call, Rule


def reshaped(c: Call) -> Any:
    return c.args[0].reshape(c.shape)


def expand(c: Call) -> Any:
    x = c.args[0]
    return x.expand(c.shape) if isinstance(x, torch.Tensor) else filled(c)


def transpose(c: Call) -> Any:
    return c.args[0].permute(c.get("perm") or list(reversed(range(c.args[0].dim()))))


def sliced(c: Call) -> Any:
    x = c.args[0]
    starts, ends = c.known(1, "starts") or [], c.known(2, "ends") or []
    axes = c.known(3, "axes") or list(range(len(starts)))
    steps = c.known(4) if c.get("starts") is None else None
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        size = x.shape[axis]
        if step < 0:
            chosen = range(size)[slice(start, None if end < -size else end, step)]
            x = x.flip(axis) if len(chosen) == size else x[_at(axis % x.dim(), chosen[-1], chosen[0] + 1)].flip(axis)
        else:
            x = x[_at(axis % x.dim(), start, end, step)]
    return x


def _at(axis: int, *bounds: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(*bounds))


def split(c: Call) -> Any:
    return torch.split(c.args[0], [v.shape[int(c.get("axis", 0))] for v in c.node.out], int(c.get("axis", 0)))


def concat(c: Call) -> Any:
    parts = [a for a in c.args if a is not None and a.numel()]
    return torch.cat(parts, int(c.get("axis", 0))) if len(parts) > 1 else parts[0]


def pad(c: Call) -> Any:
    x, pads, mode = c.args[0], c.known(1, "pads") or [], c.get("mode", "constant")
    axes = c.known(3) if c.node.input(3) is not None else list(range(x.dim()))
    around = [0] * (2 * x.dim())
    for i, axis in enumerate(axes or []):
        last = x.dim() - 1 - int(axis) % x.dim()
        around[2 * last : 2 * last + 2] = int(pads[i]), int(pads[i + len(pads) // 2])
    if mode == "constant":
        return functional.pad(x, around)
    most = 2 * max((i // 2 + 1 for i, n in enumerate(around) if n), default=1)
    return functional.pad(x, around[:most], {"edge": "replicate", "wrap": "circular"}.get(mode, mode))


def resize(c: Call) -> Any:
    mode, size = c.get("mode", "nearest"), list(c.shape[2:])
    name = {"linear": ("linear", "bilinear", "trilinear")[len(size) - 1], "cubic": "bicubic"}.get(mode, mode)
    corners = c.get("coordinate_transformation_mode") == "align_corners"
    return functional.interpolate(
        c.args[0], size, mode=name, **({} if mode == "nearest" else {"align_corners": corners})
    )


def depth_to_space(c: Call) -> Any:
    x, size = c.args[0], int(c.get("blocksize"))
    if c.node.op == "SpaceToDepth":
        return functional.pixel_unshuffle(x, size)
    return functional.pixel_shuffle(x, size)


def trilu(c: Call) -> Any:
    which = torch.triu if c.get("upper", 1) else torch.tril
    return which(c.args[0], int((c.known(1) or [0])[0]))


def reduce(function: Callable[..., Any]) -> Rule:
    def rule(c: Call) -> Any:
        axes = c.known(1, "axes")
        if not axes and c.get("noop_with_empty_axes"):
            return c.args[0]
        axes = axes or list(range(c.args[0].dim()))
        return function(c.args[0], axes, keepdim=bool(c.get("keepdims", 1)))

    return rule


def norm_of(order: int) -> Callable[..., Any]:
    return lambda x, axes, keepdim: torch.linalg.vector_norm(x, order, axes, keepdim)


def sum_of_squares(x: Any, axes: list[int], keepdim: bool) -> Any:
    return x.square().sum(axes, keepdim)


def prod(x: Any, axes: list[int], keepdim: bool) -> Any:
    for axis in sorted((a % x.dim() for a in axes), reverse=True):
        x = x.prod(axis, keepdim)
    return x


def arg(function: Callable[..., Any]) -> Rule:
    return lambda c: function(c.args[0], int(c.get("axis", 0)), bool(c.get("keepdims", 1)))


def topk(c: Call) -> Any:
    axis = int(c.get("axis", -1))
    return tuple(torch.topk(c.args[0], c.shape[axis], axis, bool(c.get("largest", 1)), bool(c.get("sorted", 1))))


def softmax(function: Callable[..., Any]) -> Rule:
    def rule(c: Call) -> Any:
        x, axis = c.args[0], int(c.get("axis", -1 if c.opset >= 13 else 1))
        if c.opset < 13 and axis % x.dim() != x.dim() - 1:  # over all axes from this one on
            return function(x.flatten(axis), -1).reshape(x.shape)
        return function(x, axis)

    return rule


def gather(c: Call) -> Any:
    x, index, axis = c.args[0], c.args[1], int(c.get("axis", 0))
    if not isinstance(index, torch.Tensor):
        return x.select(axis, int(index))
    if axis % x.dim() == 0 and x.dim() == 2:
        return functional.embedding(index, x)
    if index.dim() == 0:
        return x.index_select(axis, index.reshape(1)).squeeze(axis)
    return x.index_select(axis, index.reshape(-1))


def gather_nd(c: Call) -> Any:
    x, index, fixed = c.args[0], c.args[1], int(c.get("batch_dims", 0))
    places = list(index.unbind(-1))
    for axis in range(fixed):
        size = [-1 if i == axis else 1 for i in range(places[0].dim())]
        places.insert(axis, torch.arange(x.shape[axis], device="meta").reshape(size))
    return x[tuple(places)]


def scatter(c: Call) -> Any:
    x, index, new, axis = c.args[0], c.args[1], c.args[2], int(c.get("axis", 0))
    return x.scatter_add(axis, index, new) if c.get("reduction") == "add" else x.scatter(axis, index, new)


def scatter_nd(c: Call) -> Any:
    x, index, new = c.args[:3]
    return x.index_put(tuple(index.unbind(-1)), new, accumulate=c.get("reduction") == "add")


def filled(c: Call) -> Any:
    return torch.full(c.shape, 0.0, dtype=c.cast(c.node.out[0].dtype), device="meta")


def random(function: Callable[..., Any]) -> Rule:
    return lambda c: function(c.shape, dtype=c.cast(c.node.out[0].dtype), device="meta")
