"""The ONNX frontend: opsets, exporters, open axes, batches, fused nodes, and files that are not what they say."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_files import FLOAT, INT64, check_graph, ints, kinds, load, macs, model, one, weight

from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.frontends.onnx.file import OnnxFrontend
from forerun.graph.ir import Graph
from forerun.runtimes.notes import PYTORCH_NOTE
from forerun.workload import Workload


def small_cnn(opset: int, batch: Any = "N", **more: Any) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu6, upsample, pool, flatten, linear, in the words of each opset."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["n"]),
    ]
    weights = [weight("w", 8, 3, 3, 3), weight("b", 8), weight("gamma", 8), weight("beta", 8)]
    weights += [weight("mean", 8), weight("var", 8), weight("fw", 10, 8), weight("fb", 10)]
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    if opset < 11:
        nodes.append(helper.make_node("Clip", ["n"], ["r"], min=0.0, max=6.0))
    else:
        nodes.append(helper.make_node("Clip", ["n", "low", "high"], ["r"]))
        weights += [numpy_helper.from_array(np.float32(v), n) for n, v in (("low", 0.0), ("high", 6.0))]
    if opset < 10:
        nodes.append(helper.make_node("Upsample", ["r", "scales"], ["u"], mode="nearest"))
    else:
        nodes.append(helper.make_node("Resize", ["r", "scales"] if opset < 11 else ["r", "", "scales"], ["u"]))
    nodes += [
        helper.make_node("GlobalAveragePool", ["u"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Dropout", ["f"], ["d"]),
        helper.make_node("Gemm", ["d", "fw", "fb"], ["y"], transB=1),
    ]
    return model(nodes, {"x": (FLOAT, [batch, 3, 16, 16])}, ["y"], [*weights, scales], opset, **more)


@pytest.mark.parametrize("opset", [9, 10, 11, 13, 17, 23])
def test_cnn_in_every_opset(opset: int) -> None:
    graph = load(small_cnn(opset), batch=4)
    assert kinds(graph) == ["conv", "norm", "elementwise", "resize", "pool", "matmul"]
    # 8 * 3 * 9 + 8, batch normalization 2 * 8 (its statistics are buffers), 10 * 8 + 10
    assert graph.parameters == 224 + 16 + 90
    assert sum(s.role == "buffer" for s in graph.storages) == 2
    # Conv: 4 * 8 * 16 * 16 outputs of 27 products; linear: 4 * 10 of 8.
    assert macs(graph) == 4 * 8 * 256 * 27 + 4 * 80
    assert graph.ops[0].scope == "conv"
    assert graph.ops[0].name == "Conv"
    assert graph.tensors[graph.outputs[0]].shape == (4, 10)


def test_batch_slopes_reproduce_another_load() -> None:
    proto = small_cnn(17)
    graph = load(proto, batch=4)
    assert graph.scalable
    assert graph.min_batch == 1
    for batch in (1, 2, 7):
        assert graph.at(batch).content_hash() == load(proto, batch=batch).content_hash()


def test_lifetimes() -> None:
    graph = load(small_cnn(17))
    conv_out = graph.storages[graph.tensors[graph.ops[0].outputs[0]].storage]
    assert (conv_out.born, conv_out.dies, conv_out.role) == (0, 1, "activation")
    roles = {s.role: (s.born, s.dies) for s in graph.storages if s.role != "activation"}
    assert roles == {"input": (-1, None), "parameter": (-1, None), "buffer": (-1, None)}
    pool, linear = graph.ops[-2], graph.ops[-1]
    # Flatten and Dropout are views: the linear layer reads the pool's own memory.
    assert graph.tensors[linear.inputs[0]].storage == graph.tensors[pool.outputs[0]].storage
    assert graph.tensors[linear.inputs[0]].shape == (1, 8)
    assert graph.tensors[linear.inputs[1]].shape == (8, 10)


def test_fixed_batch_is_moved_when_safe() -> None:
    fixed = load(small_cnn(17, batch=1), batch=8)
    assert fixed.content_hash() == load(small_cnn(17), batch=8).content_hash()
    assert any("fixes its batch at 1" in note for note in fixed.notes)
    assert fixed.min_batch == 1


def test_spelled_out_batch_in_reshape_follows() -> None:
    nodes = [helper.make_node("Reshape", ["x", "to"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    proto = model(nodes, {"x": (FLOAT, [1, 4, 6])}, ["y"], [ints("to", 1, 24), weight("w", 24, 5)])
    assert load(proto, batch=3).tensors[load(proto, batch=3).outputs[0]].shape == (3, 5)


def test_fixed_batch_that_cannot_move_is_refused() -> None:
    # The batch is summed away: another batch is another network.
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    proto = model(nodes, {"x": (FLOAT, [2, 4])}, ["y"], [ints("axes", 0)])
    with pytest.raises(ForerunError, match=r"fixes its batch at 2 and cannot be moved to 3"):
        load(proto, batch=3)
    assert not load(proto, batch=2).scalable


def test_shape_arithmetic_vanishes() -> None:
    """x.view(x.size(0), x.size(1), -1) as exporters spell it."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Gather", ["s", "one"], ["c"]),
        helper.make_node("Unsqueeze", ["n", "axis"], ["n1"]),
        helper.make_node("Unsqueeze", ["c", "axis"], ["c1"]),
        helper.make_node("Concat", ["n1", "c1", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["a", "to"], ["r"]),
        helper.make_node("Transpose", ["r"], ["y"], perm=[0, 2, 1]),
    ]
    scalars = [numpy_helper.from_array(np.array(v, dtype=np.int64), n) for n, v in (("zero", 0), ("one", 1))]
    proto = model(nodes, {"x": (FLOAT, ["batch", 3, "h", "w"])}, ["y"], [*scalars, ints("axis", 0), ints("rest", -1)])
    graph = load(proto, batch=2, input_shape=(3, 5, 7))
    assert kinds(graph) == ["elementwise"]  # PyTorch transposes nothing until something must read it so
    assert graph.tensors[graph.outputs[0]].shape == (2, 35, 3)
    assert kinds(load(proto, batch=2, input_shape=(3, 5, 7), runtime="onnxruntime")) == ["elementwise", "copy"]
    assert graph.parameters == 0


