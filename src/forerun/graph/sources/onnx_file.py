"""Front door for ONNX files: any opset from 9 on, from any exporter. Nothing in the file is executed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import posixpath
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.errors import ForerunError
from forerun.graph.ir import Graph, Op
from forerun.graph.quantise import quantise

if TYPE_CHECKING:
    import onnx

    from forerun.graph.sources.onnx_axes import Axes
    from forerun.graph.sources.onnx_trace import Trace

#: Bumped when this door would read the same file differently.
DOOR_VERSION = 1
#: A file whose functions expand to more nodes than this is refused.
MAX_NODES = 1_000_000
#: Tensors of more elements than this are never shape arithmetic: their values can go.
MAX_VALUES = 4096


def matches(model: Any) -> bool:
    """A path that ends in .onnx (whether or not it exists), or an onnx.ModelProto."""
    if isinstance(model, (str, Path)):
        return str(model).lower().endswith(".onnx")
    return type(model).__name__ == "ModelProto" and type(model).__module__.startswith("onnx")


def key(model: Any, workload: Any) -> dict[str, Any] | None:
    """What the graph of this file depends on, apart from the workload."""
    if not isinstance(model, (str, Path)) or not Path(model).is_file():
        return None
    return {"door": "onnx", "version": DOOR_VERSION, "onnx": metadata.version("onnx"), "sha256": file_hash(Path(model))}


def file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def load(model: Any, workload: Any) -> Graph:
    """The graph of an ONNX file (or ModelProto) at the workload's batch and shapes."""
    name = Path(model).stem if isinstance(model, (str, Path)) else (model.graph.name or "onnx")
    refuse_mode(workload, "An ONNX file")
    proto = read(Path(model)) if isinstance(model, (str, Path)) else model
    return build(proto, workload, name)


def refuse_mode(workload: Any, what: str) -> None:
    if workload.mode != "inference":
        raise ForerunError(
            f"{what} can be predicted for inference only; for {workload.mode} pass the PyTorch model or a "
            "Hugging Face id instead."
        )


# -- reading and checking ----------------------------------------------------------------------------------------


def read(path: Path) -> onnx.ModelProto:
    """Parse the file without opening any external data."""
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise ForerunError(f"There is no file {path}.")
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except (DecodeError, RuntimeError, ValueError, UnicodeDecodeError) as error:
        raise ForerunError(f"{path} is not a whole ONNX file (it may be truncated): {first_line(error)}.") from error
    except MemoryError as error:
        raise ForerunError(f"{path} is too large for this machine's memory.") from error
    if not proto.opset_import or not proto.HasField("graph"):
        raise ForerunError(f"{path} is not an ONNX model: it names no operator set.")
    return proto


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """This graph and every graph nested in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)
            for inner in attribute.graphs:
                yield from graphs(inner)


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    for inner in graphs(graph):
        yield from inner.initializer
        for sparse in inner.sparse_initializer:
            yield sparse.values
            yield sparse.indices
        for node in inner.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def check(proto: onnx.ModelProto) -> None:
    """Refuse what no honest exporter writes: no nodes, or weights kept outside the model's own folder."""
    if not proto.graph.node:
        raise ForerunError("This ONNX file holds no nodes: there is nothing to run.")
    for tensor in tensors(proto.graph):
        for entry in tensor.external_data:
            location = entry.value.replace("\\", "/")
            if entry.key == "location" and (
                location.startswith(("/", "~")) or ":" in location or posixpath.normpath(location).startswith("..")
            ):
                raise ForerunError(
                    f"Tensor '{tensor.name}' of this ONNX file points to '{entry.value}', outside the model's folder."
                )


