"""A training step of an ONNX file: its nodes run in PyTorch on meta, whose autograd gives the backward pass.

The walk decides shapes and values that are known; the rules of `gradients` say what PyTorch runs for each node. What
the walk counts as a weight is trained: floating-point tensors that operators read, without the running statistics of
batch norms and what a module calls a buffer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from forerun.capture.capture import TORCH_DTYPES
from forerun.errors import ForerunError
from forerun.frontends.onnx import gradients
from forerun.frontends.onnx.calls import LINEAR
from forerun.frontends.onnx.gradient_call import TORCH_DTYPES as DTYPES
from forerun.frontends.onnx.gradient_call import Call
from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.training_calls import whole_calls
from forerun.frontends.onnx.values import FLOATS, Node, Value, no_gradient
from forerun.frontends.pytorch.module_graphs import captured
from forerun.graph.ir import Graph
from forerun.runtimes.notes import PYTORCH_NOTE
from forerun.workload import Workload

#: Layers after which PyTorch's networks have activations in place.
LAYERS = ("Conv", "ConvTranspose", "BatchNormalization")
ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Elu", "Swish", "HardSwish", "Mish")
PRODUCTS = ("MatMul", LINEAR)
RECURRENT = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
NOTE = (
    "a training step of a file: forward as the file says, batch norms and dropouts that it still has as in training "
    "(those that its exporter folded or dropped are not trained), backward as PyTorch's autograd"
)

FOLDED = (
    "this file has convolutions and no norm: where its exporter folded batch norms into them, a training step of the "
    "original model takes more memory and time"
)


def trained(walks: Any, workload: Workload, name: str) -> list[Graph]:
    """The graphs of a training step of a file; `walks` (`build._Walks`) walks it at any batch size."""
    walks.check_batch(workload.batch)
    plain: Trace = walks.at_asked(workload.batch)
    if not plain.counted:
        raise ForerunError("this file has no weights in floating point: there is nothing to train")
    tapes = functools.cache(lambda batch: Tape.of(walks.at_asked(batch, taped=True)))
    asked = tapes(workload.batch)
    gradients.check(asked.nodes)
    dtype = TORCH_DTYPES[workload.weight_dtype] if walks.override else None
    axes = {place: axis for place, key in enumerate(asked.inputs) if (axis := walks.layout.axes.get(key)) is not None}

    def batch_of(inputs: Any) -> int:
        return next((inputs[place].shape[axis] for place, axis in axes.items()), 1)

    def made() -> FileModule:
        return FileModule(tapes, batch_of, asked, plain.counted, dtype)

    def inputs_at(batch: int) -> dict[str, torch.Tensor]:
        cast = made().cast
        values = enumerate(tapes(batch).inputs.values())
        return {str(i): torch.empty(v.shape, dtype=cast(v.dtype), device="meta") for i, v in values}

    shapes = ", ".join(f"{key} {list(v.shape)}" for key, v in asked.inputs.items())
    graphs = captured(made, inputs_at, workload, name, shapes, stacks=lambda _: frozenset(), count_python=False)
    for graph in graphs:
        calls, notes = dict(graph.facts.get("host_calls", {})), graph.notes
        graph.notes = [PYTORCH_NOTE, *_notes(asked.nodes), *plain.notes]
        walks.described(graph, plain)
        graph.notes += [note for note in notes if note not in graph.notes]
        calls["modules"] = graph.facts["host_calls"]["modules"]
        graph.facts["host_calls"] = calls
    return graphs


def _notes(nodes: list[Node]) -> list[str]:
    ops = {node.op for node in nodes}
    plain = "Conv" in ops and not any(op.endswith("Normalization") for op in ops)
    return [NOTE, FOLDED] if plain else [NOTE]


@dataclass
class Tape:
    """The nodes of a file that run on the device, in order, at one batch size."""

    nodes: list[Node]
    inputs: dict[str, Value]
    outputs: list[Value]
    done: dict[int, list[int]]  # node -> the values that no later one reads
    same: dict[int, Value]  # tensor of the walk -> the value that it was first
    overwritten: set[int]  # values whose memory the node that reads them takes
    opset: int

    @classmethod
    def of(cls, trace: Trace) -> Tape:
        graph = trace.model.graph
        held = {tensor.name for tensor in graph.initializer}
        inputs = {info.name: trace.env[info.name] for info in graph.input if info.name not in held}
        outputs = [trace.env[info.name] for info in graph.output if info.name in trace.env]
        nodes = whole_calls(trace.tape or [], outputs)
        first = [*inputs.values(), *(v for node in nodes for v in node.out)]
        same = {v.tensor: v for v in reversed(first) if v.tensor is not None}
        last = {id(v): i for i, node in enumerate(nodes) for v in (*node.inputs, *node.out) if v is not None}
        for value in (*outputs, *inputs.values()):
            last.pop(id(value), None)
        done: dict[int, list[int]] = {}
        for read, at in last.items():
            done.setdefault(at, []).append(read)
        return cls(nodes, inputs, outputs, done, same, _overwritten(nodes, outputs), trace.opsets.get("", 20))


def _overwritten(nodes: list[Node], outputs: list[Value]) -> set[int]:
    """Values over which PyTorch's networks write their activation: what a layer puts out, where nothing else reads it,
    and the sum of such a value and another one (a residual), which is written over the first."""
    readers: dict[int, list[str]] = {id(value): [""] for value in outputs}
    for node in nodes:
        for value in node.inputs:
            readers.setdefault(id(value), []).append(node.op)
    found: set[int] = set()
    for node in nodes:
        out = node.out[0]
        layer = node.op in LAYERS or (node.op == "Add" and id(node.inputs[0]) in found)
        read = readers.get(id(out), [])
        if layer and len(read) == 1 and (node.op != "Add" or read[0] in ACTIVATIONS):
            found.add(id(out))
    return found


class FileModule(nn.Module):
    """Runs the nodes of a file; `tapes` gives them at a batch size, `weights` are the names of what is trained."""

    def __init__(
        self, tapes: Callable[[int], Tape], batch_of: Callable[[Any], int], some: Tape, weights: Container[str],
        dtype: torch.dtype | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tapes, self.batch_of, self.dtype, self.names = tapes, batch_of, dtype, weights
        nodes = some.nodes
        self.parameter: dict[str, nn.Parameter] = {}
        self.layers: dict[str, nn.Module] = {}
        self.made: dict[int, torch.Tensor] = {}
        self.counts: dict[str, torch.Tensor] = {}
        self.calls: dict[str, _Node] = {node.outputs[0]: _Node(self, node) for node in nodes}
        self.turned = _stored_as_linear(nodes)
        for node in nodes:
            if node.op in RECURRENT:
                self.layers[node.outputs[0]] = layer = recurrent_layer(node, self.cast(node.need(1).dtype))
                self.add_module(f"layer_{len(self.layers)}", layer)
                continue
            for value in node.inputs:
                if value is not None and (name := self.name_of(value)) and name not in self.parameter:
                    self._add(name, value)

    def _add(self, name: str, value: Value) -> None:
        shape = tuple(reversed(value.shape)) if name in self.turned else value.shape
        made = nn.Parameter(torch.empty(shape, dtype=self.cast(value.dtype), device="meta"))
        self.parameter[name] = made
        self.register_parameter(f"weight_{len(self.parameter)}", made)

    def name_of(self, value: Value) -> str | None:
        """The weight that a value is; None where it is none."""
        if not value.constant or value.dtype not in FLOATS or value.role == "buffer" or len(value.origin) != 1:
            return None
        (name,) = value.origin
        return name if name in self.names else None

    def cast(self, kind: int) -> torch.dtype:
        if kind not in DTYPES:
            raise ForerunError(f"tensors of ONNX's type {kind} cannot be trained")
        return self.dtype if kind in FLOATS and self.dtype is not None else DTYPES[kind]

    def named_modules(self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[Any]:
        """The nodes, too, by where they were in the model that the file was made from."""
        yield from super().named_modules(memo, prefix, remove_duplicate)
        yield from ((scope_of(call.node), call) for call in self.calls.values())

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        tape = self.tapes(self.batch_of(inputs))
        values: dict[int, Any] = {id(v): t for v, t in zip(tape.inputs.values(), inputs, strict=True)}
        for number, node in enumerate(tape.nodes):
            self.calls[node.outputs[0]].node = node
            results = self.calls[node.outputs[0]](values, tape)
            for value, result in zip(node.out, results if isinstance(results, tuple) else (results,), strict=False):
                values[id(value)] = result
            del results
            for gone in tape.done.get(number, ()):
                values.pop(gone, None)
        return [t for v in tape.outputs if isinstance(t := self.resolve(v, values, tape), torch.Tensor)]

    def resolve(self, value: Value | None, values: dict[int, Any], tape: Tape) -> Any:
        """A value as PyTorch has it: a tensor, or the number that a constant is."""
        if value is None:
            return None
        found = values.get(id(value))
        if found is None and (name := self.name_of(value)) is not None:
            found = self.parameter[name]
            found = found.t() if name in self.turned else found
        if found is None and value.data is not None and value.data.size == 1:
            return value.data.item()
        if found is None and value.tensor in tape.same:  # the same with another size in front: a class token
            found = values.get(id(tape.same[value.tensor]))
        if found is None and value.constant:
            found = self._constant(value)
        if found is None:
            raise ForerunError("a node of this file reads a value that no earlier one puts out")
        return (
            found if tuple(found.shape) == value.shape or found.dim() != len(value.shape) else found.expand(value.shape)
        )

    def _constant(self, value: Value) -> torch.Tensor:
        """A tensor of the file that is not trained: made once, and held as a buffer."""
        if id(value) not in self.made:
            tensor = torch.empty(value.shape, dtype=self.cast(value.dtype), device="meta")
            self.made[id(value)] = tensor
            self.register_buffer(f"constant_{len(self.made)}", tensor)
        return self.made[id(value)]

    def run(self, node: Node, values: dict[int, Any], tape: Tape) -> Any:
        """What a node puts out."""
        key, first = node.outputs[0], node.input(0)
        if key in self.layers:
            found = [self.resolve(first, values, tape), self.layers[key]]
        else:
            found = [self.resolve(v, values, tape) for v in node.inputs]
        if node.op == "BatchNormalization":
            if key not in self.counts:
                self.counts[key] = torch.empty((), dtype=torch.int64, device="meta")
                self.register_buffer(f"batches_{len(self.counts)}", self.counts[key])
            found.append(self.counts[key])
        weight = self.name_of(node.need(1)) if node.op in PRODUCTS else None
        if weight in self.turned:
            found[1] = self.parameter[str(weight)]
        alone = id(first) in tape.overwritten and (node.op != "Add" or id(node.out[0]) in tape.overwritten)
        return gradients.run(Call(node, found, tape.opset, self.cast, alone, weight in self.turned))


class _Node(nn.Module):
    """A node as a module, so that the capture knows where it is."""

    def __init__(self, file: FileModule, node: Node) -> None:
        super().__init__()
        self.node = node
        self._file = [file]  # in a list, since it is no part of this module

    def forward(self, values: dict[int, Any], tape: Tape) -> Any:
        return self._file[0].run(self.node, values, tape)


def recurrent_layer(node: Node, dtype: torch.dtype) -> nn.Module:
    """PyTorch's layer for a node of ONNX; its weights are the node's."""
    w, r = node.need(1), node.need(2)
    if w.shape[0] == 1 and node.attrs.get("direction") == "reverse":
        raise no_gradient(node, "that runs backwards only")
    made: nn.Module = RECURRENT[node.op](
        w.shape[2], r.shape[2], bias=node.input(3) is not None, bidirectional=w.shape[0] == 2,
        device="meta", dtype=dtype,
    )  # fmt: skip
    return made


def _stored_as_linear(nodes: list[Node]) -> set[str]:
    """Weights that are only multiplied from the right: PyTorch's layers store them turned."""
    products: set[str] = set()
    others: set[str] = set()
    for node in nodes:
        for place, value in enumerate(node.inputs):
            if value is not None and len(value.origin) == 1 and value.constant:
                right = place == 1 and node.op in PRODUCTS and len(value.shape) == 2
                (products if right else others).update(value.origin)
    return products - others


def scope_of(node: Node) -> str:
    """Where a node was in the model: torch.onnx writes '/layer1/layer1.0/conv1/Conv'."""
    scope: list[str] = []
    for part in [p for p in node.name.split("/") if p][:-1]:
        if scope and part.startswith(f"{scope[-1]}."):
            scope.pop()
        scope.append(part)
    return ".".join(scope) or node.name
