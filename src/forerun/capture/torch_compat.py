"""Imports torch, timm and transformers on machines where torchvision was built for another torch.

A torchvision wheel beside a CPU build of torch installs but fails on import ("operator torchvision::nms does not
exist") and takes timm and transformers with it. The ops it misses are compiled ones that no capture needs; declaring
their names is enough. Where torchvision works, nothing is done.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path
from typing import Any

_COMPILED_OPS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_declared: list[Any] = []  # torch.library handles unregister their ops when garbage-collected


@functools.cache
def prepare() -> None:
    """Makes `import torchvision` safe; call before importing timm, torchvision or transformers."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    import torch

    for compiled in Path(spec.origin).parent.glob("_C*"):
        try:
            torch.ops.load_library(compiled)
            return
        except OSError:
            continue
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _COMPILED_OPS:
        library.define(schema)
    _declared.append(library)