def drop_values(proto: onnx.ModelProto) -> None:
    """Empty every large tensor; shapes and types stay, which is all that the graph needs."""
    for tensor in tensors(proto.graph):
        if math.prod(tensor.dims) > MAX_VALUES:
            for values in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(values)


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Functions of the model replaced by their bodies; large values are dropped first, they are not needed."""
    if not proto.functions:
        return proto
    import onnx
    from onnx import inliner

    refuse_explosion(proto)
    light = onnx.ModelProto()
    light.CopyFrom(proto)
    drop_values(light)
    try:
        return inliner.inline_local_functions(light)
    except Exception as error:
        raise ForerunError(f"The functions in this ONNX file cannot be expanded: {first_line(error)}.") from error


def refuse_explosion(proto: onnx.ModelProto) -> None:
    """A function that calls itself, or functions that call each other a billion times, are not expanded."""
    bodies = {(f.domain, f.name): [(n.domain, n.op_type) for n in f.node] for f in proto.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(name: tuple[str, str], above: frozenset[tuple[str, str]]) -> int:
        if name not in bodies:
            return 1
        if name in above:
            raise ForerunError(f"Function {name[1]} in this ONNX file calls itself.")
        if name not in sizes:
            sizes[name] = sum(size(inner, above | {name}) for inner in bodies[name])
        return sizes[name]

    total = sum(size((n.domain, n.op_type), frozenset()) for g in graphs(proto.graph) for n in g.node)
    if total > MAX_NODES:
        raise ForerunError(f"The functions in this ONNX file expand to {total:,} nodes; {MAX_NODES:,} is the limit.")


def axes_of(proto: onnx.ModelProto, workload: Any) -> Axes:
    from onnx import TensorProto

    from forerun.graph.sources.onnx_axes import Axes
    from forerun.graph.sources.onnx_values import dims_of

    weights = {t.name for t in proto.graph.initializer} | {s.values.name for s in proto.graph.sparse_initializer}
    inputs = {}
    for info in proto.graph.input:
        if info.name in weights or info.type.HasField("sequence_type"):
            continue
        dims = dims_of(info.type)
        if dims is None:
            given = workload.input_shape
            if not isinstance(given, dict) or info.name not in given:
                raise ForerunError(
                    f"Input '{info.name}' has no shape in this file; give --input-shape {info.name}=1,3,224,224 "
                    "(with the sizes of your data)."
                )
            dims = ["" for _ in given[info.name]]
        # -1 and 0 are how some exporters write an open axis.
        open_dims: list[int | str] = ["" if isinstance(d, int) and d <= 0 else d for d in dims]
        kind = info.type.tensor_type.elem_type
        inputs[info.name] = (open_dims, kind in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL))
    return Axes(inputs, workload)


# -- building ----------------------------------------------------------------------------------------------------


def build(proto: onnx.ModelProto, workload: Any, name: str) -> Graph:
    """The graph of a parsed model; a file that breaks ONNX's own rules is one clear error."""
    try:
        graph = _build(proto, workload, name)
    except ForerunError as error:
        raise ForerunError(printable(str(error))) from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise ForerunError(f"This ONNX file breaks the rules of ONNX: {printable(first_line(error))}.") from error
    graph.notes = [printable(note) for note in graph.notes]
    return graph


def printable(text: str) -> str:
    """Names come from the file: without what would break the line or steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _build(proto: onnx.ModelProto, workload: Any, name: str) -> Graph:
    """Walk the model at the asked batch, and at two more to learn how every dimension grows with the batch."""
    from forerun.graph.sources import onnx_walk
    from forerun.graph.sources.onnx_trace import Trace
    from forerun.graph.sources.onnx_values import UnsafeBatchError

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
    if workload.dtype in ("int8", "int4"):
        graph = quantise(graph, workload.dtype)
    return graph


def check_rebatched(trace: Trace, base: Trace, old: int, new: int) -> None:
    """After a change of batch the outputs grew in front by the same factor, and nowhere else."""
    from forerun.graph.sources.onnx_values import UnsafeBatchError

    grew = False
    for now, before in zip(trace.outputs, base.outputs, strict=True):
        a, b = trace.tensors[now].shape, base.tensors[before].shape
        if a == b:
            continue
        if len(a) != len(b) or a[0] * old != b[0] * new or a[1:] != b[1:]:
            raise UnsafeBatchError("its outputs do not follow the batch")
        grew = True
    if not grew:
        raise UnsafeBatchError("its outputs do not follow the batch")


def count_parameters(trace: Trace) -> int:
    """Elements of every weight that an op reads, tied weights once."""
    return sum(trace.counted.values()) - tied_elements(trace) + merged_elements(trace)


def tied_elements(trace: Trace) -> int:
    """Elements of weights that are the transposed copy of another one: an output layer tied to the embedding."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    def weights_of(kind: str) -> list[onnx.TensorProto]:
        found = []
        for name, elements in trace.counted.items():
            tensor = trace.protos.get(name)
            inside = tensor is not None and tensor.data_location != TensorProto.EXTERNAL and tensor.raw_data
            if tensor is not None and inside and len(tensor.dims) == 2 and elements >= 1 << 16:
                found += [tensor] * any(trace.ops[i].kind == kind for i in trace.readers[name])
        return found

    tied = 0
    tables = weights_of("embedding")
    for weight in weights_of("matmul") if tables else []:
        for table in tables:
            if list(table.dims) == list(reversed(weight.dims)):
                a, b = numpy_helper.to_array(table), numpy_helper.to_array(weight)
                tied += a.size if np.array_equal(a[:64], b.T[:64]) and np.array_equal(a, b.T) else 0
    return tied


