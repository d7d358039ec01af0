"""How a built model is called: as it is, or compiled by torch.compile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

EAGER = "eager"
#: torch.compile's `mode` by the name of a runtime.
COMPILE_MODES: dict[str, str | None] = {"compile": None, "compile-reduce-overhead": "reduce-overhead"}


def runtime_of(case: dict[str, Any]) -> str:
    return str(case.get("runtime") or EAGER)


def as_called(model: Any, case: dict[str, Any]) -> Any:
    """The model as the case's runtime calls it. A compiled one is compiled by its first call, for one shape."""
    runtime = runtime_of(case)
    if runtime == EAGER:
        return model
    if runtime not in COMPILE_MODES:
        raise ValueError(f"unknown runtime {runtime!r}; choose from {', '.join((EAGER, *COMPILE_MODES))}")
    import torch

    torch.compiler.reset()  # a model compiled for many shapes in turn would run into the limit of recompilations
    return torch.compile(model, dynamic=False, mode=COMPILE_MODES[runtime])


def compile_facts(call: Callable[[], Any], sync: Callable[[], None]) -> dict[str, Any]:
    """Runs the call that compiles, and another one: `compile_s` is the difference of the two.

    `compiled_from_cache`: Inductor found all its code on disk, so that `compile_s` is what a second process waits.
    """
    from torch._dynamo.utils import counters

    counters.clear()
    took = []
    for _ in range(2):
        begin = time.perf_counter()
        call()
        sync()
        took.append(time.perf_counter() - begin)
    found = counters["inductor"]
    return {
        "compile_s": took[0] - took[1],
        "compiled_from_cache": found["fxgraph_cache_hit"] > 0 and found["fxgraph_cache_miss"] == 0,
        "graph_breaks": sum(counters["graph_break"].values()),
    }