def test_open_axes() -> None:
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]), helper.make_node("Mul", ["e", "m"], ["y"])]
    inputs = {"ids": (INT64, ["batch", "sequence"]), "m": (FLOAT, ["batch", "sequence", 1])}
    proto = model(nodes, inputs, ["y"], [weight("table", 100, 16)])
    graph = load(proto, batch=2, seq_len=12)
    assert kinds(graph) == ["embedding", "elementwise"]
    assert graph.tensors[graph.outputs[0]].shape == (2, 12, 16)
    assert graph.parameters == 1600
    with pytest.raises(ForerunError, match=r"axis 1 \('sequence'\) of input 'ids' is open.*--seq-len"):
        load(proto)
    given = load(proto, batch=2, input_shape={"ids": (2, 9)})
    assert given.tensors[given.outputs[0]].shape == (2, 9, 16)
    assert given.at(5).content_hash() == load(proto, batch=5, seq_len=9).content_hash()


def test_wrong_shapes_are_named() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["N", 3, "H", 8])}, ["y"])
    with pytest.raises(ForerunError, match=r"axis 2 \('H'\) of input 'x' is open.*--input-shape x=1,3,SIZE,8"):
        load(proto)
    with pytest.raises(ForerunError, match="has 3 dimensions, but the input has 4"):
        load(proto, input_shape={"x": (1, 3, 8)})
    with pytest.raises(ForerunError, match="fits no input of this file"):
        load(proto, input_shape=(8, 8))
    with pytest.raises(ForerunError, match="no input 'z'; it has x"):
        load(proto, input_shape={"z": (1, 3, 8, 8)})
    with pytest.raises(ForerunError, match="axis 1 of input 'x' is fixed at 3"):
        load(proto, input_shape={"x": (1, 4, 8, 8)})
    product = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, ["N", "K"])}, ["y"],
                    [weight("w", 4, 5)])  # fmt: skip
    with pytest.raises(ForerunError, match="these input shapes do not fit node"):
        load(product, input_shape=(6,))


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_a_file_is_one_call(mode: str) -> None:
    with pytest.raises(ForerunError, match=r"for inference and training; for .*PyTorch model or a Hugging Face id"):
        load(small_cnn(17), mode=mode)


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent(op: str, gates: int) -> None:
    steps, inputs, hidden = 7, 5, 6
    weights = [weight("w", 2, gates * hidden, inputs), weight("r", 2, gates * hidden, hidden)]
    weights.append(weight("b", 2, 2 * gates * hidden))
    node = helper.make_node(op, ["x", "w", "r", "b"], ["y"], hidden_size=hidden, direction="bidirectional")
    graph = load(model([node], {"x": (FLOAT, [steps, "batch", inputs])}, ["y"], weights), batch=3)
    assert kinds(graph) == ["rnn"]
    attrs = graph.ops[0].attrs
    assert (attrs["cell"], attrs["hidden"], attrs["directions"], attrs["steps"]) == (op.lower(), hidden, 2, steps)
    assert macs(graph) == 3 * steps * 2 * gates * hidden * (inputs + hidden)
    assert graph.parameters == sum(math.prod(w.dims) for w in weights)


