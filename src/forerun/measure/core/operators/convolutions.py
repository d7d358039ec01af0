"""Convolutions of sequences, images and volumes, transposed convolutions, and unfolding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn import functional

from .registry import Arguments, Built, operator

_CONV = {"b": 2, "cin": 4, "cout": 6, "r": 3, "stride": 1, "groups": 1}
_SPACE = {1: ("length",), 2: ("h", "w"), 3: ("depth", "h", "w")}
_SMALL = {1: {"length": 9}, 2: {"h": 6, "w": 6}, 3: {"depth": 4, "h": 5, "w": 5}}
_FORWARD: dict[int, Callable[..., Any]] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED: dict[int, Callable[..., Any]] = {
    **{1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
}


def _convolution(dims: int) -> None:
    """For volumes, `r_depth` and `stride_depth` are window and stride along the first axis if they differ."""
    small, call = {**_CONV, **_SMALL[dims]}, _FORWARD[dims]
    grouped = small | {"groups": 2, "dilation": 2, "last": 1}

    def build(a: Arguments) -> Built:
        x, image = a.images(a["cin"], *(a[size] for size in _SPACE[dims]))
        window, stride = ([a.get(f"{name}_depth", a[name]), *[a[name]] * (dims - 1)] for name in ("r", "stride"))
        w = a.new(a["cout"], a["cin"] // a["groups"], *window, scale=0.05)
        dilation = a.get("dilation", 1)
        padding = [a.get("padding", dilation * (side // 2)) for side in window]
        return lambda: call(image, w, None, stride, padding, dilation, a["groups"]), [x, w]

    flat = small | {"r_depth": 1, "stride_depth": 1, "stride": 2}
    operator(f"conv{dims}d", small, grouped, *([flat] if dims == 3 else []), tf32=True)(build)


def _transposed(dims: int) -> None:
    small, call = {**_CONV, **_SMALL[dims], "stride": 2, "padding": 1, "more": 1}, _TRANSPOSED[dims]

    def build(a: Arguments) -> Built:
        """`more`: the output padding."""
        x, image = a.images(a["cin"], *(a[size] for size in _SPACE[dims]))
        w = a.new(a["cin"], a["cout"] // a["groups"], *[a["r"]] * dims, scale=0.05)
        return lambda: call(image, w, None, a["stride"], a["padding"], a["more"], a["groups"]), [x, w]

    operator(f"conv_transpose{dims}d", small, small | {"groups": 2, "last": 1}, tf32=True)(build)


for _dims in (1, 2, 3):
    _convolution(_dims)
    _transposed(_dims)


@operator("unfold", {"b": 2, "c": 3, "length": 8, "r": 3})
def unfold(a: Arguments) -> Built:
    x = a.new(a["b"], a["c"], a["length"], 1)
    return lambda: functional.unfold(x, (a["r"], 1), padding=(a["r"] // 2, 0)), [x]
