"""Options, progress and listings of the commands."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from forerun import compare, explain
from forerun.cli import terminal
from forerun.cli.models import list_models
from forerun.device.carbon import load_grid
from forerun.errors import ForerunError
from forerun.networks import FILES, family_of

Run = Callable[..., subprocess.CompletedProcess[str]]
MODEL = "cnn:depth=3,filters=4"


def test_compare_takes_every_option_of_predict(run_forerun: Run) -> None:
    done = run_forerun(
        "compare", MODEL, "--devices", "h100-sxm,t4", "--host", "1.5", "--confidence", "0.8", "--region", "DEU",
        "--instance", "p5.48xlarge", "--runtime", "cudagraph",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "80 % interval" in done.stdout and "CO2 g" in done.stdout and "cudagraph" in done.stdout


def test_region_and_instance_decide_carbon_and_cost() -> None:
    world, france = (compare(MODEL, ["h100-sxm", "t4"], region=region) for region in (None, "FRA"))
    share = load_grid("FRA").g_per_kwh / load_grid("world").g_per_kwh
    assert (france["carbon_g"] / world["carbon_g"]).tolist() == pytest.approx([share, share])
    named = compare(MODEL, ["h100-sxm", "t4"], instance="p5.48xlarge").set_index("device")
    cheapest = world.set_index("device")
    assert named.loc["h100-sxm", "cost_usd"] > cheapest.loc["h100-sxm", "cost_usd"]
    assert named.loc["t4", "cost_usd"] == cheapest.loc["t4", "cost_usd"]
    with pytest.raises(ForerunError, match=r"p5\.48xlarge has h100-sxm, which is not among the devices"):
        compare(MODEL, ["t4"], instance="p5.48xlarge")


def test_help_says_what_is_run_and_what_is_taken(run_forerun: Run) -> None:
    words = " ".join(run_forerun("predict", "--help").stdout.split())
    assert "the .py files in it for a local folder" in words and "TorchScript" in words
    words = " ".join(run_forerun("measure", "--help").stdout.split())
    assert "timm and torchvision names" in words and "ONNX files" in words


def wait(seconds: float, quiet: bool = False) -> None:
    with terminal.waiting("reading net", quiet=quiet):
        time.sleep(seconds)


def test_a_long_wait_is_explained_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORERUN_PATIENCE_S", "0.05")
    monkeypatch.setattr(terminal, "EVERY_S", 0.1)
    wait(0.4)
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert lines[0] == "reading net …" and lines[-1].startswith("reading net: ") and len(lines) >= 3
    assert not shown.out


def test_a_short_wait_and_json_are_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wait(0.0)
    monkeypatch.setenv("FORERUN_PATIENCE_S", "0.01")
    wait(0.05, quiet=True)
    shown = capsys.readouterr()
    assert not shown.err and not shown.out


def test_json_is_alone_on_both_streams(start_forerun: Run, tmp_path: Path) -> None:
    done = start_forerun("predict", MODEL, "--device", "h200", "--json")
    assert json.loads(done.stdout)["model"] and not done.stderr


def test_models_lists_every_family() -> None:
    listed = list_models(None).data["families"]
    assert {row["family"] for row in listed} == {f"{prefix}:" for prefix in FILES}
    assert all(row["kind"] and row["settings"] for row in listed)
    (result,) = list_models("diffusion_unet").data["families"]
    assert result["settings"]["width"] == family_of("diffusion_unet:").settings["width"].default


def test_a_long_product_is_never_bound_by_its_launch() -> None:
    net = nn.Linear(8192, 8192, bias=False)
    for device, dtype in (("t4", "fp32"), ("h200", "fp32"), ("rtx4090", "fp64"), ("mi300x", "bf16")):
        result = explain(net, device, batch=16384, input_shape=(8192,), dtype=dtype)
        assert [op.bound for op in result.ops] == ["compute"], (device, dtype)


def test_a_tiny_op_is_bound_by_its_launch() -> None:
    result = explain(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), "h200", input_shape=(8,), dtype="fp32")
    assert {op.bound for op in result.ops} == {"launch"}


class Resized(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.conv = (nn.Conv1d if mode == "linear" else nn.Conv3d)(2, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(self.conv(x), scale_factor=2, mode=self.mode)


@pytest.mark.parametrize("mode", ["linear", "trilinear", "nearest", "nearest-exact"])
def test_the_backward_of_every_resize_has_a_kind(mode: str) -> None:
    from forerun.frontends import load_graph
    from forerun.workload import Workload

    shape = (2, 8) if mode == "linear" else (2, 4, 4, 4)
    graph = load_graph(Workload(Resized(mode), input_shape=shape, batch=2, mode="training"))
    assert [op.kind for op in graph.ops if "upsample" in op.name] == ["resize", "resize"]
    assert graph.notes == []
