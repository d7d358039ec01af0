"""Optimizer steps with existing gradients: over many tensors, or over one large table."""

from __future__ import annotations

from typing import Any

import torch

from .registry import Arguments, Built, operator

_STEP: dict[str, Any] = {"backward": False, "is_step": True}
_MANY, _TABLE = {"n": 200, "tensors": 4}, {"vocab": 20, "cols": 4}


def _many(a: Arguments) -> list[torch.nn.Parameter]:
    """Parameters of which half hold nearly all the numbers, like weights and biases."""
    n, tensors = a["n"], a["tensors"]
    return [_parameter(a, max(8, int((1.98 if i % 2 == 0 else 0.02) * n / tensors))) for i in range(tensors)]


def _table(a: Arguments) -> list[torch.nn.Parameter]:
    """An embedding table with a dense gradient, which touches every row."""
    return [_parameter(a, a["vocab"], a["cols"])]


def _parameter(a: Arguments, *shape: int) -> torch.nn.Parameter:
    p = torch.nn.Parameter(torch.randn(shape, dtype=a.dtype, device=a.device))
    p.grad = torch.randn_like(p)
    return p


def _foreach(a: Arguments) -> bool | None:
    """PyTorch's default for `foreach`; on meta, which stands for a GPU, its default on GPUs."""
    return True if a.device == "meta" else None


def _sgd(a: Arguments, parameters: list[torch.nn.Parameter]) -> Built:
    optimizer = torch.optim.SGD(parameters, lr=1e-6, momentum=0.9, foreach=_foreach(a))
    return lambda: optimizer.step(), []


def _adamw(a: Arguments, parameters: list[torch.nn.Parameter]) -> Built:
    optimizer = torch.optim.AdamW(parameters, lr=1e-6, foreach=_foreach(a))
    return lambda: optimizer.step(), []


@operator("sgd", _MANY, **_STEP)
def sgd(a: Arguments) -> Built:
    return _sgd(a, _many(a))


@operator("adamw", _MANY, **_STEP)
def adamw(a: Arguments) -> Built:
    return _adamw(a, _many(a))


@operator("embedding_sgd", _TABLE, **_STEP)
def embedding_sgd(a: Arguments) -> Built:
    return _sgd(a, _table(a))


@operator("embedding_adamw", _TABLE, **_STEP)
def embedding_adamw(a: Arguments) -> Built:
    return _adamw(a, _table(a))
