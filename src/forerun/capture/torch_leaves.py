"""Lets function modes see the leaf calls inside torch.nn.functional's Python functions, not the functions.

`F.multi_head_attention_forward` and the like dispatch themselves to an active mode and then run their inner calls
hidden from it; autocast acts on the inner calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.nn.functional as F  # noqa: N812 - the name every PyTorch user knows

from forerun.capture.thread_patches import ThreadPatch


def _no(_found: Any, *_: Any) -> bool:
    return False


_ASKED = tuple(
    ThreadPatch(F, name, _no)
    for name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
)


@contextlib.contextmanager
def leaf_functions() -> Iterator[None]:
    """In this thread, inside the block."""
    with contextlib.ExitStack() as stack:
        for patch in _ASKED:
            stack.enter_context(patch)
        yield
