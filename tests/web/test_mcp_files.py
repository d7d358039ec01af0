"""What an assistant may name: files below allowed folders where it started forerun itself, names alone over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_files
import pytest
from mcp_calls import Calls, data, over_http, over_stdio, refusal
from onnx import helper
from web_server import Served

import forerun

MODEL = "cnn:depth=2,filters=8"


def small_onnx(folder: Path) -> Path:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["y"], ["z"])]
    inputs = {"x": (onnx_files.FLOAT, ["batch", 3, 32, 32])}
    onnx.save(onnx_files.model(nodes, inputs, ["z"], [onnx_files.weight("w", 4, 3, 3, 3)]), folder / "small.onnx")
    return folder / "small.onnx"


def test_files_are_served_from_the_allowed_folder_alone(tmp_path: Path) -> None:
    here, other, outside = (tmp_path / name for name in ("here", "other", "outside"))
    for folder in (here / "sub", other, outside, here / "checkpoint", here / "linked"):
        folder.mkdir(parents=True)
    for place in (here / "sub", other, outside):
        small_onnx(place)
    (here / "link.onnx").symlink_to(outside / "small.onnx")
    (here / "inside.onnx").symlink_to(here / "sub" / "small.onnx")
    (here / "out").symlink_to(outside)
    (here / "net.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    (here / "chip.yaml").write_text("name: My chip\nbase: h100-sxm\nbandwidth_gbs: 2000\n")
    (outside / "config.json").write_text('{"model_type": "bert"}')
    (here / "linked" / "config.json").symlink_to(outside / "config.json")
    (here / "checkpoint" / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": 1}')
    served = ("sub/small.onnx", "./sub/small.onnx", str(here / "sub" / "small.onnx"), "inside.onnx", "checkpoint")
    refused = (
        "link.onnx", "../outside/small.onnx", "sub/../../outside/small.onnx", str(outside / "small.onnx"),
        "out/small.onnx", "/etc/passwd.onnx", "linked", "../other/small.onnx", "~root/small.onnx",
    )  # fmt: skip
    unknown = ("net.py", "net.py:Net", "sub/none.onnx", "weights.safetensors", "x" * 400)
    calls: Calls = [("predict", {"model": name, "device": "l4"}) for name in (*served, *refused, *unknown)]
    answer = over_stdio([*calls, ("predict", {"model": MODEL, "device": "chip.yaml"})], here)
    expected = forerun.predict(str(here / "sub" / "small.onnx"), "l4").latency_ms
    assert expected is not None
    for name, result in zip(served, answer, strict=False):
        value = data(result)["latency_ms"]["value"]
        assert name == "checkpoint" or value == pytest.approx(expected.value, rel=1e-5), name
    for name, result in zip(refused, answer[len(served) :], strict=False):
        assert "is outside the folders" in refusal(result), name
    for name, result in zip(unknown, answer[len(served) + len(refused) :], strict=False):
        assert refusal(result), name
    assert "is Python code, which is not run" in refusal(answer[len(served) + len(refused)])
    assert not (here / "ran").exists()
    assert data(answer[-1])["device"] == "chip"

    named = [("predict", {"model": name, "device": "l4"}) for name in ("small.onnx", "sub/small.onnx")]
    first, second = over_stdio(named, here, "--folder", str(other))
    assert not first.is_error and second.is_error  # the folders that are named are all there are


def test_over_http_no_path_is_opened(served: Served, tmp_path: Path) -> None:
    path = small_onnx(tmp_path)
    names = [str(path), "small.onnx", "./small.onnx", "../etc/passwd", "net.py", "."]
    for result in over_http(served, [("predict", {"model": name, "device": "l4"}) for name in names]):
        assert "the server opens no paths" in refusal(result)


def test_a_folder_does_not_hide_a_model_of_the_catalogue(tmp_path: Path) -> None:
    for name in ("resnet18", "bert-base-uncased", "timm/resnet18"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": 1}')
    names = ("resnet18", "bert-base-uncased", "timm/resnet18", "./resnet18")
    fields = {"fields": ["parameters"]}
    results = over_stdio([("predict", {"model": name, "device": "l4", **fields}) for name in names], tmp_path)
    counts = [data(result)["parameters"] for result in results]
    assert counts[0] == counts[2] == 11_689_512
    assert counts[1] == forerun.predict("bert-base-uncased", "l4").parameters > counts[3]


def test_a_folder_that_is_not_there_is_refused(run_forerun: Any) -> None:
    done = run_forerun("mcp", "--folder", "nowhere")
    assert done.returncode == 2 and "there is no folder nowhere" in done.stderr
