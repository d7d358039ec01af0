"""Building a model on meta tensors, which have shapes and no values: initialisation is skipped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

#: Calls that only change the values of a tensor in place.
_FILLS = frozenset(
    "uniform_ normal_ trunc_normal_ constant_ ones_ zeros_ zero_ fill_ eye_ dirac_ orthogonal_ sparse_ xavier_uniform_ "
    "xavier_normal_ kaiming_uniform_ kaiming_normal_ bernoulli_ exponential_ log_normal_ random_ copy_ add_ sub_ mul_ "
    "div_ pow_ clamp_ clamp_min_ clamp_max_ erfinv_ log_ exp_ sqrt_ neg_ abs_ triu_ tril_".split()
)


@contextlib.contextmanager
def on_meta() -> Iterator[None]:
    """New tensors are meta tensors, and initialisation is skipped: initialising weights is half of building."""
    with torch.device("meta"), _WithoutFilling():
        yield


class _WithoutFilling(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _FILLS:
            filled = args[0] if args else (kwargs or {}).get("tensor")  # by name from the functions of torch.nn.init
            if isinstance(filled, torch.Tensor) and filled.is_meta:
                return filled
        return func(*args, **(kwargs or {}))
