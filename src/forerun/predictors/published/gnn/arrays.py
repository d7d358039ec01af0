"""A graph as arrays over its ops, from which the features of every graph network here are made."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from forerun.errors import ForerunError
from forerun.graph.ir import DTYPE_BYTES, Graph, Op
from forerun.graph.profile import Profile

DIMENSIONS = 6  # of a shape; longer ones are cut, shorter ones filled with zeros
#: Attributes of an op beside its kind and shapes.
ATTRIBUTES = ("kernel", "stride", "groups", "dilation", "bits", "repeat")


@dataclass(frozen=True)
class GraphArrays:
    """Columns over the ops of a graph at one batch size. Sizes are plain numbers; features take their logarithms."""

    names: np.ndarray  # [ops] what the framework calls the op
    classes: np.ndarray  # [ops] index into profile.CLASSES
    attributes: np.ndarray  # [ops, ATTRIBUTES]
    inputs: np.ndarray  # [ops, DIMENSIONS] shape of the first input
    outputs: np.ndarray  # [ops, DIMENSIONS] shape of the first output
    macs: np.ndarray  # [ops] of one launch, as the two below
    parameters: np.ndarray  # [ops] elements of the weights it reads
    bytes: np.ndarray  # [ops]
    repeat: np.ndarray  # [ops] how often the op runs, where equal blocks are folded into one
    edges: np.ndarray  # [2, edges] producer and consumer
    static: np.ndarray  # [STATIC] numbers of the whole call
    hardware: np.ndarray | None = None  # numbers of the device (whole_model/devices.py); None where none are seen


#: Fields that are of a whole call, not of its ops.
_OF_CALLS = ("static", "hardware")
#: The numbers of a whole call that `GraphArrays.static` holds.
STATIC = ("macs", "batch", "convolutions", "linears", "relus", "nodes", "edges", "parameters", "bytes")


def arrays(columns: Profile, static: Sequence[float], place: int = 0) -> GraphArrays:
    """The arrays of a profile's graph at one of its batch sizes; `static` are the numbers of STATIC."""
    graph = columns.graph.at(int(columns.batches[place]))
    ops = graph.ops
    edges = np.array(graph.edges(), dtype=np.int64).reshape(-1, 2).T
    return GraphArrays(
        names=np.array([op.name for op in ops], dtype=str),
        classes=columns.classes.astype(np.int16),
        attributes=np.array([_attributes(op, graph) for op in ops], dtype=np.float32).reshape(len(ops), -1),
        inputs=np.array([_shape(op.inputs, graph) for op in ops], dtype=np.float32).reshape(len(ops), -1),
        outputs=np.array([_shape(op.outputs, graph) for op in ops], dtype=np.float32).reshape(len(ops), -1),
        macs=columns.macs[:, place].astype(np.float32),
        parameters=np.array([_weights(op, graph) for op in ops], dtype=np.float32),
        bytes=columns.bytes[:, place].astype(np.float32),
        repeat=columns.repeat.astype(np.float32), edges=edges, static=np.asarray(static, dtype=np.float32),
    )  # fmt: skip


def _shape(tensors: Sequence[int], graph: Graph) -> list[float]:
    shape = graph.tensors[tensors[0]].shape[:DIMENSIONS] if tensors else ()
    return [*map(float, shape), *[0.0] * (DIMENSIONS - len(shape))]


def _attributes(op: Op, graph: Graph) -> list[float]:
    kernel = graph.conv_weight(op).shape[2:] if op.kind in ("conv", "conv_backward") else ()
    first = (op.outputs or op.inputs)[:1]
    bits = 8 * DTYPE_BYTES.get(graph.tensors[first[0]].dtype, 4) if first else 0
    window = float(np.prod(kernel)) if kernel else float(op.attrs.get("window", 1) or 1)
    return [
        window, float(max(op.attrs.get("stride") or [1])), float(op.attrs.get("groups") or 1),
        float(max(op.attrs.get("dilation") or [1])), bits, float(op.repeat),
    ]  # fmt: skip


def _weights(op: Op, graph: Graph) -> float:
    tensors = [graph.tensors[t] for t in op.inputs]
    return float(sum(np.prod(t.shape) for t in tensors if graph.storages[t.storage].role == "parameter"))


def write(path: Path, graphs: Sequence[GraphArrays], **more: np.ndarray) -> None:
    """Many graphs, and further arrays beside them, as one compressed file."""
    columns: dict[str, np.ndarray] = {
        f.name: np.concatenate([getattr(g, f.name) for g in graphs], axis=1 if f.name == "edges" else 0)
        for f in fields(GraphArrays)
        if f.name not in _OF_CALLS
    }
    sizes = {"op_counts": [len(g.names) for g in graphs], "edge_counts": [g.edges.shape[1] for g in graphs]}
    statics = {"static": np.stack([g.static for g in graphs])}
    given: dict[str, Any] = {**columns, **statics, **more}
    np.savez_compressed(path, allow_pickle=False, **given, **{k: np.array(v) for k, v in sizes.items()})


def read(path: Path) -> tuple[list[GraphArrays], dict[str, np.ndarray]]:
    """What `write` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ForerunError(f"{path} holds no graphs: {error}") from error
    ops, edges = (np.cumsum(found.pop(name))[:-1] for name in ("op_counts", "edge_counts"))
    statics = list(found.pop("static"))
    parts: dict[str, list[np.ndarray]] = {}
    for field in fields(GraphArrays):
        if field.name not in _OF_CALLS:
            at, axis = (edges, 1) if field.name == "edges" else (ops, 0)
            parts[field.name] = np.split(found.pop(field.name), at, axis=axis)
    lines = zip(*parts.values(), statics, strict=True)
    return [GraphArrays(*line) for line in lines], found
