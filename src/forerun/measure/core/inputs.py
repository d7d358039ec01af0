"""The inputs of a call, by argument: random numbers of the case's dtype and memory format, or whole numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.networks.base import Input

from .case_fields import CHANNELS_LAST

DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def memory_format(case: dict[str, Any]) -> Any:
    import torch

    return torch.channels_last if case.get("layout") == CHANNELS_LAST else torch.contiguous_format


def made(described: Mapping[str, Input], case: dict[str, Any], device: str) -> dict[str, Any]:
    """A tensor on the device for every input that is described, with the batch of the case in front."""
    import torch

    dtype = getattr(torch, DTYPES[case["dtype"]])
    tensors: dict[str, Any] = {}
    for argument, given in described.items():
        shape = (case["batch"], *given.shape)
        if given.below is None:
            tensors[argument] = torch.randn(shape, dtype=dtype, device=device)
            if len(shape) == 4:
                tensors[argument] = tensors[argument].to(memory_format=memory_format(case))
        else:
            tensors[argument] = torch.randint(0, given.below, shape, device=device)
    return tensors
