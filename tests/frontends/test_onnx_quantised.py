"""8-bit ONNX files: quantize and dequantize steps run inside the kernels around them, as runtimes fuse them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_files import FLOAT, INT64, ints, kinds, load, macs, model, weight

import forerun
from forerun.graph.ir import Graph
from forerun.graph.profile import unit
from forerun.graph.splice import with_hidden_ops
from forerun.runtimes.notes import INT8_NOTE

SCALE = [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(0), "z")]
CHANNELS, SIDE, LAYERS = 64, 56, 6


def pair(name: str) -> list[onnx.NodeProto]:
    """Quantize and dequantize `name` into `name`_q."""
    return [
        helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}_8"]),
        helper.make_node("DequantizeLinear", [f"{name}_8", "s", "z"], [f"{name}_q"]),
    ]


def convolutions(form: str) -> onnx.ModelProto:
    """Convolutions with biases and clamps, one after another: in floats, with QDQ pairs, or in 8-bit operators."""
    nodes, weights, x = [], list(SCALE), "x"
    kind = np.float32 if form == "float" else np.int8
    if form == "qdq":
        nodes, x = pair("x"), "x_q"
    if form == "qoperator":
        nodes, x = pair("x")[:1], "x_8"
    for i in range(LAYERS):
        weights.append(weight(f"w{i}", CHANNELS, CHANNELS, 3, 3, dtype=kind))
        weights.append(weight(f"b{i}", CHANNELS, dtype=np.float32 if form == "float" else np.int32))
        pads: dict[str, Any] = {"pads": [1, 1, 1, 1]}
        if form == "float":
            nodes += [helper.make_node("Conv", [x, f"w{i}", f"b{i}"], [f"c{i}"], **pads),
                      helper.make_node("Relu", [f"c{i}"], [f"r{i}"])]  # fmt: skip
            x = f"r{i}"
        elif form == "qdq":
            nodes += [helper.make_node("DequantizeLinear", [f"{p}{i}", "s"], [f"{p}{i}_q"]) for p in "wb"]
            nodes += [helper.make_node("Conv", [x, f"w{i}_q", f"b{i}_q"], [f"c{i}"], **pads),
                      helper.make_node("Relu", [f"c{i}"], [f"r{i}"]), *pair(f"r{i}")]  # fmt: skip
            x = f"r{i}_q"
        else:
            nodes.append(
                helper.make_node("QLinearConv", [x, "s", "z", f"w{i}", "s", "z", "s", "z", f"b{i}"], [f"c{i}"], **pads)
            )
            x = f"c{i}"
    if form == "qoperator":
        nodes.append(helper.make_node("DequantizeLinear", [x, "s", "z"], ["y"]))
    else:
        nodes.append(helper.make_node("GlobalAveragePool", [x], ["y"]))
    return model(nodes, {"x": (FLOAT, ["batch", CHANNELS, SIDE, SIDE])}, ["y"], weights, opset=13)


def units(graph: Graph) -> list[str]:
    return [unit(op, graph, "fp32") for op in graph.ops if op.kind in ("conv", "matmul", "rnn")]


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_quantized_convolutions_are_one_kernel_each(form: str) -> None:
    graph, plain = load(convolutions(form), batch=4), load(convolutions("float"), batch=4)
    # What enters is quantized by a kernel of its own; weights and results are not.
    last = "pool" if form == "qdq" else "elementwise"
    assert kinds(graph) == ["elementwise", *["conv"] * LAYERS, last]
    assert macs(graph) == macs(plain)
    assert graph.parameters == plain.parameters
    assert units(graph) == ["int8"] * LAYERS
    convs = [op for op in graph.ops if op.kind == "conv"]
    assert {graph.tensors[t].dtype for op in convs for t in (*op.inputs[:2], *op.outputs)} == {"int8"}
    assert INT8_NOTE in graph.notes
    assert with_hidden_ops(graph) is graph
    assert graph.at(9).content_hash() == load(convolutions(form), batch=9).content_hash()


@pytest.mark.parametrize("device", ["t4", "a100-sxm4-40gb", "v100-16gb"])
def test_eight_bits_are_not_slower_than_floats(device: str) -> None:
    times = {form: forerun.predict(convolutions(form), device, batch=32) for form in ("float", "qdq", "qoperator")}
    for form in ("qdq", "qoperator"):
        assert times[form].latency_ms.value < times["float"].latency_ms.value
        assert times[form].memory_allocated_mb.value < times["float"].memory_allocated_mb.value
        assert INT8_NOTE in times[form].notes
        assert any("no measurement in int8" in note for note in times[form].notes)


def test_a_tensor_that_is_also_used_as_it_is_stays() -> None:
    """The float result is added later: quantizing it is a kernel of its own."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]), *pair("r"), helper.make_node("DequantizeLinear", ["w", "s"], ["w_q"]),
        helper.make_node("MatMul", ["r_q", "w_q"], ["m"]), helper.make_node("Add", ["m", "r"], ["y"]),
    ]  # fmt: skip
    proto = model(nodes, {"x": (FLOAT, ["batch", 32])}, ["y"], [*SCALE, weight("w", 32, 32, dtype=np.int8)], opset=13)
    graph = load(proto, batch=2)
    assert [op.name for op in graph.ops] == ["Relu", "QuantizeLinear", "MatMul", "Add"]
    assert units(graph) == ["int8"]