def merged_elements(trace: Trace) -> int:
    """Elements of vectors that torch.onnx stored once because they are equal (the zero biases of a fresh model).

    A vector that several ops read, in a file where no matrix is shared, was several parameters before the export.
    """
    if not trace.from_torch:
        return 0
    merged = 0
    for name, elements in trace.counted.items():
        tensor, readers = trace.protos.get(name), len(trace.readers.get(name, ()))
        if tensor is None or readers < 2:
            continue
        if len(tensor.dims) > 1:
            if sum(trace.ops[i].kind in ("matmul", "conv") for i in trace.readers[name]) > 1:
                return 0  # layers that share their weights (ALBERT) share their vectors too
            continue
        if trace.is_uniform(tensor) is not False:
            merged += elements * (readers - 1)
    return merged


def same_structure(a: Trace, b: Trace) -> bool:
    def plain(op: Op) -> tuple[Any, ...]:
        return op.kind, op.name, op.inputs, op.outputs, op.attrs

    return (
        len(a.ops) == len(b.ops) and len(a.tensors) == len(b.tensors)
        and all(plain(x) == plain(y) for x, y in zip(a.ops, b.ops, strict=True))
        and all(x.storage == y.storage and len(x.shape) == len(y.shape)
                for x, y in zip(a.tensors, b.tensors, strict=True))
    )  # fmt: skip


def learn_slopes(graph: Graph, trace: Trace, walk: Callable[[int], Trace]) -> None:
    """Fill `per_sample` from the walk at two batch sizes, and check it at the asked one."""
    from forerun.graph.sources.onnx_values import UnsafeBatchError

    for low in dict.fromkeys((1, 2, graph.batch)):
        try:
            first = trace if low == graph.batch else walk(low)
            second = trace if low + 1 == graph.batch else walk(low + 1)
        except (UnsafeBatchError, ForerunError):
            continue
        if not (same_structure(first, trace) and same_structure(second, trace)):
            continue
        step = graph.batch - low
        slopes = [
            tuple(y - x for x, y in zip(a.shape, b.shape, strict=True))
            for a, b in zip(first.tensors, second.tensors, strict=True)
        ]
        straight = all(
            tuple(d + s * step for d, s in zip(a.shape, slope, strict=True)) == t.shape
            for a, slope, t in zip(first.tensors, slopes, trace.tensors, strict=True)
        )
        grown = [b.bytes - a.bytes for a, b in zip(first.storages, second.storages, strict=True)]
        straight = straight and all(
            a.bytes + g * step == s.bytes for a, g, s in zip(first.storages, grown, trace.storages, strict=True)
        )
        if not straight:
            continue
        for tensor, slope in zip(graph.tensors, slopes, strict=True):
            tensor.per_sample = slope if any(slope) else None
        for storage, bytes_more in zip(graph.storages, grown, strict=True):
            storage.per_sample = bytes_more
        graph.scalable, graph.min_batch = True, low
        return
