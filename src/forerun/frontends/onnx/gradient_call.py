"""A node of an ONNX file as the rules of `gradients` see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from onnx import TensorProto

from forerun.frontends.onnx.values import Node, no_gradient

TORCH_DTYPES: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32, TensorProto.DOUBLE: torch.float64, TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16, TensorProto.INT64: torch.int64, TensorProto.INT32: torch.int32,
    TensorProto.INT16: torch.int16, TensorProto.INT8: torch.int8, TensorProto.UINT8: torch.uint8,
    TensorProto.BOOL: torch.bool,
}  # fmt: skip


@dataclass
class Call:
    """A node with its inputs as PyTorch has them: tensors on meta, numbers where a constant is one, None where absent.

    `alone`: nothing else reads the input, which a convolution or a batch norm put out and PyTorch's networks overwrite.
    `linear`: the second input is a weight as PyTorch's linear layers store it.
    """

    node: Node
    args: list[Any]
    opset: int
    cast: Callable[[int], torch.dtype]
    alone: bool = False
    linear: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.out[0].shape

    def arg(self, place: int) -> Any:
        return self.args[place] if place < len(self.args) else None

    def get(self, name: str, usual: Any = None) -> Any:
        return self.node.attrs.get(name, usual)

    def known(self, place: int, name: str = "") -> list[Any] | None:
        """Numbers that are an attribute in some opsets and an input in others."""
        if name and (given := self.get(name)) is not None:
            return list(given) if isinstance(given, (list, tuple)) else [given]
        value = self.node.input(place)
        if value is None:
            return None
        if value.data is None:
            raise no_gradient(self.node, "with sizes that the data decide")
        return np.ravel(value.data).tolist()


Rule = Callable[[Call], Any]
