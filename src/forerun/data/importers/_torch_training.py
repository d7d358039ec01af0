"""Ops of published training loops besides forward and backward: old versions of PyTorch zero the gradients first."""

from __future__ import annotations

import json
from dataclasses import replace

from forerun.graph.ir import Graph, Op

#: The first version of PyTorch whose `zero_grad` frees gradients instead of writing zeros.
FREES_GRADIENTS = 20_000


def torch_version(software: str) -> int:
    """The version in a row's `software` as a number: torch 2.4.0 is 20400."""
    parts = [*map(int, str(json.loads(software)["torch"]).split(".")), 0, 0]
    return parts[0] * 10_000 + parts[1] * 100 + parts[2]


def with_zero_grad(graph: Graph, software: object) -> Graph:
    """The graph of a training step, with the zeroing of gradients before PyTorch 2.0."""
    if not (isinstance(software, str) and torch_version(software) < FREES_GRADIENTS):
        return graph
    return replace(graph, ops=[*graph.ops, *_zeroing(graph)])


def _zeroing(graph: Graph) -> list[Op]:
    """Per parameter, ops that zero its gradient and add the new one.

    The parameter stands for its gradient, which is as large. The ops come last, so that other indices do not change.
    """
    first: dict[int, int] = {}
    for i, t in enumerate(graph.tensors):
        if graph.storages[t.storage].role == "parameter":
            first.setdefault(t.storage, i)
    out = []
    for storage, i in first.items():
        times = graph.storages[storage].repeat
        out.append(Op("fill", "aten::zero_", (), (i,), repeat=times))
        out.append(Op("elementwise", "aten::add_.Tensor", (i, i), (i,), phase="backward", repeat=times))
    return out
