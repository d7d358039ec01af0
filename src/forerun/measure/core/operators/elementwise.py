"""Elementwise operators: activations, sums and products, casts, and short chains of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from .registry import Arguments, Built, operator

_ROWS = {"rows": 4, "cols": 6}
_UNARY: dict[str, Callable[[Any], Any]] = {
    **{"relu": torch.relu, "gelu": functional.gelu, "silu": functional.silu, "sigmoid": torch.sigmoid},
    **{"exp": torch.exp, "tanh": torch.tanh, "hardswish": functional.hardswish, "copy": torch.clone},
    **{"leaky_relu": functional.leaky_relu, "elu": functional.elu, "softplus": functional.softplus},
    **{"mish": functional.mish, "relu6": functional.relu6, "sin": torch.sin, "square": torch.square},
    "scale": lambda x: x * 0.5,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def _unary(name: str, call: Callable[[Any], Any]) -> None:
    def build(a: Arguments) -> Built:
        x = a.new(a["n"])
        return lambda: call(x), [x]

    operator(name, {"n": 24}, backward=name != "copy")(build)


def _binary(name: str, call: Callable[[Any, Any], Any]) -> None:
    def build(a: Arguments) -> Built:
        x, y = a.new(a["n"]), a.new(a["n"])
        return lambda: call(x, y), [x, y]

    operator(name, {"n": 24})(build)


for _name, _call in _UNARY.items():
    _unary(_name, _call)
_binary("add", torch.add)
_binary("mul", torch.mul)


@operator("bias_add", _ROWS)
def bias_add(a: Arguments) -> Built:
    x, y = a.new(a["rows"], a["cols"]), a.new(a["cols"])
    return lambda: x + y, [x, y]


@operator("cast", {"n": 24}, backward=False)
def cast(a: Arguments) -> Built:
    x = a.new(a["n"])
    other = torch.float16 if a.dtype == torch.float32 else torch.float32
    return lambda: x.to(other), [x]


@operator("cast_int8", {"n": 24}, backward=False)
def cast_int8(a: Arguments) -> Built:
    """8-bit weights cast to the dtype of the activations."""
    x = torch.randint(-128, 128, (a["n"],), dtype=torch.int8, device=a.device)
    return lambda: x.to(a.dtype), [x]


@operator("glu", _ROWS)
def glu(a: Arguments) -> Built:
    """`cols` is the width of the result; the input is twice as wide."""
    x = a.new(a["rows"], 2 * a["cols"])
    return lambda: functional.glu(x, -1), [x]


@operator("swiglu", _ROWS)
def swiglu(a: Arguments) -> Built:
    """The gate of current decoders, on the two parts of one matmul output."""
    x = a.new(a["rows"], 2 * a["cols"])

    def run() -> Any:
        gate, up = x.chunk(2, -1)
        return functional.silu(gate) * up

    return run, [x]


@operator("residual_chain", _ROWS | {"steps": 3})
def residual_chain(a: Arguments) -> Built:
    """`steps` times a residual addition and an activation, as at the end of a block without dropout."""
    x, y = a.new(a["rows"], a["cols"]), a.new(a["rows"], a["cols"])

    def run() -> Any:
        out = x
        for _ in range(a["steps"]):
            out = torch.relu(out + y)
        return out

    return run, [x, y]


@operator("residual_norm", _ROWS)
def residual_norm(a: Arguments) -> Built:
    """A residual addition followed by layer norm, as in BERT."""
    x, y, w, b = a.new(a["rows"], a["cols"]), a.new(a["rows"], a["cols"]), a.new(a["cols"]), a.new(a["cols"])
    return lambda: functional.layer_norm(x + y, (a["cols"],), w, b), [x, y, w, b]


@operator("masked_fill", {"b": 2, "heads": 3, "q": 4, "kv": 5})
def masked_fill(a: Arguments) -> Built:
    """Causal masking of attention scores, as in models that do not call a fused kernel."""
    x = a.new(*a.sizes("b heads q kv"))
    mask = torch.ones(a["q"], a["kv"], dtype=torch.bool, device=a.device).triu(1)
    return lambda: x.masked_fill(mask, -1e4), [x]
