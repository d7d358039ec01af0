"""Workspaces of NVIDIA's libraries beside the tensors of a graph: cuDNN's copies in other layouts, and the buffers of
its recurrent layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forerun.device import Device
from forerun.device.generations import unlisted_generation
from forerun.graph.cost import Shapes
from forerun.graph.ir import DTYPE_BYTES, Graph, Op, Storage
from forerun.graph.memory import Workspaces

#: Tensor cores want channels last: cuDNN keeps copies of a convolution's input and output (of gradients, backward) in
#: that layout while it runs. In fp32, for few channels and many pixels, its backward takes algorithms that need several
#: times as much (seen on an H200 with cuDNN 9.19 for 16 to 32 channels from 64 images of 32 x 32).
_LAYOUT_COPIES, _FEW_CHANNELS, _MANY_PIXELS, _FEW_CHANNELS_COPIES = 1.0, (16, 32), 65536, 8.0
#: The number of copies in the first call of such a backward with more channels; the allocator keeps their memory.
_FIRST_CALL_COPIES = 2.0
#: The backward pass of volumes copies for pointwise kernels too, and pads channels to a multiple of 8.
_VOLUME, _CHANNELS_OF_VOLUMES = 3, 8
#: Such algorithms work on tiles of 32 x 32 pixels; larger images take others.
_TILE = 32
#: Gates of a recurrent cell, and how many copies of them cuDNN holds for all steps while a layer runs.
_GATES, _GATES_HELD = {"lstm": 4, "gru": 3, "rnn": 1}, 2.0


#: Kinds of op while which libraries take memory of their own.
TAKING = frozenset({"conv", "conv_backward", "rnn", "rnn_backward"})


def library_workspaces(device: Device) -> Workspaces | None:
    """cuDNN's workspaces while convolutions and recurrent layers run; None where there are none or none are known."""
    if not device.is_nvidia:
        return None
    return _taken if (device.generation or unlisted_generation()).cudnn_layout_copies else _by_recurrent_layers


def _taken(graph: Graph, batches: np.ndarray) -> dict[int, np.ndarray]:
    return {**_layout_copies(graph, batches), **_by_recurrent_layers(graph, batches)}


def _by_recurrent_layers(graph: Graph, batches: np.ndarray) -> dict[int, np.ndarray]:
    """The gates of one layer at all steps, and the weights once more, in the layout that cuDNN wants."""
    shapes = Shapes(graph, batches)
    out = {}
    for i, op in enumerate(graph.ops):
        if op.kind not in ("rnn", "rnn_backward"):
            continue
        x = op.inputs[2 if op.kind == "rnn_backward" else 0]
        places = shapes.numel(x) / shapes.dims(x)[-1] * op.attrs["hidden"] * op.attrs["directions"]
        gates = places * _GATES[op.attrs["cell"]] * DTYPE_BYTES[graph.tensors[x].dtype]
        weights = sum(shapes.bytes(t) for t in op.inputs if _is_weight(graph, t))
        out[i] = np.broadcast_to(np.asarray(_GATES_HELD * gates + weights, dtype=float), batches.shape)
    return out


def _is_weight(graph: Graph, tensor: int) -> bool:
    return graph.storages[graph.tensors[tensor].storage].role == "parameter"


def with_reserves(graph: Graph) -> Graph:
    """The graph with the buffers that recurrent layers keep for their backward pass: gates and cells of every layer and
    step."""
    made = {op.outputs[0]: i for i, op in enumerate(graph.ops) if op.kind == "rnn"}
    if not made:
        return graph
    from fractions import Fraction  # of use to recurrent layers alone

    reserves = []
    for i, op in enumerate(graph.ops):
        forward = made.get(op.inputs[1]) if op.kind == "rnn_backward" else None
        if forward is not None:
            results = graph.storages[graph.tensors[op.inputs[1]].storage]
            proj, hidden = op.attrs.get("proj", 0), op.attrs["hidden"]
            # For every number of the results of a layer: its gates and cell, and a projected state itself.
            per_number = Fraction(op.attrs["layers"] * (hidden * (_GATES[op.attrs["cell"]] + 1) + proj), proj or hidden)
            sizes = (int(per_number * size) for size in (results.bytes, results.per_sample, results.per_sample2))
            reserves.append(Storage(next(sizes), "activation", forward, i, op.repeat, *sizes))
    return replace(graph, storages=[*graph.storages, *reserves]) if reserves else graph


def first_call_copies(graph: Graph, batches: np.ndarray) -> dict[int, np.ndarray]:
    return {
        i: taken * (_FIRST_CALL_COPIES if _takes_more_at_first(graph, graph.ops[i]) else 1.0)
        for i, taken in _taken(graph, batches).items()
    }


def _takes_more_at_first(graph: Graph, op: Op) -> bool:
    if op.kind != "conv_backward":
        return False
    weight = graph.conv_weight(op)
    return weight.dtype == "fp32" and min(weight.shape[:2]) > _FEW_CHANNELS[1]


def _layout_copies(graph: Graph, batches: np.ndarray) -> dict[int, np.ndarray]:
    shapes = Shapes(graph, batches)
    out = {}
    for i, op in enumerate(graph.ops):
        if op.kind not in ("conv", "conv_backward"):
            continue
        backward = op.kind == "conv_backward"
        weight = graph.conv_weight(op)
        image = graph.tensors[op.inputs[0]].shape[2:]
        volume = backward and len(image) == _VOLUME
        pointwise = all(k == 1 for k in weight.shape[2:]) and not volume
        if pointwise or graph.depthwise(op) or op.attrs.get("strided"):
            continue  # pointwise and depthwise kernels take tensors as they are; others where channels are last
        few_channels = (
            backward
            and weight.dtype == "fp32"
            and all(_FEW_CHANNELS[0] <= c <= _FEW_CHANNELS[1] for c in weight.shape[:2])
            and len(image) == 2
            and max(image) <= _TILE
        )
        pixels = shapes.numel(op.inputs[0]) / shapes.dims(op.inputs[0])[1]
        copies = np.where(few_channels & (np.asarray(pixels) >= _MANY_PIXELS), _FEW_CHANNELS_COPIES, _LAYOUT_COPIES)
        sides = (op.inputs[0], op.inputs[1] if backward else op.outputs[0])
        moved = sum(shapes.bytes(t) * (_padding(shapes, t) if volume else 1.0) for t in sides)
        out[i] = np.broadcast_to(np.asarray(copies * moved, dtype=float), batches.shape)
    return out


def _padding(shapes: Shapes, tensor: int) -> np.ndarray:
    """How many times larger a copy of a volume is, since its channels are padded."""
    channels = np.asarray(shapes.dims(tensor)[1], dtype=float)
    return np.ceil(channels / _CHANNELS_OF_VOLUMES) * _CHANNELS_OF_VOLUMES / channels
