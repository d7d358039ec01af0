"""The runtime under which a built model is called."""

from __future__ import annotations

from typing import Any

from forerun.runtimes import registry
from forerun.runtimes.base import Runtime


def runtime_of(case: dict[str, Any]) -> Runtime:
    """The runtime of a case. Raises ValueError if modules cannot be called under it."""
    name = str(case.get("runtime") or registry.USUAL)
    known = {run.name: run for run in registry.runtimes() if run.calls_modules}
    if name not in known:
        raise ValueError(f"unknown runtime {name!r}; choose from {', '.join(known)}")
    return known[name]


def is_usual(case: dict[str, Any]) -> bool:
    return str(case.get("runtime") or registry.USUAL) == registry.USUAL
