"""Strides of the tensors of an ONNX graph where eager PyTorch runs it."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.frontends.onnx.values import Value

Strides = tuple[int, ...]


def in_one_piece(shape: Sequence[int]) -> Strides:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def strides_of(value: Value) -> Strides:
    return in_one_piece(value.shape) if value.strides is None else value.strides


def is_contiguous(value: Value) -> bool:
    """Axes of size 1 may have any stride."""
    if value.strides is None:
        return True
    compared = zip(value.shape, value.strides, in_one_piece(value.shape), strict=True)
    return all(own == plain for size, own, plain in compared if size != 1)


def has_channels_last(value: Value) -> bool:
    """Whether images are channels-last, with or without gaps between pixels."""
    if len(value.shape) != 4 or is_contiguous(value):
        return False
    _, channels, height, width = value.shape
    images, of_channel, of_row, of_pixel = strides_of(value)
    return (
        of_channel == 1 and of_pixel >= channels and of_row >= width * of_pixel and images >= height * of_row
    )  # fmt: skip


def with_channels_last(shape: Sequence[int]) -> Strides:
    _, channels, height, width = shape
    return (height * width * channels, 1, width * channels, channels)


def closed_up(shape: Sequence[int], strides: Strides) -> Strides:
    """The same order of axes without gaps, as PyTorch lays out a new tensor like this one."""
    out, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda axis: (strides[axis], -axis)):
        out[axis] = step
        step *= max(shape[axis], 1)
    return tuple(out)


def is_dense(value: Value) -> bool:
    """Whether a tensor fills its memory without gaps, in whatever order of axes."""
    closed = closed_up(value.shape, strides_of(value))
    compared = zip(value.shape, strides_of(value), closed, strict=True)
    return all(own == plain for size, own, plain in compared if size != 1)


def viewed(shape: Sequence[int], strides: Strides, new: Sequence[int]) -> Strides | None:
    """The strides of the same memory under another shape, or None where it needs a copy."""
    if 0 in shape or 0 in new:
        return in_one_piece(new)
    runs: list[list[int]] = []  # [elements, step] of neighbouring axes that merge
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * step:
            runs[-1] = [runs[-1][0] * size, step]
        else:
            runs.append([size, step])
    out: list[int] = []
    left, step = runs.pop() if runs else (1, 1)
    for size in reversed(new):
        if size == 1:
            out.append(step)
            continue
        if left == 1 and runs:
            left, step = runs.pop()
        if left % size:
            return None
        out.append(step)
        left, step = left // size, step * size
    return tuple(reversed(out)) if left == 1 and not runs else None
