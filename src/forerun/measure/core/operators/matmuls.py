"""Matmuls: plain, batched, with packed weights, and patterns that models write as einsum."""

from __future__ import annotations

import torch
from torch.nn import functional

from .. import quantised
from .registry import Arguments, Built, operator


@operator("matmul", {"m": 4, "n": 64, "k": 128}, tf32=True)
def matmul(a: Arguments) -> Built:
    if a.quantised and a.device != "meta":
        x = a.new(a["m"], a["k"])
        return quantised.matmul(x, a["n"], a.quantised), [x]
    x, y = a.new(a["m"], a["k"]), a.new(a["k"], a["n"])
    return lambda: torch.mm(x, y), [x, y]


@operator("linear", {"m": 4, "n": 6, "k": 8}, tf32=True)
def linear(a: Arguments) -> Built:
    x, w, bias = a.new(a["m"], a["k"]), a.new(a["n"], a["k"], scale=a["k"] ** -0.5), a.new(a["n"])
    return lambda: functional.linear(x, w, bias), [x, w, bias]


@operator("bmm", {"b": 2, "m": 4, "n": 6, "k": 8}, tf32=True)
def bmm(a: Arguments) -> Built:
    x, y = a.new(a["b"], a["m"], a["k"]), a.new(a["b"], a["k"], a["n"])
    return lambda: torch.bmm(x, y), [x, y]


#: name: (pattern, sizes of the left operand, sizes of the right operand)
EINSUMS = {
    "einsum_scores": ("bqhd,bkhd->bhqk", "b q heads d", "b kv heads d"),
    "einsum_context": ("bhqk,bkhd->bqhd", "b heads q kv", "b kv heads d"),
    "einsum_project": ("bqm,mhd->bqhd", "b q m", "m heads d"),
    "einsum_experts": ("ecm,emn->ecn", "experts c m", "experts m n"),
    "einsum_channels": ("bchw,cn->bnhw", "b c h w", "c n"),
    "einsum_outer": ("bqi,bqj->bij", "b q i", "b q j"),
}


def _einsum(name: str, pattern: str, left: str, right: str) -> None:
    def build(a: Arguments) -> Built:
        x, y = a.new(*a.sizes(left)), a.new(*a.sizes(right))
        return lambda: torch.einsum(pattern, x, y), [x, y]

    example = {size: 2 + i for i, size in enumerate(dict.fromkeys(f"{left} {right}".split()))}
    operator(name, example, tf32=True)(build)


for _name, (_pattern, _left, _right) in EINSUMS.items():
    _einsum(_name, _pattern, _left, _right)
