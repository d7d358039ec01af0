"""forerun-data, the second distribution of this repository: data for training and evaluation only, and the weights of
published predictors."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from pathlib import Path

MODULE = "forerun_data"
#: In a checkout it is beside this package, whether it is installed or not.
_BESIDE = Path(__file__).parents[3] / "packages" / "forerun-data" / "src" / MODULE


@functools.cache
def companion() -> Path | None:
    """The folder of its files: `predictors` and `store`; None where it is not installed."""
    if _BESIDE.is_dir():
        return _BESIDE
    spec = find_spec(MODULE)
    return Path(spec.origin).parent if spec and spec.origin else None
