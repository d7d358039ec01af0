"""Small ONNX files that tests write themselves, and what every graph of one holds to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from forerun.frontends.onnx.file import OnnxFrontend
from forerun.graph.cost import Shapes, cost
from forerun.graph.ir import Graph
from forerun.graph.validate import validate
from forerun.workload import Workload

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def weight(name: str, *shape: int, dtype: Any = np.float32) -> onnx.TensorProto:
    values = np.random.default_rng(0).normal(size=shape) * 10
    return numpy_helper.from_array(values.astype(dtype), name)


def ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype=np.int64), name)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any] | None]],
    outputs: list[str],
    weights: list[onnx.TensorProto] = [],  # noqa: B006 - never changed
    opset: int = 17,
    **more: Any,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs], weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


def load(proto: onnx.ModelProto, **settings: Any) -> Graph:
    graph = one(proto, **settings)
    check_graph(graph)
    return graph


def one(source: onnx.ModelProto | Path, **settings: Any) -> Graph:
    """What the frontend itself gives, before anything is added to it."""
    (graph,) = OnnxFrontend().load(source, Workload(source, **settings))
    return graph


def check_graph(graph: Graph) -> None:
    """What every graph holds to, whatever the file."""
    validate(graph)
    for index, op in enumerate(graph.ops):
        for tensor in op.inputs:
            dies = graph.storages[graph.tensors[tensor].storage].dies
            assert dies is None or dies >= index
        for tensor in op.outputs:
            assert graph.tensors[tensor].producer == index
        assert cost(op, Shapes(graph)).flops >= 0
    for tensor in graph.outputs:
        assert graph.storages[graph.tensors[tensor].storage].dies is None
    assert Graph.from_dict(graph.to_dict()).content_hash() == graph.content_hash()


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def macs(graph: Graph) -> float:
    return float(sum(cost(op, Shapes(graph)).macs * op.repeat for op in graph.ops))
