"""The torch.library of ops that represent fused kernels: one library, its ops defined on first use."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

#: Two captures may define an op at the same time, and PyTorch accepts a definition only once.
_DEFINING = threading.RLock()


def defined_once(define: Callable[[Any], Any]) -> Callable[[], Any]:
    """The op that `define` adds to the library, added by the first thread that needs it."""

    @functools.cache
    def defined() -> Any:
        return define(_library())

    @functools.wraps(define)
    def op() -> Any:
        with _DEFINING:
            return defined()

    return op


@functools.cache
def _library() -> Any:
    return torch.library.Library("forerun", "DEF")  # its ops live as long as this object
