"""What of a question decides how an ONNX file is read."""

from __future__ import annotations

from typing import Any

from forerun.runtimes.registry import runtime
from forerun.workload import Workload


def read_as(workload: Workload) -> dict[str, Any]:
    """What decides the graph of a file beside its content and the settings of every graph."""
    return {"batch_in_shape": _batch_in_shape(workload), "eager": runs_eagerly(workload)}


def runs_eagerly(workload: Workload) -> bool:
    """Whether PyTorch runs the network; onnxruntime runs the file as it is written."""
    return not runtime(workload.runtime).runs_files


def _batch_in_shape(workload: Workload) -> list[tuple[str, int]]:
    """Where the given shapes hold the batch itself: only there a shape means different things at different batches."""
    given, batch = workload.input_shape, workload.batch
    shapes = given if isinstance(given, dict) else {"": given or ()}
    return [(name, axis) for name, shape in shapes.items() for axis, size in enumerate(shape) if size == batch != 1]
