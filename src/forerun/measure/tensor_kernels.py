"""Whether a CUDA kernel computes on tensor cores, by its name as the libraries write it."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Instructions and units that only tensor cores have, and kernels that are written for them alone.
_ON = re.compile(
    r"tensorop|wmma|[hiqdb]mma|wgmma|gmma|nvjet|m16n8k\d+|[his]\d*(?:16816|1688|161616|16832|884|64x\d+x\d+)"
    r"|flash_(?:fwd|bwd)|sdpa_sm\d+_flash|fmha_cutlass[FB]_\w+_sm(?:70|75|80|90)",
    re.IGNORECASE,
)
#: cuDNN's and cuBLAS's xmma kernels name the types that they multiply: f32f32_f32f32 is done by plain lanes.
_TYPES = r"((?:b?f16|t?f32|f64|[isu]\d+|e\dm\d){2})"
_XMMA = re.compile(rf"xmma_.*?_{_TYPES}_{_TYPES}_")
_OFF = re.compile(r"simt|ffma|sgemm_|_sgemm|gemv|splitKreduce|reduce", re.IGNORECASE)
_PLAIN = "f32f32"


def on_tensor_cores(name: str) -> bool:
    """Whether a kernel of this name multiplies on tensor cores."""
    found = _XMMA.search(name)
    if found is not None:
        return (found[1], found[2]) != (_PLAIN, _PLAIN)
    return bool(_ON.search(name)) and not _OFF.search(name)


def share(kernels: Iterable[tuple[str, float]]) -> float | None:
    """The share of the time of kernels (name, ms) that is on tensor cores; None of no kernels."""
    pairs = list(kernels)
    total = sum(ms for _, ms in pairs)
    return sum(ms for name, ms in pairs if on_tensor_cores(name)) / total if total else None
