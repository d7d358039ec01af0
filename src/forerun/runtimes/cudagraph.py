"""CUDA graphs: the launches of an eager call, recorded once and replayed at once."""

from __future__ import annotations

from forerun.runtimes.base import Change, Chip, LaunchCosts, Runtime

#: Kinds of device that have them.
HAVE_GRAPHS = ("gpu", "soc")
#: What replaying a graph of any size costs the host, and the share of a small kernel's time that is left.
REPLAYED = LaunchCosts(host_share=0.0, call_us=20.0, floor_share=0.6)


class CudaGraph(Runtime):
    name = "cudagraph"
    devices = HAVE_GRAPHS
    change = Change("CUDA graph", "torch.cuda.make_graphed_callables(model, (x,))", "shapes are fixed")
    launch = REPLAYED
    replays = True
    waits_us = (20.0, 0.3)
    costs_name = "replay_us"
    column_of_eager = "graph_ms"
    calls_modules = False

    def device_problem(self, chip: Chip) -> str | None:
        return None if self.runs_on(chip) else f"{without_graphs(chip)}: leave runtime at eager"

    def change_problem(self, chip: Chip) -> str | None:
        return None if self.runs_on(chip) else without_graphs(chip)

    def calibration_group(self, mode: str, target: str) -> str:
        """Its latency has errors of its own; the rest is that of the eager call."""
        return self.name if target == "latency_ms" else mode

    def why_not_measured(self, mode: str) -> str | None:
        return f"runtime {self.name} needs no measuring of its own: every eager row has it as {self.column_of_eager}"


def without_graphs(chip: Chip) -> str:
    return f"{chip.id} is a {chip.kind}, which has no CUDA graphs"