def test_attention_of_opset_23() -> None:
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=2, is_causal=1)
    inputs = {"q": (FLOAT, ["B", 10, 64]), "k": (FLOAT, ["B", 10, 32]), "v": (FLOAT, ["B", 10, 32])}
    graph = load(model([node], inputs, ["y"], opset=23), batch=2)
    assert kinds(graph) == ["attention"]
    assert [graph.tensors[t].shape for t in graph.ops[0].inputs] == [(2, 4, 10, 16), (2, 2, 10, 16), (2, 2, 10, 16)]
    assert graph.ops[0].attrs["causal"] is True
    assert graph.tensors[graph.outputs[0]].shape == (2, 10, 64)


def test_fused_transformer_of_onnxruntime() -> None:
    ms = {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("Attention", ["x", "qkv", "qkv_b"], ["a"], num_heads=4, **ms),
        helper.make_node("SkipLayerNormalization", ["a", "x", "g", "b"], ["n"], **ms),
        helper.make_node("FusedMatMul", ["n", "up"], ["h"], transB=1, **ms),
        helper.make_node("BiasGelu", ["h", "up_b"], ["u"], **ms),
        helper.make_node("MatMulNBits", ["u", "packed", "scales"], ["y"], K=128, N=64, bits=4, block_size=32, **ms),
    ]
    weights = [weight("qkv", 64, 192), weight("qkv_b", 192), weight("g", 64), weight("b", 64)]
    weights += [weight("up", 128, 64), weight("up_b", 128), weight("scales", 64 * 4)]
    weights.append(weight("packed", 64, 4, 16, dtype=np.uint8))
    graph = load(model(nodes, {"x": (FLOAT, ["batch", 10, 64])}, ["y"], weights), batch=2)
    assert kinds(graph) == ["matmul", "attention", "norm", "matmul", "elementwise", "matmul"]
    assert graph.parameters == 64 * 192 + 192 + 128 + 128 * 64 + 128 + 128 * 64
    assert graph.tensors[graph.ops[-1].inputs[1]].dtype == "int4"
    rows = 2 * 10
    assert macs(graph) == rows * 64 * 192 + 2 * 4 * 10 * 10 * 32 + 2 * rows * 64 * 128
    assert graph.notes == [PYTORCH_NOTE]


def test_quantized_convolution_counts_its_weights() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearConv", ["q", "s", "z", "w", "s", "z", "s", "z"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w2", "s", "z"], ["w2f"]),
        helper.make_node("Conv", ["d", "w2f"], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(0), "z")]
    weights += [weight("w", 4, 3, 3, 3, dtype=np.int8), weight("w2", 2, 4, 1, 1, dtype=np.int8)]
    graph = load(model(nodes, {"x": (FLOAT, ["N", 3, 8, 8])}, ["y"], weights, opset=13))
    assert kinds(graph) == ["elementwise", "conv", "conv"]
    assert graph.parameters == 4 * 27 + 8
    assert [graph.tensors[op.inputs[1]].dtype for op in graph.ops if op.kind == "conv"] == ["int8", "int8"]


@pytest.mark.parametrize(
    ("equation", "a", "b", "kind", "products"),
    [
        ("bqhd,bkhd->bhqk", (2, 5, 3, 4), (2, 6, 3, 4), "matmul", 2 * 3 * 5 * 6 * 4),
        ("bij,jk->bik", (2, 5, 4), (4, 7), "matmul", 2 * 5 * 7 * 4),
        ("bi,bi->bi", (2, 5), (2, 5), "elementwise", 0),
    ],
)
def test_einsum(equation: str, a: tuple[int, ...], b: tuple[int, ...], kind: str, products: int) -> None:
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation)
    graph = load(model([node], {"a": (FLOAT, list(a)), "b": (FLOAT, list(b))}, ["y"]), batch=2)
    assert kinds(graph) == [kind]
    assert macs(graph) == products


