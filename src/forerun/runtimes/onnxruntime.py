"""onnxruntime on a CPU: the exported model as its optimizer fuses it."""

from __future__ import annotations

from dataclasses import replace

from forerun.graph.ir import Graph
from forerun.runtimes.base import Chip, Run, Runtime
from forerun.runtimes.fuse_onnxruntime import fuse_onnxruntime
from forerun.runtimes.notes import INT8_NOTE, PYTORCH_NOTE

ONNXRUNTIME_NOTE = "the network is predicted as onnxruntime runs it on a CPU, after its own fusions"


class OnnxRuntime(Runtime):
    name = "onnxruntime"
    also_called = ("ort",)
    devices = ("cpu",)
    runs_files = True
    #: Small networks ran faster than the bandwidth of copies of 256 MB allows.
    cache_gain = 4.0
    part = "onnxruntime"
    calls_modules = False
    meter = "cpu"

    def problem(self, run: Run) -> str | None:
        if run.mode == "inference" and run.dtype == "fp32" and not (run.amp or run.channels_last):
            return None
        return (
            "runtime onnxruntime is answered for inference in fp32 or in the file's own dtypes, without amp and "
            "channels_last"
        )

    def device_problem(self, chip: Chip) -> str | None:
        if self.runs_on(chip):
            return None
        return f"onnxruntime is measured on CPUs only, so no time is predicted for it on {chip.id}"

    def made_of(self, graph: Graph) -> Graph:
        fused = fuse_onnxruntime(graph)
        notes = [note for note in fused.notes if note not in (PYTORCH_NOTE, INT8_NOTE)]
        return replace(fused, notes=[ONNXRUNTIME_NOTE, *notes])
