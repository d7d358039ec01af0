"""The share of a call's device time in kernels that multiply or normalise, as far as a profiler's names show it.

A row of a model is one number; with these shares it is two, so that too long a time of one class of op cannot
compensate for too short a time of another. The names of some kernels are ambiguous (parts of norms, convolutions by
Fourier transforms, resizing), so a share is a range.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.graph.profile import CLASSES
from forerun.runtimes.registry import is_usual

if TYPE_CHECKING:
    import pandas as pd

#: Classes of op, and of kernels by name (measure/core/kernels.py), that multiply or normalise; kernels without a class
#: may belong to either side.
HEAVY_OPS = np.array([any(word in c for word in ("matmul", "conv", "attention", "rnn", "norm")) for c in CLASSES])
_HEAVY_KERNELS, _UNCLEAR = ("conv", "gemm", "attention", "norm"), ("other",)
#: In training also sums: gradients of a convolution's bias are part of its backward pass.
_UNCLEAR_IN_TRAINING = (*_UNCLEAR, "reduce")
#: Kernels whose names lead to the wrong side: images are unfolded by convolutions and by themselves, lengths of vectors
#: are no norms of a layer, cells of recurrent layers are not elementwise ops.
_MISNAMED = ("im2col", "NormTwoOps", "_elementWise_")


def heavy_share(rows: pd.DataFrame) -> np.ndarray:
    """[rows, 2]: the least and the largest share; NaN where no kernels were recorded, or generated code ran."""
    out = np.full((len(rows), 2), np.nan)
    if not {"extra", "runtime", "mode"} <= set(rows):
        return out
    eager = is_usual(rows).to_numpy()
    for place in np.flatnonzero(eager & rows["extra"].notna().to_numpy()):
        training = rows["mode"].iloc[place] == "training"
        out[place] = _share(json.loads(rows["extra"].iloc[place]), _UNCLEAR_IN_TRAINING if training else _UNCLEAR)
    return out


def _share(extra: dict[str, Any], unclear: tuple[str, ...]) -> tuple[float, float]:
    ms = {name: time for name, (time, _) in (extra.get("kernel_classes") or {}).items()}
    total = sum(ms.values())
    if not total or any(word in name for name, *_ in extra.get("top_kernels") or () for word in _MISNAMED):
        return np.nan, np.nan
    least = sum(ms.get(name, 0.0) for name in _HEAVY_KERNELS) / total
    return least, min(least + sum(ms.get(name, 0.0) for name in unclear) / total, 1.0)
