"""Serving engines: requests, a simulator of an engine's iterations, its steady state, and what a client sees.

`forerun.serving(...)` is the public function, `forerun.serving.simulator` a module: the package is both, and a call of
it is a call of `predicting.serving`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that can be called."""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        from forerun.serving.predicting import serving

        return serving(*args, **settings)


sys.modules[__name__].__class__ = _Callable
