"""A graph as each runtime runs it, and what its measurements are filed under."""

from __future__ import annotations

from dataclasses import replace

from forerun.graph.fuse_inductor import fuse_inductor
from forerun.graph.fuse_onnxruntime import fuse_onnxruntime
from forerun.graph.ir import Graph
from forerun.workload import Workload

#: Notes of graphs that come from ONNX files; they are not true of onnxruntime, which was measured.
PYTORCH_NOTE = "the network is predicted as eager PyTorch would run it, not as onnxruntime or TensorRT would"
INT8_NOTE = (
    "8-bit convolutions and products are taken as one int8 kernel each, their quantize and dequantize steps inside, at "
    "the device's int8 rate; no such kernel was measured"
)
ONNXRUNTIME_NOTE = "the network is predicted as onnxruntime runs it on a CPU, after its own fusions"
_CAPTURED = "captured_hash"
_FUSERS = {"compile": fuse_inductor, "compile-reduce-overhead": fuse_inductor, "onnxruntime": fuse_onnxruntime}


def as_run(graph: Graph, runtime: str) -> Graph:
    """The graph after the runtime's fusions; eager and cudagraph launch it as it was captured."""
    if runtime not in _FUSERS:
        return graph
    fused = _FUSERS[runtime](graph)
    notes = fused.notes
    if runtime == "onnxruntime":
        notes = [ONNXRUNTIME_NOTE, *(note for note in notes if note not in (PYTORCH_NOTE, INT8_NOTE))]
    return replace(fused, notes=notes, facts={**fused.facts, "runtime": runtime, _CAPTURED: graph.work_hash()})


def filed_under(graph: Graph, workload: Workload) -> str:
    """What measurements of a workload are filed under: the hash of its graph as captured, whatever a runtime fuses."""
    captured = str(graph.facts.get(_CAPTURED) or graph.work_hash())
    return f"{captured}/channels-last" if workload.channels_last else captured
