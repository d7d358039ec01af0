"""Reads an ONNX file and rejects what no valid exporter writes. Nothing in the file is executed."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.errors import ForerunError
from forerun.frontends.base import first_line

if TYPE_CHECKING:
    import onnx

#: A file whose functions expand to more nodes than this is rejected.
MAX_NODES = 1_000_000
#: Tensors of more elements than this are never shape arithmetic: their values are dropped.
MAX_VALUES = 4096


def read(path: Path) -> onnx.ModelProto:
    """Parses the file without opening any external data."""
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise ForerunError(f"there is no file {path}")
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except (DecodeError, RuntimeError, ValueError, UnicodeDecodeError) as error:
        raise ForerunError(f"{path} is not a complete ONNX file (it may be truncated): {first_line(error)}") from error
    except MemoryError as error:
        raise ForerunError(f"{path} is too large for this machine's memory") from error
    if not proto.opset_import or not proto.HasField("graph"):
        raise ForerunError(f"{path} is not an ONNX model: it has no operator set")
    return proto


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
    """Every tensor with values in a graph and its subgraphs."""
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
    """Rejects what no valid exporter writes: no nodes, or weights outside the model's folder."""
    if not proto.graph.node:
        raise ForerunError("this ONNX file has no nodes: there is nothing to run")
    for tensor in tensors(proto.graph):
        for entry in tensor.external_data:
            location = entry.value.replace("\\", "/")
            if entry.key == "location" and (
                location.startswith(("/", "~")) or ":" in location or posixpath.normpath(location).startswith("..")
            ):
                raise ForerunError(
                    f"tensor '{tensor.name}' of this ONNX file points to '{entry.value}', outside the model's folder"
                )


def drop_values(proto: onnx.ModelProto) -> None:
    """Empties every large tensor; shapes and types stay, which is all that the graph needs."""
    for tensor in tensors(proto.graph):
        if math.prod(tensor.dims) > MAX_VALUES:
            for values in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(values)


def without_values(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in which large weights have only shapes and types; their values are never copied."""
    import onnx

    small = onnx.ModelProto(ir_version=proto.ir_version, producer_name=proto.producer_name)
    small.opset_import.extend(proto.opset_import)
    small.functions.extend(proto.functions)
    graph = small.graph
    graph.name = proto.graph.name
    graph.node.extend(proto.graph.node)
    graph.input.extend(proto.graph.input)
    graph.output.extend(proto.graph.output)
    graph.value_info.extend(proto.graph.value_info)
    graph.sparse_initializer.extend(proto.graph.sparse_initializer)
    for tensor in proto.graph.initializer:
        if math.prod(tensor.dims) <= MAX_VALUES:
            graph.initializer.append(tensor)
        else:
            graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    drop_values(small)
    return small


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Functions of the model replaced by their bodies; large values are dropped, they are not needed."""
    if not proto.functions:
        return proto
    from onnx import inliner

    refuse_explosion(proto)
    try:
        return inliner.inline_local_functions(without_values(proto))
    except Exception as error:
        raise ForerunError(f"the functions in this ONNX file cannot be expanded: {first_line(error)}") from error


def refuse_explosion(proto: onnx.ModelProto) -> None:
    """Rejects functions that call themselves, or expand to too many nodes."""
    bodies = {(f.domain, f.name): [(n.domain, n.op_type) for n in f.node] for f in proto.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(name: tuple[str, str], above: frozenset[tuple[str, str]]) -> int:
        if name not in bodies:
            return 1
        if name in above:
            raise ForerunError(f"function {name[1]} in this ONNX file calls itself")
        if name not in sizes:
            sizes[name] = sum(size(inner, above | {name}) for inner in bodies[name])
        return sizes[name]

    total = sum(size((n.domain, n.op_type), frozenset()) for g in graphs(proto.graph) for n in g.node)
    if total > MAX_NODES:
        raise ForerunError(f"the functions in this ONNX file expand to {total:,} nodes; {MAX_NODES:,} is the limit")
