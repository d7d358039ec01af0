"""The registry of operators: each has a builder, example shapes, dtypes, and possibly a backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .. import quantised
from ..models import DTYPES

#: The forward call, and the tensors that its backward pass differentiates.
Built = tuple[Callable[[], Any], list[Any]]
FLOATS = ("fp32", "fp16", "bf16")


class Arguments:
    """Arguments of a builder: the sizes of a case (`a["m"]`) and factories of tensors of its dtype on its device."""

    def __init__(self, case: dict[str, Any], device: str) -> None:
        self.shape: dict[str, int] = case["shape"]
        self.device = device
        self.quantised: str | None = case["dtype"] if case["dtype"] in quantised.DTYPES else None
        named = quantised.ACTIVATIONS if self.quantised else case["dtype"].replace("tf32", "fp32")
        self.dtype: torch.dtype = getattr(torch, DTYPES[named])
        self.gradient = case["direction"] == "backward"

    def __getitem__(self, name: str) -> int:
        return self.shape[name]

    def get(self, name: str, default: int = 0) -> int:
        return self.shape.get(name, default)

    def sizes(self, names: str) -> tuple[int, ...]:
        """Several sizes at once: `a.sizes("b c h w")`."""
        return tuple(self.shape[name] for name in names.split())

    def new(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """A random tensor, which requires a gradient in backward cases."""
        values = torch.randn(shape, dtype=self.dtype, device=self.device) * scale
        return values.requires_grad_(self.gradient)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, device=self.device)

    def images(self, channels: int, *space: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (or sequences, volumes) as a leaf tensor, and the view that the operator reads.

        With `last` in the shape they are channels-last tokens, as in the blocks of ConvNeXt.
        """
        space = space or (self["h"], self["w"])
        if not self.get("last"):
            x = self.new(self["b"], channels, *space)
            return x, x
        x = self.new(self["b"], *space, channels)
        return x, x.movedim(-1, 1)


Builder = Callable[[Arguments], Built]


@dataclass(frozen=True)
class Operator:
    """One operator, by its name in rows."""

    name: str
    build: Builder
    examples: tuple[dict[str, int], ...]  # small shapes with every size that the builder reads
    dtypes: tuple[str, ...] = FLOATS
    backward: bool = True  # whether it has a backward pass to measure
    tf32: bool = False  # whether single precision may run on tensor cores
    is_step: bool = False  # an optimizer step, which runs on existing gradients


OPERATORS: dict[str, Operator] = {}


def operator(name: str, *examples: dict[str, int], **facts: Any) -> Callable[[Builder], Builder]:
    """Registers the builder under it."""

    def register(builder: Builder) -> Builder:
        if name in OPERATORS:
            raise ValueError(f"operator {name!r} is registered twice")
        OPERATORS[name] = Operator(name, builder, examples, **facts)
        return builder

    return register


def find(name: str) -> Operator:
    if name not in OPERATORS:
        raise ValueError(f"unknown operator {name!r}")
    return OPERATORS[name]
