"""The graph of a parsed ONNX model at a workload's batch and shapes: from the proto to the IR."""

from __future__ import annotations

import contextlib
import functools

import onnx

from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.sources import onnx_walk
from forerun.graph.sources.door import first_line
from forerun.graph.sources.onnx_axes import axes_of
from forerun.graph.sources.onnx_batch import check_rebatched, learn_slopes
from forerun.graph.sources.onnx_parameters import count_parameters
from forerun.graph.sources.onnx_read import check, inlined
from forerun.graph.sources.onnx_trace import Trace
from forerun.graph.sources.onnx_values import UnsafeBatchError, printable
from forerun.workload import Workload


def build(proto: onnx.ModelProto, workload: Workload, name: str) -> Graph:
    """The graph of a parsed model; a file that breaks ONNX's own rules is one clear error."""
    try:
        graph = _build(proto, workload, name)
    except ForerunError as error:
        raise ForerunError(printable(str(error))) from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise ForerunError(f"This ONNX file breaks the rules of ONNX: {printable(first_line(error))}.") from error
    graph.notes = [printable(note) for note in graph.notes]
    return graph


def _build(proto: onnx.ModelProto, workload: Workload, name: str) -> Graph:
    """Walk the model at the asked batch, and at two more to learn how every dimension grows with the batch."""
    check(proto)
    proto = inlined(proto)
    axes = axes_of(proto, workload)
    override = {"fp16": "fp16", "bf16": "bf16", "int8": "fp16", "int4": "fp16"}.get(workload.dtype)
    fixed = axes.fixed_batch

    @functools.cache
    def walk(batch: int, guide: Trace | None = None) -> Trace:
        bound = axes.at(batch)
        if fixed is None or batch == fixed:
            return onnx_walk.run(Trace(proto, bound.shapes, override, strict=bound.chosen, guide=guide))
        base = walk(fixed)
        trace = onnx_walk.run(Trace(proto, bound.shapes, override, rebatch=(fixed, batch, base), guide=guide))
        check_rebatched(trace, base, fixed, batch)
        return trace

    guide: Trace | None = None
    with contextlib.suppress(UnsafeBatchError, ForerunError):
        guide = walk(2)
    try:
        trace = walk(workload.batch, guide)
    except UnsafeBatchError as unsafe:
        raise ForerunError(
            f"This file fixes its batch at {fixed} and cannot be moved to {workload.batch} ({unsafe}); "
            f"ask for batch {fixed}, or export it with a dynamic batch axis."
        ) from unsafe
    graph = Graph(
        name=name, ops=trace.ops, tensors=trace.tensors, storages=trace.storages,
        parameters=0, active_parameters=0, batch=workload.batch, min_batch=workload.batch,
        outputs=tuple(trace.outputs), notes=list(trace.notes),
        facts={
            "source": "onnx", "opset": trace.opsets.get("", 0), "producer": proto.producer_name,
            "inputs": {k: list(v) for k, v in trace.shapes.items()},
        },
    )  # fmt: skip
    graph.parameters = graph.active_parameters = count_parameters(trace)
    if fixed is not None and fixed != workload.batch:
        graph.notes.append(f"The file fixes its batch at {fixed}; the same network at batch {workload.batch} is meant.")
    if override is not None:
        graph.notes.append(f"Floating-point tensors are taken as {override}, whatever the file holds.")
    learn_slopes(graph, trace, lambda batch: walk(batch, guide))
    return graph
