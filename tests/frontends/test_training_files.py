"""Training steps of files: equal to those of the networks that the files were made from, and refused by name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from onnx_files import FLOAT, INT64, ints, model, weight
from torch import nn

import forerun
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.frontends.onnx.file import OnnxFrontend
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.workload import Workload

STEP = {"mode": "training", "optimizer": "adam"}


class Images(nn.Module):
    """Residuals, depthwise convolutions, a group norm, activations in place, chunks and a dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(True))
        self.inner = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.SiLU(True),
            nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16),
        )  # fmt: skip
        self.norm, self.pool = nn.GroupNorm(4, 16), nn.AvgPool2d(2)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.inner(x)
        y += x
        first, second = self.norm(self.pool(y.relu_())).chunk(2, 1)
        return self.head(torch.cat([second, first.tanh()], 1))


class Text(nn.Module):
    """An embedding, attention with dropout, a layer norm, an MLP, a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.into = nn.Embedding(100, 32), nn.LayerNorm(32), nn.Linear(32, 96)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.Dropout(0.1))
        self.recurrent, self.head = nn.LSTM(32, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        q, k, v = (t.view(t.shape[0], 16, 4, 8).transpose(1, 2) for t in self.into(self.norm(x)).split(32, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)
        x = x + y.transpose(1, 2).reshape(x.shape)
        return self.head(self.recurrent(x + self.mlp(x))[0][:, -1])


def exported(network: nn.Module, example: torch.Tensor, path: Path) -> str:
    torch.onnx.export(
        network.train(), (example,), str(path), dynamo=False, do_constant_folding=False, opset_version=18,
        training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], dynamic_axes={"x": {0: "batch"}},
    )  # fmt: skip
    return str(path)


def same(found: Graph, expected: Graph) -> None:
    """The limits that benchmarks/training_from_files.py holds many networks to."""
    assert found.parameters == expected.parameters
    assert totals(found).flops == pytest.approx(totals(expected).flops, rel=0.01)
    one, other = (forerun.predict(g, "h200", batch=8, **STEP) for g in (found, expected))
    for name in ("memory_allocated_mb", "memory_mb", "device_ms"):
        assert getattr(one, name).value == pytest.approx(getattr(other, name).value, rel=0.03), name
    counts = [Counter(op.kind for op in g.ops if op.kind in ("matmul", "conv_backward", "attention_backward"))
              for g in (found, expected)]  # fmt: skip
    assert counts[0] == counts[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("network", [Images(), Text()], ids=["images", "text"])
def test_a_training_step_of_a_file_is_that_of_its_network(network: nn.Module, tmp_path: Path) -> None:
    shape = (3, 16, 16) if isinstance(network, Images) else (16,)
    kind = torch.float32 if isinstance(network, Images) else torch.int64
    path = exported(network, torch.zeros(2, *shape, dtype=kind), tmp_path / "network.onnx")
    found = load_graph(Workload(path, batch=8, **STEP))
    expected = load_graph(Workload(network, batch=8, input_shape=shape, **STEP))
    same(found, expected)
    assert {op.phase for op in found.ops} == {"forward", "backward", "optimizer"}
    assert any("batch norms and dropouts that it still has" in note for note in found.notes)
    if isinstance(network, Images):
        assert {"stem.0", "inner.3", "head.3"} <= {op.scope for op in found.ops}
        amp = load_graph(Workload(path, batch=8, amp="fp16", **STEP))
        assert {amp.tensors[op.inputs[0]].dtype for op in amp.ops if op.kind == "conv"} == {"fp16"}


@pytest.mark.filterwarnings("ignore")
def test_a_program_of_torch_export_is_trained(tmp_path: Path) -> None:
    """It was exported for inference: its batch norms and dropouts are switched as `train()` would."""
    path = tmp_path / "images.pt2"
    free = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(Images().eval(), (torch.zeros(2, 3, 16, 16),), dynamic_shapes=free)
    torch.export.save(program, path)
    found = load_graph(Workload(str(path), batch=8, **STEP))
    same(found, load_graph(Workload(Images(), batch=8, input_shape=(3, 16, 16), **STEP)))
    assert all(op.attrs["training"] for op in found.ops if op.kind == "norm" and op.attrs["type"] == "batch")


def file_of(*nodes: onnx.NodeProto, weights: list[Any], **more: Any) -> onnx.ModelProto:
    return model(list(nodes), {"x": (FLOAT, ["N", 8])}, ["y"], weights, **more)


PRODUCT = helper.make_node("MatMul", ["x", "w"], ["h"], name="product")
WEIGHT = [weight("w", 8, 8)]
QUANTISED = [*WEIGHT, numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.uint8(0), "z")]
INDEX = [helper.make_node("ArgMax", ["h"], ["i"], axis=1), helper.make_node("Cast", ["i"], ["y"], to=FLOAT)]
BOOL = onnx.TensorProto.BOOL
BODY = helper.make_graph(
    [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Relu", ["a"], ["b"])], "body",
    [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("go", BOOL, []),
     helper.make_tensor_value_info("a", FLOAT, None)],
    [helper.make_tensor_value_info("again", BOOL, []), helper.make_tensor_value_info("b", FLOAT, None)],
)  # fmt: skip


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (file_of(PRODUCT, helper.make_node("QuantizeLinear", ["h", "s", "z"], ["q"], name="to int8"),
                 helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]), weights=QUANTISED),
         r"training needs the gradient of QuantizeLinear, for which there is no rule \(node 'to int8'\)"),
        (file_of(PRODUCT, helper.make_node("Loop", ["n", "", "h"], ["y"], name="turns", body=BODY),
                 weights=[*WEIGHT, numpy_helper.from_array(np.int64(3), "n")]),
         r"the gradient of Loop, .*'turns'"),
        (file_of(PRODUCT, helper.make_node("FastGelu", ["h"], ["y"], domain="com.microsoft"), weights=WEIGHT),
         r"the gradient of com\.microsoft\.FastGelu"),
        (file_of(PRODUCT, helper.make_node("ArgMax", ["h"], ["y"], axis=1), weights=WEIGHT),
         "no output of the model is in floating point"),
        (file_of(PRODUCT, *INDEX, weights=WEIGHT), "no output depends on a parameter by operators that have a"),
        (file_of(helper.make_node("Relu", ["x"], ["y"]), weights=[]), "there is nothing to train"),
    ],
    ids=["quantised", "loop", "domain", "no numbers", "no gradient", "no weights"],
)  # fmt: skip
def test_what_has_no_gradient_is_refused_by_name(proto: onnx.ModelProto, message: str) -> None:
    with pytest.raises(ForerunError, match=message) as caught:
        OnnxFrontend().load(proto, Workload(proto, batch=2, mode="training"))
    assert "\n" not in str(caught.value)


def test_statistics_and_constants_are_not_trained() -> None:
    """A batch norm's statistics are buffers; numbers are no tensors; a fixed batch is moved where it can be."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["n"]),
        helper.make_node("Mul", ["n", "half"], ["m"]), helper.make_node("Reshape", ["m", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]  # fmt: skip
    weights = [weight("w", 8, 3, 3, 3), *(weight(n, 8) for n in ("gamma", "beta", "mean", "var"))]
    weights += [numpy_helper.from_array(np.float32(0.5), "half"), ints("shape", 2, 8 * 16), weight("v", 8 * 16, 4)]
    proto = model(nodes, {"x": (FLOAT, [2, 3, 4, 4])}, ["y"], weights)
    graphs = OnnxFrontend().load(proto, Workload(proto, batch=6, **STEP))
    graph = next(g for g in graphs if g.serves(6)).at(6)
    assert graph.parameters == 216 + 16 + 512
    assert sum(s.role == "parameter" for s in graph.storages) == 4  # of the convolution, the norm and the product
    assert [op.attrs["training"] for op in graph.ops if op.kind == "norm"] == [True]
    (multiplied,) = [op for op in graph.ops if op.name.startswith("aten::mul") and op.phase == "forward"]
    assert len(multiplied.inputs) == 1
