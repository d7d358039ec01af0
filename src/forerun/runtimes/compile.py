"""torch.compile: Inductor's kernels between calls of libraries; with reduce-overhead, replayed as one CUDA graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from forerun.graph.ir import Graph
from forerun.runtimes.base import Change, Chip, LaunchCosts, Runtime
from forerun.runtimes.cudagraph import HAVE_GRAPHS, REPLAYED, without_graphs
from forerun.runtimes.fuse_inductor import fuse_inductor


class Compile(Runtime):
    """Generated code launches with half of eager's work, after checking its guards."""

    name = "compile"
    change = Change(
        "torch.compile", "model = torch.compile(model)", "the first call compiles; new shapes compile again"
    )
    dequantises_in_kernels = True
    launch = LaunchCosts(host_share=0.5, call_us=100.0)
    host_us: ClassVar[tuple[float, ...] | None] = (100.0, 18.0, 3000.0, 35.0)
    costs_name = "compiled_us"
    calibration = "compile"
    measured_modes = ("inference", "training", "prefill")
    #: torch.compile's own `mode`.
    compile_mode: ClassVar[str | None] = None

    def made_of(self, graph: Graph) -> Graph:
        return fuse_inductor(graph)

    def called(self, module: Any) -> Any:
        """The module compiled by its first call, for one shape."""
        import torch

        torch.compiler.reset()  # a model compiled for many shapes in turn would run into the limit of recompilations
        return torch.compile(module, dynamic=False, mode=self.compile_mode)

    def first_call(self, call: Callable[[], Any], sync: Callable[[], None]) -> dict[str, Any]:
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
        counts = counters["inductor"]
        return {
            "compile_s": took[0] - took[1],
            "compiled_from_cache": counts["fxgraph_cache_hit"] > 0 and counts["fxgraph_cache_miss"] == 0,
            "graph_breaks": sum(counters["graph_break"].values()),
        }


class CompileReduceOverhead(Compile):
    """The same code, replayed; the compiler's graphs keep the device waiting longer than plain ones do."""

    name = "compile-reduce-overhead"
    change = Change(
        "torch.compile with CUDA graphs", 'model = torch.compile(model, mode="reduce-overhead")',
        "the first calls compile; shapes are fixed; inputs are copied", steps=2,
    )  # fmt: skip
    launch = REPLAYED
    replays = True
    pools = True
    waits_us = (130.0, 0.9, 1000.0)
    waits_for_host = True
    host_us = None
    costs_name = "compiled_replay_us"
    calibration = "compile-reduce-overhead"
    compile_mode = "reduce-overhead"

    def change_problem(self, chip: Chip) -> str | None:
        return None if chip.kind in HAVE_GRAPHS else without_graphs(chip)
