"""Where a dimension of a tensor is found again: in a view of the same memory, which leaves no op, or in a reduction."""

from __future__ import annotations

import itertools
import math

from forerun.graph.ir import Tensor

Side = tuple[int, int]  # a dimension's extent, and what one more sample adds to it


def follow(source: Tensor, dim: int, view: Tensor) -> int | None:
    """The dimension of `view` that begins with dimension `dim` of `source`: both show the same memory, reshaped, with
    dimensions swapped, a part of it, or expanded. None where it cannot be told.
    """
    a, b = sides(source), sides(view)
    if sorted(a) == sorted(b):
        return _swapped(a, b, dim)
    had, has = math.prod(source.shape), math.prod(view.shape)
    if had == has:
        return _reshaped(a, b, dim)
    return _part(a, b, dim) if has < had else _expanded(a, b, dim)


def sides(tensor: Tensor) -> list[Side]:
    return list(zip(tensor.shape, tensor.per_sample or (0,) * len(tensor.shape), strict=True))


def _swapped(a: list[Side], b: list[Side], dim: int) -> int:
    places = [j for j, side in enumerate(b) if side == a[dim]]
    if len(places) == 1 or a != b:
        return places[0]
    # Equal shapes: the same view again; but heads and tokens in equal number are swapped around attention.
    swapped = len(a) == 4 and dim in (1, 2) and a[1] == a[2]
    return 3 - dim if swapped else dim


def _reshaped(a: list[Side], b: list[Side], dim: int) -> int | None:
    """Row-major alignment: the runs of dimensions on both sides that have equal products."""
    i = j = 0
    while i < len(a) and j < len(b):
        left, right = [i], [j]
        while (p := math.prod(a[k][0] for k in left)) != (q := math.prod(b[k][0] for k in right)):
            if p < q:
                left.append(left[-1] + 1)
            else:
                right.append(right[-1] + 1)
            if left[-1] >= len(a) or right[-1] >= len(b):
                return None
        i, j = left[-1] + 1, right[-1] + 1
        while i < len(a) and a[i][0] == 1 and dim != i:
            left.append(i)
            i += 1
        while j < len(b) and b[j][0] == 1:
            right.append(j)
            j += 1
        if dim in left:
            return _in_run([a[k] for k in left], left.index(dim), b, right)
    return None


def _in_run(run: list[Side], at: int, b: list[Side], right: list[int]) -> int | None:
    """The dimension within one aligned run."""
    wide = [k for k in right if b[k][0] > 1] or right[:1]
    if len(wide) == 1:
        return wide[0]
    same = [k for k in wide if b[k] == run[at]]
    if len(same) == 1:
        return same[0]
    if sum(side[0] > 1 for side in run) == 1:  # one dimension becomes several: features become heads and their sizes
        still = [k for k in wide if b[k][1] == 0]
        return still[0] if still and len(still) < len(wide) else wide[0]
    # Several become several, with dimensions swapped in between: those that make up this one.
    extent, grows = run[at]
    for size in range(1, len(wide) + 1):
        for chosen in itertools.combinations(wide, size):
            if math.prod(b[k][0] for k in chosen) == extent and (grows or not any(b[k][1] for k in chosen)):
                return chosen[0]
    return None


def _part(a: list[Side], b: list[Side], dim: int) -> int | None:
    if len(a) == len(b) and all(small[0] <= large[0] for small, large in zip(b, a, strict=True)):
        return dim
    if len(a) == len(b) + 1:  # one index of a dimension
        fitting = [k for k in range(len(a)) if all(s[0] <= t[0] for s, t in zip(b, a[:k] + a[k + 1 :], strict=True))]
        exact = [k for k in fitting if b == a[:k] + a[k + 1 :]]
        for k in exact or fitting:
            if k != dim:
                return dim - (k < dim)
        return None
    before, passed = math.prod(side[0] for side in a[:dim]), 1
    for k, (extent, _) in enumerate(b):  # a part of the last dimension, reshaped
        if passed == before and extent > 1:
            return k
        passed *= extent
    return None


def _expanded(a: list[Side], b: list[Side], dim: int) -> int | None:
    if len(a) == len(b):
        return dim
    if len(b) == len(a) + 1:
        fitting = [k for k in range(len(b)) if b[:k] + b[k + 1 :] == a]
        return dim + (fitting[0] <= dim) if fitting else None
    return None


def kept_dim(shape: tuple[int, ...], dim: int, out: tuple[int, ...]) -> int | None:
    """Where a dimension remains in the result of a reduction; None where it is summed over."""
    if len(out) == len(shape):
        return dim if out[dim] == shape[dim] else None
    for gone in itertools.combinations(range(len(shape)), len(shape) - len(out)):
        if dim not in gone and tuple(e for k, e in enumerate(shape) if k not in gone) == out:
            return dim - sum(k < dim for k in gone)
    return None
