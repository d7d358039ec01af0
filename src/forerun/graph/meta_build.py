"""Building a model on meta tensors, which have shapes and no values: what would fill them is passed over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

#: Calls that change the values of a tensor in place and nothing else about it.
_FILLS = frozenset(
    "uniform_ normal_ trunc_normal_ constant_ ones_ zeros_ zero_ fill_ eye_ dirac_ orthogonal_ sparse_ xavier_uniform_ "
    "xavier_normal_ kaiming_uniform_ kaiming_normal_ bernoulli_ exponential_ log_normal_ random_ copy_ add_ sub_ mul_ "
    "div_ pow_ clamp_ clamp_min_ clamp_max_ erfinv_ log_ exp_ sqrt_ neg_ abs_ triu_ tril_".split()
)


@contextlib.contextmanager
def on_meta() -> Iterator[None]:
    """New tensors are meta tensors, and filling them takes no time: initialising weights is half of building."""
    with torch.device("meta"), _WithoutFilling():
        yield


class _WithoutFilling(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _FILLS and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))