def test_weights_that_are_quantized_in_the_file_cost_nothing() -> None:
    nodes = [*pair("w"), *pair("x"), helper.make_node("MatMul", ["x_q", "w_q"], ["y"])]
    graph = load(model(nodes, {"x": (FLOAT, ["batch", 32])}, ["y"], [*SCALE, weight("w", 32, 64)], opset=13))
    assert [op.name for op in graph.ops] == ["QuantizeLinear", "MatMul"]
    assert graph.parameters == 32 * 64
    assert graph.tensors[graph.ops[1].inputs[1]].dtype == "int8"


def dynamic(op: str) -> list[onnx.NodeProto]:
    """A product whose input is quantized while the model runs, with its scales and its bias."""
    return [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "xs", "xz"]),
        helper.make_node(op, ["q", "w", "xz", "z"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["f"], to=FLOAT), helper.make_node("Mul", ["xs", "s"], ["scale"]),
        helper.make_node("Mul", ["f", "scale"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]  # fmt: skip


def test_dynamic_quantization_is_one_op() -> None:
    weights = [*SCALE, weight("w", 64, 128, dtype=np.int8), weight("b", 128)]
    graph = load(model(dynamic("MatMulInteger"), {"x": (FLOAT, ["batch", 10, 64])}, ["y"], weights), batch=2)
    assert kinds(graph) == ["matmul", "elementwise"]
    assert units(graph) == ["int8"]
    assert graph.parameters == 64 * 128 + 128
    assert graph.tensors[graph.outputs[0]].dtype == "fp32"
    weights = [*SCALE, weight("w", 8, 3, 3, 3, dtype=np.int8), weight("b", 1, 8, 1, 1)]
    graph = load(model(dynamic("ConvInteger"), {"x": (FLOAT, ["batch", 3, 16, 16])}, ["y"], weights), batch=2)
    assert kinds(graph) == ["conv", "elementwise"]
    assert macs(graph) == 2 * 8 * 14 * 14 * 27


def test_nodes_of_onnxruntime_in_8_bits() -> None:
    ms = {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("DynamicQuantizeMatMul", ["x", "w", "s", "z", "b"], ["m"], **ms),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["q"], **ms),
        helper.make_node("QLinearSigmoid", ["q", "s", "z", "s", "z"], ["g"], **ms),
        helper.make_node("QLinearMul", ["q", "s", "z", "g", "s", "z", "s", "z"], ["p"], **ms),
        helper.make_node("DequantizeLinear", ["p", "s", "z"], ["y"], **ms),
    ]
    weights = [*SCALE, weight("w", 64, 128, dtype=np.int8), weight("b", 128)]
    graph = load(model(nodes, {"x": (FLOAT, ["batch", 64])}, ["y"], weights), batch=2)
    names = ["DynamicQuantizeMatMul", "QLinearSigmoid", "QLinearMul", "DequantizeLinear"]
    assert [op.name for op in graph.ops] == names
    assert units(graph) == ["int8"]


def test_dynamic_quantize_lstm() -> None:
    hidden, inputs, steps = 16, 8, 20
    node = helper.make_node(
        "DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"], ["h"], hidden_size=hidden,
        direction="bidirectional", domain="com.microsoft",
    )  # fmt: skip
    weights = [weight("w", 2, inputs, 4 * hidden, dtype=np.int8), weight("r", 2, hidden, 4 * hidden, dtype=np.int8),
               weight("b", 2, 8 * hidden), *(weight(n, 2) for n in ("ws", "rs")),
               *(weight(n, 2, dtype=np.int8) for n in ("wz", "rz"))]  # fmt: skip
    nodes = [node, helper.make_node("Transpose", ["h"], ["y"], perm=[0, 2, 1, 3])]
    graph = load(model(nodes, {"x": (FLOAT, [steps, "batch", inputs])}, ["y"], weights), batch=3)
    assert macs(graph) == 3 * steps * 2 * 4 * hidden * (inputs + hidden)
    assert graph.tensors[graph.outputs[0]].shape == (steps, 3, 2, hidden)
    assert units(graph) == ["int8"]
    assert graph.parameters == sum(int(np.prod(w.dims)) for w in weights[:3])


