"""ONNX files are measured on this machine's CPU with onnxruntime, under the protocol of PyTorch models."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from forerun.data.intake import add_graphs, model_row
from forerun.errors import ForerunError, MissingPackage
from forerun.frontends import load_graph
from forerun.measure.once import measure_workload
from forerun.training.gather import own_rows
from forerun.workload import Workload


@pytest.fixture
def net(tmp_path: Path) -> str:
    """y = relu(x w), for every batch."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [16, 4], [0.5] * 64)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", size]) for n, size in (("x", 16), ("y", 4)))
    graph = helper.make_graph(nodes, "net", [x], [y], [weight])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return str(path)


@pytest.fixture
def row(net: str) -> dict[str, Any]:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'forerun[onnxruntime]'")
    return measure_workload(Workload(net, batch=4))


def test_a_file_is_measured_like_a_model(row: dict[str, Any], net: str) -> None:
    assert row["latency_ms"] > 0 and row["timed_calls"] >= 5 and row["device"]["kind"] == "cpu"
    assert row["case"]["name"] == "net" and row["case"]["batch"] == 4 and row["case"]["dtype"] == "fp32"
    assert row["software"]["onnxruntime"]
    assert row["case"]["path"] == "net.onnx" and str(Path(net).parent) not in json.dumps(row)
    stored = model_row(row, "own")
    assert stored["runtime"] == "onnxruntime" and stored["extra"]["threads"] >= 1 and stored["source"] == "onnx"
    add_graphs([stored])
    assert "graph_hash" not in stored
    add_graphs([stored], onnx_files=[net])
    assert stored["graph_hash"] == load_graph(Workload(net, batch=4)).work_hash()


def test_nothing_is_learned_about_pytorch_from_it(row: dict[str, Any]) -> None:
    import pandas as pd

    rows = pd.DataFrame([{**model_row(row, "own"), "protocol": "forerun/2", "status": "ok"}])
    assert own_rows(rows).empty


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "training"}, "for inference only"), ({"dtype": "fp16"}, "in its own dtypes"),
        ({"amp": "fp16"}, "as it is"), ({"channels_last": True}, "as it is"), ({"runtime": "compile"}, "as it is"),
        ({"input_shape": {"z": (16,)}}, "no input called 'z'; it has x"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_one_sentence(net: str, settings: dict[str, Any], message: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'forerun[onnxruntime]'")
    with pytest.raises(ForerunError, match=message):
        measure_workload(Workload(net, **settings))


def test_without_onnxruntime_the_command_that_installs_it_is_named(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackage, match=r"add it with: pip install 'forerun\[onnxruntime\]'"):
        measure_workload(Workload(net))


def test_junk_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'forerun[onnxruntime]'")
    path = tmp_path / "junk.onnx"
    path.write_bytes(b"no model at all")
    with pytest.raises(ForerunError, match="could not be measured with onnxruntime") as caught:
        measure_workload(Workload(str(path)))
    assert "\n" not in str(caught.value)
    with pytest.raises(ForerunError, match="there is no file"):
        measure_workload(Workload(str(tmp_path / "none.onnx")))
