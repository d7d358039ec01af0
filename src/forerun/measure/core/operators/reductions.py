"""Sums, cumulative sums, sorting and Fourier transforms."""

from __future__ import annotations

import torch

from .registry import Arguments, Built, operator

_ROWS = {"rows": 4, "cols": 10}


@operator("sum", _ROWS)
def sum_(a: Arguments) -> Built:
    x = a.new(a["rows"], a["cols"])
    return lambda: x.sum(-1), [x]


@operator("sum_down", {"b": 2, "rows": 4, "cols": 3})
def sum_down(a: Arguments) -> Built:
    """A sum over rows, which is strided in memory, as in a mean over tokens."""
    x = a.new(*a.sizes("b rows cols"))
    return lambda: x.sum(1), [x]


@operator("max_place", {"b": 2, "rows": 4, "cols": 3})
def max_place(a: Arguments) -> Built:
    """Maxima over rows with their indices: over the points of a cloud, or over neighbours."""
    x = a.new(*a.sizes("b rows cols"))
    return lambda: torch.max(x, 1)[0], [x]


@operator("cumsum", _ROWS)
def cumsum(a: Arguments) -> Built:
    x = a.new(a["rows"], a["cols"])
    return lambda: torch.cumsum(x, -1), [x]


@operator("cumsum_down", {"b": 2, "rows": 4, "cols": 3})
def cumsum_down(a: Arguments) -> Built:
    """A cumulative sum over rows, which is strided in memory, as for states of a sequence."""
    x = a.new(*a.sizes("b rows cols"))
    return lambda: torch.cumsum(x, 1), [x]


@operator("sort", _ROWS)
def sort(a: Arguments) -> Built:
    x = a.new(a["rows"], a["cols"])
    return lambda: torch.sort(x, -1)[0], [x]


@operator("argsort", _ROWS, backward=False)
def argsort(a: Arguments) -> Built:
    x = a.new(a["rows"], a["cols"])
    return lambda: torch.argsort(x, -1), [x]


@operator("topk", _ROWS | {"k": 3})
def topk(a: Arguments) -> Built:
    x = a.new(a["rows"], a["cols"])
    return lambda: torch.topk(x, a["k"], -1)[0], [x]


@operator("rfft", {"rows": 3, "n": 12}, dtypes=("fp32",))
def rfft(a: Arguments) -> Built:
    x = a.new(a["rows"], a["n"])
    return lambda: torch.fft.rfft(x), [x]


@operator("rfft2", {"b": 2, "h": 6, "w": 8}, dtypes=("fp32",))
def rfft2(a: Arguments) -> Built:
    x = a.new(*a.sizes("b h w"))
    return lambda: torch.fft.rfft2(x), [x]


def _spectrum(a: Arguments, *shape: int) -> torch.Tensor:
    """Random complex numbers; a last axis of `n` has n // 2 + 1 of them."""
    *first, last = shape
    return torch.randn(*first, last // 2 + 1, dtype=torch.complex64, device=a.device).requires_grad_(a.gradient)


@operator("irfft", {"rows": 3, "n": 12}, dtypes=("fp32",))
def irfft(a: Arguments) -> Built:
    x = _spectrum(a, a["rows"], a["n"])
    return lambda: torch.fft.irfft(x, n=a["n"]), [x]


@operator("irfft2", {"b": 2, "h": 6, "w": 8}, dtypes=("fp32",))
def irfft2(a: Arguments) -> Built:
    x = _spectrum(a, *a.sizes("b h w"))
    return lambda: torch.fft.irfft2(x, s=(a["h"], a["w"])), [x]
