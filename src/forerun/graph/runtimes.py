"""A graph as each runtime runs it."""

from __future__ import annotations

from forerun.graph.fuse import fuse
from forerun.graph.fuse_onnxruntime import fuse_onnxruntime
from forerun.graph.ir import Graph

_FUSERS = {"compile": fuse, "onnxruntime": fuse_onnxruntime}


def as_run(graph: Graph, runtime: str) -> Graph:
    """The graph after the runtime's fusions; eager and cudagraph launch it as it was captured."""
    return _FUSERS[runtime](graph) if runtime in _FUSERS else graph
