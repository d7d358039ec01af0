"""onnxruntime on CPUs: what it fuses, how it is predicted, and what is learned from files that it ran."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import forerun
from forerun.cli.app import app
from forerun.data import saved_graphs
from forerun.data.intake import add_graphs, model_row
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.ir import Graph
from forerun.measure.once import measure_workload
from forerun.predictors.default import DefaultPredictor
from forerun.runtimes.notes import PYTORCH_NOTE
from forerun.runtimes.onnxruntime import ONNXRUNTIME_NOTE, OnnxRuntime
from forerun.runtimes.registry import as_run
from forerun.training.gather import cases_apart
from forerun.workload import Workload

CPU = "xeon-clx-2vcpu"


class Net:
    """An ONNX file, node by node."""

    def __init__(self, *shape: int | str) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.full(shape, 0.5, dtype=np.float32), name))
        return name

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        out = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attrs))
        return out

    def saved(self, path: Path, last: str) -> str:
        out = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", [self.given], [out], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return str(path)


def fused(path: str, **settings: Any) -> tuple[Graph, Graph]:
    graph = load_graph(Workload(path, batch=2, runtime="onnxruntime", **settings))
    return graph, as_run(graph, "onnxruntime")


def kinds(graph: Graph) -> dict[str, int]:
    return dict(Counter(op.kind for op in graph.ops))


def macs(graph: Graph) -> float:
    from forerun.graph.cost import totals

    return float(totals(graph).macs)


@pytest.fixture
def residual(tmp_path: Path) -> str:
    """Two convolutions with a batch norm, a skip connection around the second, and activations."""
    net = Net(8, 16, 16)
    x = net.add("Conv", "x", net.weight(8, 8, 3, 3), net.weight(8), pads=[1, 1, 1, 1])
    x = net.add("BatchNormalization", x, *(net.weight(8) for _ in range(4)))
    x = net.add("Relu", x)
    y = net.add("Conv", x, net.weight(8, 8, 3, 3), pads=[1, 1, 1, 1])
    return net.saved(tmp_path / "residual.onnx", net.add("Relu", net.add("Add", y, "x")))


def test_convolutions_take_in_norms_sums_and_activations(residual: str) -> None:
    before, after = fused(residual)
    assert kinds(after) == {"conv": 2}
    assert len(before.ops) > 5
    assert macs(after) == macs(before)
    skip = after.ops[1]
    roles = [after.storages[after.tensors[t].storage].role for t in skip.inputs]
    assert roles.count("input") == 1  # the skip connection is still read


def test_what_something_else_reads_is_not_taken_in(tmp_path: Path) -> None:
    net = Net(8, 16, 16)
    x = net.add("Conv", "x", net.weight(8, 8, 1, 1))
    y = net.add("Add", net.add("Relu", x), net.add("Tanh", x))
    _, after = fused(net.saved(tmp_path / "two.onnx", y))
    assert kinds(after) == {"conv": 1, "elementwise": 3}


def gelu(net: Net, x: str) -> str:
    half, one, root = (net.weight() for _ in range(3))
    y = net.add("Add", net.add("Erf", net.add("Div", x, root)), one)
    return net.add("Mul", net.add("Mul", x, y), half)


def layer_norm(net: Net, x: str, width: int) -> str:
    centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
    spread = net.add("ReduceMean", net.add("Pow", centred, net.weight()), axes=[-1])
    y = net.add("Div", centred, net.add("Sqrt", net.add("Add", spread, net.weight())))
    return net.add("Add", net.add("Mul", y, net.weight(width)), net.weight(width))


def test_functions_that_are_spelt_out_become_one_op(tmp_path: Path) -> None:
    net = Net(4, 16)
    x = net.add("Add", net.add("MatMul", "x", net.weight(16, 16)), net.weight(16))
    x = net.add("MatMul", gelu(net, x), net.weight(16, 16))
    silu = net.add("Mul", x, net.add("Sigmoid", x))
    _, after = fused(net.saved(tmp_path / "spelt.onnx", layer_norm(net, silu, 16)))
    assert [op.kind for op in after.ops] == ["matmul", "elementwise", "matmul", "elementwise", "norm"]
    assert after.ops[-1].attrs["type"] == "layer"


def test_a_layer_norm_takes_in_the_sum_before_it_and_the_sum_is_still_there(tmp_path: Path) -> None:
    net = Net(4, 16)
    total = net.add("Add", "x", net.add("MatMul", "x", net.weight(16, 16)))
    y = net.add("LayerNormalization", total, net.weight(16), net.weight(16))
    _, after = fused(net.saved(tmp_path / "skip.onnx", net.add("Add", net.add("Relu", y), total)))
    assert [op.kind for op in after.ops] == ["matmul", "norm", "elementwise", "elementwise"]
    assert len(after.ops[1].outputs) == 2


def test_what_weights_alone_decide_is_computed_once(tmp_path: Path) -> None:
    net = Net(64, 16, 16)
    kernel = net.weight(64, 64, 3, 3)
    centred = net.add("Sub", kernel, net.add("ReduceMean", kernel, axes=[1, 2, 3]))
    x = net.add("Conv", "x", net.add("Mul", centred, net.weight(64, 1, 1, 1)), pads=[1, 1, 1, 1])
    token = net.add("Expand", net.weight(1, 64, 16, 16), net.add("Shape", "x"))  # as long as the batch: at every call
    before, after = fused(net.saved(tmp_path / "standardised.onnx", net.add("Concat", x, token, axis=0)))
    assert kinds(before) == {"reduce": 1, "elementwise": 2, "conv": 1, "copy": 2}
    assert [op.kind for op in after.ops] == ["conv", "copy", "copy"]
    made = after.storages[after.tensors[after.ops[0].inputs[1]].storage]
    assert (made.role, made.born, made.dies, made.bytes) == ("buffer", -1, None, 64 * 64 * 9 * 4)
    kept = sum(s.bytes for s in after.storages if s.role in ("parameter", "buffer"))
    assert kept == 64 * 64 * 9 * 4 + 64 * 16 * 16 * 4  # the weights as they were in the file are gone
    assert macs(after) == macs(before)


def test_masks_that_no_input_decides_are_computed_once(tmp_path: Path) -> None:
    net = Net(64, 128, 128)
    net.weights.append(numpy_helper.from_array(np.array([1, 1, 128, 128], dtype=np.int64), "square"))
    mask = net.add("Mul", net.add("Trilu", net.add("ConstantOfShape", "square")), net.weight(1, 1, 128, 1))
    _, after = fused(net.saved(tmp_path / "masked.onnx", net.add("Add", "x", mask)))
    assert [op.kind for op in after.ops] == ["elementwise"]


def test_what_follows_the_shape_of_an_input_is_computed_at_every_call(tmp_path: Path) -> None:
    net = Net("sequence", 64)
    for name, values in {"zero": [0], "one": [1], "two": [2]}.items():
        net.weights.append(numpy_helper.from_array(np.array(values, dtype=np.int64), name))
    length = net.add("Slice", net.add("Shape", "x"), "one", "two")
    places = net.add("MatMul", net.add("Slice", net.weight(512, 64), "zero", length, "zero"), net.weight(64, 64))
    path = net.saved(tmp_path / "places.onnx", net.add("Add", "x", places))
    _, after = fused(path, seq_len=128)
    assert [op.kind for op in after.ops] == ["copy", "matmul", "elementwise"]


def test_weights_that_a_call_may_replace_are_multiplied_at_every_call(tmp_path: Path) -> None:
    net = Net(16, 128)
    product = net.add("MatMul", net.weight(128, 128), net.weight(128, 128))
    path = Path(net.saved(tmp_path / "defaults.onnx", net.add("MatMul", "x", product)))
    model = onnx.load(path)
    model.graph.input.extend(helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in net.weights)
    for version, kept in ((9, 2), (3, 1)):
        model.ir_version = version
        onnx.save(model, path)
        assert kinds(fused(str(path))[1]) == {"matmul": kept}


def test_a_weight_that_an_input_chooses_is_multiplied_at_every_call(tmp_path: Path) -> None:
    net = Net("sequence", 128)
    one, other = net.weight(128, 128), net.weight(128, 128)
    out = helper.make_tensor_value_info("chosen", TensorProto.FLOAT, [128, 128])
    branches = {
        name: helper.make_graph([helper.make_node("Identity", [w], ["chosen"])], name, [], [out])
        for name, w in (("then_branch", one), ("else_branch", other))
    }
    positive = net.add("Greater", net.add("ReduceMax", "x", keepdims=0), net.weight())
    product = net.add("MatMul", net.add("If", positive, **branches), net.weight(128, 128))
    padded = net.add("MatMul", net.add("Pad", net.weight(128, 64), padding(net)), net.weight(64, 64))
    last = net.add("Add", net.add("MatMul", "x", product), net.add("ReduceMax", padded, keepdims=0))
    _, after = fused(net.saved(tmp_path / "chosen.onnx", last), seq_len=128)
    assert kinds(after)["matmul"] == 3


def padding(net: Net) -> str:
    """What brings 128 rows to the length of the input: nothing, where that is 128."""
    for name, values in {"one": [1], "two": [2], "rows": [128], "nothing": [0, 0], "last": [0]}.items():
        net.weights.append(numpy_helper.from_array(np.array(values, dtype=np.int64), name))
    more = net.add("Sub", net.add("Slice", net.add("Shape", "x"), "one", "two"), "rows")
    return net.add("Concat", "nothing", more, "last", axis=0)


def test_turns_of_a_loop_are_computed_at_every_call(tmp_path: Path) -> None:
    """Its state begins as a weight, and its body reads weights and what the turn before left."""
    turn = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "inside"], ["product"]),
            helper.make_node("Tanh", ["product"], ["next"]),
            helper.make_node("Identity", ["go"], ["still"]),
        ],
        "turn",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, [64, 128]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [64, 128]),
        ],
        [numpy_helper.from_array(np.full((128, 128), 0.1, dtype=np.float32), "inside")],
    )
    net = Net(64, 128)
    net.weights.append(numpy_helper.from_array(np.array(32, dtype=np.int64), "turns"))
    net.weights.append(numpy_helper.from_array(np.array(True), "yes"))
    state = net.add("Loop", "turns", "yes", net.weight(64, 128), body=turn)
    before, after = fused(net.saved(tmp_path / "loop.onnx", net.add("Add", "x", state)))
    assert macs(after) == macs(before) == 32 * 64 * 128 * 128


def test_an_answer_for_onnxruntime_is_of_onnxruntime(residual: str) -> None:
    eager = forerun.predict(residual, CPU, batch=2)
    answer = forerun.predict(residual, CPU, batch=2, runtime="onnxruntime")
    assert answer.basis == "learned"
    assert not [note for note in answer.notes if "out of domain" in note]
    assert ONNXRUNTIME_NOTE in answer.notes and PYTORCH_NOTE not in answer.notes
    assert PYTORCH_NOTE in eager.notes
    assert answer.latency_ms.low < answer.latency_ms.value < answer.latency_ms.high
    assert answer.macs == eager.macs
    assert answer.check == f"forerun measure {residual} --batch 2"


def test_more_cores_are_faster_and_a_larger_batch_takes_longer() -> None:
    def latency(device: str, batch: int) -> float:
        return float(forerun.predict("resnet18", device, batch=batch, runtime="onnxruntime").latency_ms.value)

    assert latency(CPU, 4) < 0.8 * latency("xeon-clx-1vcpu", 4)
    assert latency(CPU, 4) > 2 * latency(CPU, 1)


def test_a_pytorch_model_is_answered_as_its_export_would_run() -> None:
    answer = forerun.predict("mobilenetv2_100", CPU, runtime="onnxruntime")
    assert ONNXRUNTIME_NOTE in answer.notes
    assert answer.latency_ms.value < forerun.predict("mobilenetv2_100", CPU).latency_ms.value


@pytest.mark.parametrize(
    "settings", [{"mode": "training"}, {"dtype": "fp16"}, {"amp": "bf16"}, {"channels_last": True}]
)
def test_what_was_not_measured_in_onnxruntime_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ForerunError, match="inference in fp32"):
        forerun.predict("mobilenetv2_100", CPU, runtime="onnxruntime", **settings)


@pytest.fixture
def measured(residual: str, tmp_path: Path) -> Store:
    """A store with the row of a file that onnxruntime ran here, and the file gone."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'forerun[onnxruntime]'")
    store = Store(tmp_path / "store", shipped=False)
    rows = [model_row(measure_workload(Workload(residual, batch=2)), "own")]
    saved_graphs.save(store, add_graphs(rows, onnx_files=[residual]))
    store.append("models", [{**row, "device": CPU} for row in rows])
    Path(residual).unlink()
    return store


def test_a_measured_file_is_learned_from_without_the_file(measured: Store) -> None:
    cases = cases_apart(OnnxRuntime(), measured, measured.read("models"))
    assert cases is not None and len(cases) == 1
    assert len(cases.ops.classes) == 2  # two convolutions, as onnxruntime fuses them
    assert cases.rows["latency_ms"][0] > 0


def test_predicted_and_measured_side_by_side(residual: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'forerun[onnxruntime]'")
    shown = CliRunner().invoke(app, ["verify", residual, "--batch", "2", "--no-keep", "--json"])
    found = json.loads(shown.stdout)
    assert found["prediction"]["workload"]["runtime"] == found["measurement"]["case"]["runtime"] == "onnxruntime"
    assert found["checks"][0]["measured"] > 0


def test_weights_without_rows_of_onnxruntime_say_so() -> None:
    predictor = DefaultPredictor()
    predictor.weights_ = replace(predictor.weights, networks={"cpu": predictor.weights.networks["cpu"]})
    with pytest.raises(ForerunError, match="without rows of onnxruntime"):
        forerun.predict("resnet18", CPU, runtime="onnxruntime", predictor=predictor)
