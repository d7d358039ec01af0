"""The graphs of a parsed ONNX model at a workload's batch and shapes: from the proto to the IR."""

from __future__ import annotations

import functools
from typing import Any

import onnx

from forerun.errors import ForerunError
from forerun.frontends.base import first_line
from forerun.frontends.onnx import walk as onnx_walk
from forerun.frontends.onnx.axes import Axes, Layout, axes_of
from forerun.frontends.onnx.batch import PROBES, Slopes, check_rebatched, scalable_from
from forerun.frontends.onnx.eager import host_calls
from forerun.frontends.onnx.parameters import count_parameters
from forerun.frontends.onnx.read import check, inlined
from forerun.frontends.onnx.read_as import runs_eagerly
from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import UnsafeBatchError, printable
from forerun.graph.ir import Graph
from forerun.runtimes.notes import PYTORCH_NOTE
from forerun.workload import Workload

_EXPORTERS = ("pytorch", "tf2onnx", "keras")
_EXPORTED_NOTE = (
    "the exporter may have folded batch norms into convolutions and dropped no-op layers: the original model "
    "takes more host time than this file"
)


def build(proto: onnx.ModelProto, workload: Workload, name: str) -> list[Graph]:
    """The graphs of a parsed model; a file that breaks ONNX's own rules is one clear error."""
    try:
        graphs = _build(proto, workload, name)
    except ForerunError as error:
        raise ForerunError(printable(str(error))) from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise ForerunError(f"this file is not valid ONNX: {printable(first_line(error))}") from error
    for graph in graphs:
        graph.notes = [printable(note) for note in graph.notes]
    return graphs


def _build(proto: onnx.ModelProto, workload: Workload, name: str) -> list[Graph]:
    check(proto)
    proto = inlined(proto)
    axes = axes_of(proto, workload)
    override = {"fp16": "fp16", "bf16": "bf16", "int8": "fp16", "int4": "fp16"}.get(workload.dtype)
    eager = runs_eagerly(workload) and not any("Quantize" in node.op_type for node in proto.graph.node)
    walks = [_Walks(proto, axes, layout, override, eager) for layout in axes.layouts()]
    # The affine part is what the file means, whichever batch is requested.
    likeliest = next((each for each in walks if each.growth is not None), None)
    refused: ForerunError | None = None
    for each in sorted(walks, key=lambda each: each is not likeliest):
        try:
            if workload.mode == "training":
                from forerun.frontends.onnx.training import trained  # only now: it imports PyTorch

                return trained(each, workload, name)
            return each.graphs(workload.batch, name)
        except UnsafeBatchError as unsafe:
            refused = refused or _cannot_move(each.layout, workload.batch, unsafe)
    raise refused or ForerunError("this ONNX file has no input shapes")


def _cannot_move(layout: Layout, batch: int, unsafe: UnsafeBatchError) -> ForerunError:
    return ForerunError(
        f"this file fixes its batch at {layout.fixed} and cannot be moved to {batch} ({unsafe}); "
        f"ask for batch {layout.fixed}, or export it with a dynamic batch axis"
    )