def test_a_quantized_embedding_is_a_weight() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("DequantizeLinear", ["e", "s", "z"], ["f"]),
        helper.make_node("Relu", ["f"], ["y"]),
    ]
    proto = model(nodes, {"ids": (INT64, ["batch", "seq"])}, ["y"], [*SCALE, weight("table", 100, 16, dtype=np.int8)],
                  opset=13)  # fmt: skip
    graph = load(proto, seq_len=5)
    assert (graph.parameters, kinds(graph)) == (1600, ["embedding", "elementwise"])


def test_blocked_convolutions_of_onnxruntime() -> None:
    """A file that onnxruntime optimised for one CPU: blocks of channels, activations and sums inside convolutions."""
    blocked = {"domain": "com.microsoft.nchwc"}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1] * 4, strides=[2, 2], activation="Relu", **blocked),
        helper.make_node("Conv", ["c0", "w1", "b1", "c0"], ["c1"], pads=[1, 1, 1, 1], **blocked),
        helper.make_node("MaxPool", ["c1"], ["p"], kernel_shape=[2, 2], strides=[2, 2], **blocked),
        helper.make_node("GlobalAveragePool", ["p"], ["g"], **blocked),
        helper.make_node("ReorderOutput", ["g"], ["o"], channels=10, **blocked),
        helper.make_node("Reshape", ["o", "to"], ["y"]),
    ]  # fmt: skip
    weights = [weight("w0", 16, 3, 3, 3), weight("b0", 16), weight("w1", 16, 16, 3, 3), weight("b1", 16)]
    weights.append(ints("to", 0, 10))
    proto = model(nodes, {"x": (FLOAT, ["batch", 3, 32, 32])}, ["y"], weights)
    proto.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    graph = load(proto, batch=2)
    assert [op.name for op in graph.ops] == ["Conv", "Relu", "Conv", "Add", "MaxPool", "GlobalAveragePool"]
    assert macs(graph) == 2 * 16 * 16 * 16 * (27 + 144)
    assert graph.tensors[graph.outputs[0]].shape == (2, 10)
    assert graph.scalable and not [note for note in graph.notes if "unknown" in note]


@pytest.mark.parametrize(("runtime", "why"), [
    ("tensorrt", "tensorrt is not measured on any device"), ("onnxruntime", "onnxruntime is measured on CPUs only"),
])  # fmt: skip
@pytest.mark.parametrize("device", ["t4", "h200"])
def test_runtimes_that_are_not_measured_are_refused(runtime: str, why: str, device: str) -> None:
    proto = convolutions("float")
    with pytest.raises(forerun.ForerunError, match=why):
        forerun.predict(proto, device, runtime=runtime)
    notes = forerun.predict(proto, device).notes
    assert "the network is predicted as eager PyTorch would run it, not as onnxruntime or TensorRT would" in notes