def test_control_flow() -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w"], ["h2"]), helper.make_node("Identity", ["go"], ["go2"])], "body",
        [value("i", INT64, []), value("go", TensorProto.BOOL, []), value("h", FLOAT, None)],
        [value("go2", TensorProto.BOOL, []), value("h2", FLOAT, None)],
    )  # fmt: skip
    branches = [
        helper.make_graph([helper.make_node(op, ["l"], [f"{op}_out"])], op, [], [value(f"{op}_out", FLOAT, None)])
        for op in ("Relu", "Sigmoid")
    ]
    nodes = [
        helper.make_node("Loop", ["times", "", "x"], ["l"], body=body),
        helper.make_node("If", ["flag"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    proto = model(nodes, {"x": (FLOAT, ["N", 4]), "flag": (TensorProto.BOOL, [])}, ["y"],
                  [weight("w", 4, 4), numpy_helper.from_array(np.array(5, dtype=np.int64), "times")])  # fmt: skip
    graph = load(proto)
    assert [op.name for op in graph.ops] == ["MatMul", "Relu"]
    assert macs(graph) == 5 * 16
    assert graph.notes[1:] == ["an If with a data-dependent condition: its then-branch is counted"]


def test_functions_are_inlined() -> None:
    opsets = [helper.make_opsetid("", 17)]
    body = [helper.make_node("MatMul", ["a", "b"], ["m"]), helper.make_node("Relu", ["m"], ["c"])]
    function = helper.make_function("my", "Layer", ["a", "b"], ["c"], body, opsets)
    nodes = [helper.make_node("Layer", ["x", "w"], ["y"], domain="my")]
    proto = model(nodes, {"x": (FLOAT, ["N", 64])}, ["y"], [weight("w", 64, 128)], functions=[function])
    proto.opset_import.append(helper.make_opsetid("my", 1))
    graph = load(proto)
    assert kinds(graph) == ["matmul", "elementwise"]
    assert graph.parameters == 64 * 128
    itself = [helper.make_node("Layer", ["a", "b"], ["c"], domain="my")]
    loop = helper.make_function("my", "Layer", ["a", "b"], ["c"], itself, [*opsets, helper.make_opsetid("my", 1)])
    del proto.functions[:]
    proto.functions.append(loop)
    with pytest.raises(ForerunError, match="calls itself"):
        load(proto)


def test_unknown_op_is_named_and_counted() -> None:
    nodes = [helper.make_node("Wizardry", ["x"], ["a"], domain="acme"), helper.make_node("Relu", ["a"], ["y"])]
    graph = load_graph(Workload(model(nodes, {"x": (FLOAT, ["N", 4])}, ["y"])))
    assert kinds(graph) == ["unknown", "elementwise"]
    unknown = "no cost law for acme.Wizardry: its bytes are counted, its FLOPs are not"
    assert graph.notes[:2] == [unknown, PYTORCH_NOTE]
    assert graph.notes[2].startswith("the output shape of Wizardry is unknown")


def test_dtypes() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Conv", ["m", "k"], ["y"])]
    proto = model(nodes, {"x": (FLOAT, ["N", 3, 64, 64])}, ["y"], [weight("w", 64, 64), weight("k", 4, 3, 1, 1)])
    by_dtype = {d: load_graph(Workload(proto, dtype=d)) for d in ("fp32", "bf16", "int8")}

    def types(graph: Graph) -> list[str]:
        return [graph.tensors[t].dtype for t in (*graph.ops[0].inputs, *graph.ops[1].inputs)]

    assert types(by_dtype["fp32"]) == ["fp32"] * 4
    assert types(by_dtype["bf16"]) == ["bf16"] * 4
    assert types(by_dtype["int8"]) == ["int8", "fp16", "fp16"]  # a cast before the product
    sizes = {d: sum(s.bytes for s in g.storages if s.role == "parameter") for d, g in by_dtype.items()}
    assert sizes == {"fp32": 4 * 4108, "bf16": 2 * 4108, "int8": 4096 + 2 * 12}


def test_tied_weights_count_once() -> None:
    table = np.random.default_rng(0).normal(size=(1024, 64)).astype(np.float32)
    weights = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(table.T.copy(), "head")]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]), helper.make_node("MatMul", ["e", "head"], ["y"])]
    graph = load(model(nodes, {"ids": (INT64, ["batch", "seq"])}, ["y"], weights), seq_len=4)
    assert graph.parameters == table.size


