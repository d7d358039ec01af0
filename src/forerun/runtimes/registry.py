"""The runtimes by name: those of forerun, those that installed packages bring, and those registered in this process.

A package adds one without touching forerun, by an entry point of its own:

    [project.entry-points."forerun.runtimes"]
    acme = "my_package.runtime:Acme"
"""

from __future__ import annotations

import functools
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from forerun._util.installed import entry_points
from forerun.errors import ForerunError, did_you_mean
from forerun.graph.ir import Graph
from forerun.runtimes.base import Run, Runtime

if TYPE_CHECKING:
    import numpy as np

GROUP = "forerun.runtimes"
#: Built-in runtimes, known without installed metadata. The first is the default.
BUILT_IN = {
    "eager": "forerun.runtimes.eager:Eager",
    "cudagraph": "forerun.runtimes.cudagraph:CudaGraph",
    "compile": "forerun.runtimes.compile:Compile",
    "compile-reduce-overhead": "forerun.runtimes.compile:CompileReduceOverhead",
    "onnxruntime": "forerun.runtimes.onnxruntime:OnnxRuntime",
    "vllm": "forerun.runtimes.vllm:Vllm",
    "sglang": "forerun.runtimes.sglang:Sglang",
    "tensorrt-llm": "forerun.runtimes.tensorrt_llm:TensorRtLlm",
    "tensorrt": "forerun.runtimes.tensorrt:TensorRT",
}
USUAL = next(iter(BUILT_IN))
_registered: dict[str, Runtime] = {}
#: Facts of a graph as a runtime runs it: which one, and the hash of the graph as it was captured.
_RUN_BY, _CAPTURED = "runtime", "captured_hash"


def runtime(name: Any) -> Runtime:
    """A runtime by its name. Raises a ForerunError if there is none."""
    match = _find(name)
    if match is None:
        hint = next((f" Did you mean {r.name}?" for r in runtimes() if str(name).lower() in r.also_called), None)
        hint = hint or did_you_mean(str(name), names()) or f" Choose from {', '.join(names())}."
        raise ForerunError(f"runtime {name!r} is not known.{hint}")
    return match


def runtimes() -> list[Runtime]:
    """Every runtime; those that nobody measured come last."""
    known = [_built_in(name) for name in BUILT_IN] + list({**_of_packages(), **_registered}.values())
    return sorted(known, key=lambda one: not one.measured)


def names(*, measured: bool | None = None) -> tuple[str, ...]:
    """Their names; with `measured`, of those that were, or were not."""
    return tuple(one.name for one in runtimes() if measured in (None, one.measured))


def register(added: Runtime) -> Runtime:
    """Adds a runtime for this process."""
    if not isinstance(added, Runtime):
        raise ForerunError(f"a {type(added).__name__} is not a Runtime (forerun.runtimes.base)")
    known = _find(added.name)
    if known is not None and type(known) is not type(added):
        raise ForerunError(f"there is a runtime called {added.name} already")
    _registered[added.name] = added
    return added


def of_row(name: Any) -> Runtime:
    """The runtime of a measured row: the default if it names none, or one that is not known."""
    return (_find(name) if isinstance(name, str) else None) or _built_in(USUAL)


def names_of(rows: Any) -> Any:
    """The runtime of every row of a table: the default if it names none."""
    return rows["runtime"].fillna(USUAL) if "runtime" in rows else rows.index.to_series().map(lambda _: USUAL)


def is_usual(rows: Any) -> Any:
    """Which rows of a table ran under the default runtime."""
    return names_of(rows) == USUAL


def replays(name: str | np.ndarray) -> np.ndarray:
    """Whether all kernels of a call are launched at once, under one runtime or each of many."""
    import numpy as np

    names, place = np.unique(np.asarray(name, dtype=str), return_inverse=True)
    return np.array([of_row(str(one)).replays for one in names])[place].reshape(np.shape(name))


def as_run(graph: Graph, name: str) -> Graph:
    """The graph as a runtime runs it."""
    selected = runtime(name)
    made = selected.made_of(graph)
    if made is graph and not selected.keeps_mb:
        return graph
    return replace(made, facts={**made.facts, _RUN_BY: name, _CAPTURED: graph.work_hash()})


def ran_by(graph: Graph) -> Runtime:
    """The runtime that `as_run` made the graph for; the default for a graph as captured."""
    return runtime(graph.facts.get(_RUN_BY, USUAL))


def filed_under(graph: Graph, run: Run) -> str:
    """The hash under which measurements of a workload are stored: that of its graph as captured, before fusions."""
    captured = str(graph.facts.get(_CAPTURED) or graph.work_hash())
    return f"{captured}/channels-last" if run.channels_last else captured


def _find(name: Any) -> Runtime | None:
    if not isinstance(name, str):
        return None
    return _built_in(name) if name in BUILT_IN else _registered.get(name) or _of_packages().get(name)


@functools.cache
def _built_in(name: str) -> Runtime:
    module, _, attribute = BUILT_IN[name].partition(":")
    instance: Runtime = getattr(import_module(module), attribute)()
    return instance


@functools.cache
def _of_packages() -> dict[str, Runtime]:
    """The runtimes that installed packages bring; two of one name are an error."""
    installed: dict[str, Runtime] = {}
    values = dict(BUILT_IN)
    for point in entry_points(group=GROUP):
        if values.setdefault(point.name, point.value) != point.value:
            raise ForerunError(f"two runtimes are called {point.name}: {values[point.name]}, {point.value}")
        if point.name in BUILT_IN:
            continue
        try:
            made = point.load()()
        except Exception as error:
            raise ForerunError(f"the runtime {point.name} ({point.value}) cannot be loaded: {error}") from error
        if not isinstance(made, Runtime) or made.name != point.name:
            raise ForerunError(f"the runtime {point.name} ({point.value}) is no Runtime of this name")
        installed[point.name] = made
    return installed
