"""Single operators: a registry of builders by name, and the measured call of a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..meters import Meter

# Each theme's module registers its operators when it is imported.
from . import attention, convolutions, elementwise, images, indexing, matmuls, norms, optimizers, recurrent, reductions
from .registry import OPERATORS, Arguments, Built, Operator, find

__all__ = [
    "OPERATORS", "Arguments", "Built", "Operator", "attention", "build", "call_of", "convolutions", "elementwise",
    "find", "images", "indexing", "matmuls", "norms", "optimizers", "recurrent", "reductions",
]  # fmt: skip


def build(case: dict[str, Any], device: str) -> Built:
    """The forward call of an operator, and the tensors that its backward differentiates."""
    return find(case["op"]).build(Arguments(case, device))


def call_of(case: dict[str, Any], meter: Meter) -> Callable[[], Any]:
    """The measured call: forward only, backward only (the forward pass runs here), or an optimizer step."""
    forward, inputs = build(case, meter.device)
    if case["direction"] != "backward":
        if find(case["op"]).is_step:
            return forward

        def run() -> Any:
            with torch.no_grad():
                return forward()

        return run
    with meter.tf32(case["dtype"] == "tf32"):
        out = forward()
    upstream = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, upstream, retain_graph=True)