class _Walks:
    """Walks through one model at several batch sizes.

    The scaling of its dimensions is derived at the same few batch sizes whatever batch is requested, so that a result
    depends on the request alone and not on the cache.
    """

    def __init__(
        self, proto: onnx.ModelProto, axes: Axes, layout: Layout, override: str | None, eager: bool
    ) -> None:  # fmt: skip
        self.proto, self.axes, self.layout, self.override, self.eager = proto, axes, layout, override, eager

    @functools.cached_property
    def guide(self) -> Trace | None:
        """The walk at batch 2, which decides for all others which nodes launch nothing."""
        return self.tried(2, None)

    def tried(self, batch: int, guide: Trace | None) -> Trace | None:
        try:
            return self.at(batch, guide)
        except (UnsafeBatchError, ForerunError):
            return None

    @functools.cache  # noqa: B019 - lives as long as the build of one graph
    def at(self, batch: int, guide: Trace | None, taped: bool = False) -> Trace:
        bound, fixed = self.axes.at(batch, self.layout), self.layout.fixed
        if fixed is None or batch == fixed:
            return self.walked(bound.shapes, taped, strict=bound.chosen, guide=guide)
        base = self.at(fixed, None)
        trace = self.walked(bound.shapes, taped, rebatch=(fixed, batch, base), guide=guide)
        check_rebatched(trace, base, fixed, batch)
        return trace

    def walked(self, shapes: dict[str, tuple[int, ...]], taped: bool, **how: Any) -> Trace:
        how["tape"] = [] if taped else None
        return onnx_walk.run(Trace(self.proto, shapes, self.override, eager=self.eager, **how))

    @functools.cached_property
    def follows_batch(self) -> bool:
        """Whether any input's shape changes with the batch."""
        return self.axes.at(1, self.layout).shapes != self.axes.at(2, self.layout).shapes

    @functools.cached_property
    def probed(self) -> dict[int, Trace | None]:
        """The walks at PROBES, None where the model fails at that batch."""
        return {batch: self.tried(batch, self.guide) for batch in PROBES}

    @functools.cached_property
    def growth(self) -> tuple[int, Slopes] | None:
        """The batch from which all sizes are affine, and the slopes."""
        return scalable_from(self.probed) if self.follows_batch else None

    def graphs(self, batch: int, name: str) -> list[Graph]:
        """The graph at this batch, and the one that serves all others if there is one."""
        self.check_batch(batch)
        graphs = []
        if self.growth is not None:
            low, slopes = self.growth
            trace = self.probed[low]
            assert trace is not None
            graph = self.graph(trace, low, name)
            slopes.fill(graph)
            graphs.append(graph.at(batch) if graph.serves(batch) else graph)
        if not any(graph.serves(batch) for graph in graphs):
            graphs.insert(0, self.graph(self.at_asked(batch), batch, name))
        return graphs

    def check_batch(self, batch: int) -> None:
        if batch != 1 and not self.follows_batch:
            raise ForerunError(f"no input of this file has a batch axis: ask for batch 1, not {batch}")

    def at_asked(self, batch: int, taped: bool = False) -> Trace:
        """The walk at a batch that no other walk covers."""
        try:
            return self.at(batch, self.guide if self.follows_batch else None, taped)
        except ForerunError as error:
            if batch == 1 or self.probed[1] is None:
                raise
            raise ForerunError(
                f"this file runs at batch 1 and not at batch {batch}, though its batch axis is open ({error}); "
                "ask for batch 1, or export it again"
            ) from error

    def graph(self, trace: Trace, batch: int, name: str) -> Graph:
        graph = Graph(
            name=name, ops=trace.ops, tensors=trace.tensors, storages=trace.storages,
            parameters=0, active_parameters=0, batch=batch, min_batch=batch,
            outputs=tuple(trace.outputs), notes=[PYTORCH_NOTE, *trace.notes],
        )  # fmt: skip
        return self.described(graph, trace)

    def described(self, graph: Graph, trace: Trace) -> Graph:
        """The graph with what is known of the file."""
        graph.facts |= {"source": "onnx", "opset": trace.opsets.get("", 0), "producer": self.proto.producer_name}
        if self.eager:
            graph.facts["host_calls"] = host_calls(trace)
            if self.proto.producer_name in _EXPORTERS:
                graph.notes.append(_EXPORTED_NOTE)
        graph.parameters = graph.active_parameters = count_parameters(trace)
        if (fixed := self.layout.fixed) is not None and self.layout.axes:
            graph.notes.append(f"the file fixes its batch at {fixed}; other batches assume the same network")
        if self.override is not None:
            graph.notes.append(f"floating-point tensors are taken as {self.override}, whatever the file has")
        return graph