def test_bad_files(tmp_path: Path) -> None:
    good = small_cnn(17).SerializeToString()
    empty = model([], {"x": (FLOAT, [1])}, ["x"]).SerializeToString()
    for name, content, message in (
        ("cut", good[: len(good) // 2], "not a complete ONNX file"),
        ("text", b"hello, world" * 50, "not a complete ONNX file"),
        ("zero", b"", "not an ONNX model"), ("empty", empty, "no nodes"),
    ):  # fmt: skip
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(ForerunError, match=message) as caught:
            one(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ForerunError, match="there is no file"):
        one(tmp_path / "missing.onnx")


def test_broken_bytes_never_raise_anything_else(tmp_path: Path) -> None:
    good = bytearray(small_cnn(17).SerializeToString())
    path = tmp_path / "net.onnx"
    dice = random.Random(0)
    refused = []
    for _ in range(300):
        broken = bytearray(good)
        for _ in range(dice.randint(1, 6)):
            broken[dice.randrange(len(broken))] = dice.randrange(256)
        path.write_bytes(broken)
        try:
            one(path)
        except ForerunError as error:
            refused.append(str(error))
    assert 100 < len(refused) < 300  # some bytes only change a weight
    assert not any("\n" in sentence for sentence in refused)


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "a/../../b", "C:\\x", "..\\x"])
def test_external_data_stays_in_its_folder(location: str) -> None:
    proto = small_cnn(17)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    with pytest.raises(ForerunError, match="outside the model's folder"):
        load(proto)
    tensor.external_data[0].value = "weights/net.bin"  # never opened: its sizes are in the file
    assert load(proto).parameters == 330


def test_key_is_the_content(tmp_path: Path) -> None:
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for path in (a, b):
        path.write_bytes(small_cnn(17).SerializeToString())
    frontend, work = OnnxFrontend(), Workload("net")
    assert frontend.key(a, work) is not None and frontend.key(a, work) == frontend.key(b, work)
    b.write_bytes(small_cnn(13).SerializeToString())
    assert frontend.key(a, work) != frontend.key(b, work)
    assert frontend.key(tmp_path / "missing.onnx", work) is None


# -- what torch.onnx writes --------------------------------------------------------------------------------------


def torch_cnn() -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8),
        nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    ).eval()  # fmt: skip


@pytest.mark.parametrize("dynamo", [False, True])
def test_torch_export(dynamo: bool, tmp_path: Path) -> None:
    import torch

    if dynamo:
        pytest.importorskip("onnxscript")
    net, path = torch_cnn(), tmp_path / "cnn.onnx"
    options: dict[str, Any] = {"dynamo": True, "optimize": False, "verbose": False}
    if not dynamo:
        options = {"dynamo": False, "training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    torch.onnx.export(net, (torch.randn(1, 3, 32, 32),), str(path), **options)
    graph = one(path, batch=4)
    check_graph(graph)
    assert graph.parameters == sum(p.numel() for p in net.parameters())
    assert [k for k in kinds(graph) if k in ("conv", "norm", "matmul")] == ["conv", "norm", "conv", "norm", "matmul"]
    assert macs(graph) == 4 * (8 * 30 * 30 * 27 + 8 * 28 * 28 * 9 + 80)
    assert graph.min_batch == 1


def test_torch_export_of_bert(tmp_path: Path) -> None:
    """Through dynamo with both axes open; every weight counts, as in PyTorch."""
    pytest.importorskip("onnxscript")
    import torch

    from forerun.capture import torch_compat

    torch_compat.prepare()
    from transformers import BertConfig, BertModel

    net = BertModel(
        BertConfig(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=500)
    ).eval()
    ids, path = torch.ones(2, 16, dtype=torch.long), tmp_path / "bert.onnx"
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq", max=512)}
    torch.onnx.export(
        net, (ids, torch.ones_like(ids)), str(path), dynamo=True, optimize=False, verbose=False,
        dynamic_shapes=(axes, axes),
    )  # fmt: skip
    graph = one(path, batch=2, seq_len=32)
    check_graph(graph)
    assert graph.parameters == sum(p.numel() for p in net.parameters())
    # Per layer and token: q, k, v, o (4 * 64 * 64), two MLP matrices (2 * 64 * 128), scores and mix (2 * 32 * 64);
    # the pooler sees one token a sample.
    assert macs(graph) == 2 * (2 * 32 * (4 * 64 * 64 + 2 * 64 * 128 + 2 * 32 * 64) + 64 * 64)
    assert graph.scalable


def test_a_group_norm_knows_its_groups() -> None:
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=4)
    graph = load(model([node], {"x": (FLOAT, [2, 16, 5, 5])}, ["y"], [weight("s", 16), weight("b", 16)], opset=21))
    (norm,) = [op for op in graph.ops if op.kind == "norm"]
    assert (norm.attrs["type"], norm.attrs["groups"]) == ("group", 4)
