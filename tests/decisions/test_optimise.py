"""`forerun.optimise`: changes tried in prediction, what is claimed of them, and what they are together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from networks import Transformer
from onnx import helper, save
from onnx_files import FLOAT, model, weight
from torch import nn
from torch.utils.checkpoint import checkpoint
from typer.testing import CliRunner

import forerun
from forerun.cli.app import app
from forerun.decisions.optimise.optimise import Line, Optimisation
from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.profile import Profile
from forerun.predictors.base import Predictor, Times
from forerun.predictors.cases import TrainingCases
from forerun.predictors.laws import gain_errors
from forerun.predictors.saved import SHIPPED
from forerun.workload import Workload

CNN = "cnn:depth=2,filters=20,classes=10"


def line(found: Optimisation, name: str) -> Line:
    return next(one for one in found.lines if one.name == name)


def reasons(found: Optimisation) -> dict[str, str]:
    return {one.name: one.reason for one in found.left_out}


@pytest.fixture(scope="module")
def on_h200() -> Optimisation:
    return forerun.optimise(CNN, "h200", batch=4, goal="throughput")


def test_only_what_has_an_interval_above_one_is_claimed(on_h200: Optimisation) -> None:
    for one in on_h200.lines:
        assert one.gain.low <= one.gain.value <= one.gain.high
        assert (one.verdict == "claimed") == (one.gain.low > 1.02)
        assert (one.verdict == "worse") == (one.gain.high < 0.98)
    verdicts = [one.verdict for one in on_h200.lines]
    order = ["claimed", "cannot tell", "worse", "does not fit"]
    assert verdicts == sorted(verdicts, key=order.index) and {"claimed", "cannot tell"} <= set(verdicts)
    claimed = [one.gain.value for one in on_h200.lines if one.verdict == "claimed"]
    assert claimed == sorted(claimed, reverse=True)


def test_measured_pairs_give_narrower_intervals_than_two_independent_ones(on_h200: Optimisation) -> None:
    """Of two calls whose pace the same thing sets; of slices there is no measured pair."""
    slices = next(one for one in on_h200.lines if one.kind == "mig")
    assert "independent" in slices.interval_from
    for name in ("batch 32", "channels last", "bf16 weights", "autocast to bf16"):
        one = line(on_h200, name)
        before, after = one.before.latency_ms, one.after.latency_ms
        assert before and after and "measured pairs" in one.interval_from
        wide = np.hypot(np.log(before.value / before.low), np.log(after.high / after.value))
        assert np.log(one.gain.value / one.gain.low) < 0.8 * wide
    paired = line(on_h200, "CUDA graph")
    assert "measured pairs" in paired.interval_from
    narrow = forerun.optimise(CNN, "h200", batch=4, goal="throughput", confidence=0.6)
    assert line(narrow, "CUDA graph").gain.low > paired.gain.low
    assert line(narrow, "CUDA graph").gain.value == paired.gain.value


def test_a_device_that_nobody_measured_has_wider_intervals() -> None:
    known, other = (line(forerun.optimise(CNN, d, batch=4), "CUDA graph").gain for d in ("h200", "l4"))
    assert other.low / other.value < known.low / known.value


class Fixed(Predictor):
    """Latency by settings, each within a tenth; the claims follow by hand."""

    name, needs_fit, supports = "fixed", False, frozenset({"confidence", "runtime"})
    RUNTIME: ClassVar = {"eager": 10.0, "cudagraph": 5.0, "compile": 9.5, "compile-reduce-overhead": 20.0}

    def fit(self, cases: TrainingCases) -> Self:
        return self

    def times(self, profile: Profile, devices: Sequence[Device], workload: Workload) -> Times:
        ms = np.full((1, len(devices)), self.RUNTIME[workload.runtime] * (0.6 if workload.dtype == "bf16" else 1.0))
        return Times(ms, ms, ms / 10, ms / 100, ms / 1e3)

    def spread(self, target: str, times: Times, *_: Any) -> np.ndarray:
        return np.broadcast_to([0.9, 1.1], (*times.latency_ms.shape, 2))


def test_the_rule_of_claims_and_the_greedy_combination_by_hand() -> None:
    result = forerun.optimise(CNN, "h200", batch=4, predictor=Fixed())
    verdicts = {one.name: one.verdict for one in result.lines}
    # 2 x within exp(-hypot(log(1 / 0.9), log 1.1)) = 0.868: from 1.74 on.
    assert line(result, "CUDA graph").gain.low == pytest.approx(2 * np.exp(-np.hypot(np.log(1 / 0.9), np.log(1.1))))
    assert verdicts["CUDA graph"] == verdicts["bf16 weights"] == "claimed"
    assert verdicts["torch.compile"] == verdicts["channels last"] == "cannot tell"
    assert verdicts["torch.compile with CUDA graphs"] == "worse"
    assert [one.name for one in result.together] == ["CUDA graph", "bf16 weights"]
    assert [one.gain.value for one in result.together] == pytest.approx([2, 10 / 3])
    assert result.command is not None and "--runtime cudagraph" in result.command and "--dtype bf16" in result.command


def test_the_combination_is_predicted_as_a_whole(on_h200: Optimisation) -> None:
    last, command = on_h200.together[-1], on_h200.command
    assert command is not None
    done = CliRunner().invoke(app, [*command.split()[1:], "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["throughput"]["value"] == pytest.approx(last.after.to_dict()["throughput"]["value"])
    gains = [one.gain.value for one in on_h200.together]
    assert gains == sorted(gains)


def test_names_of_changes_are_one_name_each_and_slices_hold_a_call_each(on_h200: Optimisation) -> None:
    assert not [one.name for one in on_h200.lines if "," in one.name]
    cut = next(one for one in on_h200.lines if one.kind == "mig")
    assert cut.shared_by > 1 and cut.before.memory_mb and cut.after.memory_mb
    assert cut.memory_change_mb == pytest.approx(cut.shared_by * cut.after.memory_mb.value - cut.before.memory_mb.value)


def test_what_does_not_fit_is_no_advice() -> None:
    now = forerun.predict(CNN, "t4", batch=4096, measured=False)
    assert now.memory_mb is not None
    small = {"base": "t4", "name": "small", "memory_gb": now.memory_mb.value / 1024 * 1.5}
    result = forerun.optimise(CNN, small, batch=4096, goal="throughput")
    tight = line(result, "batch 32768")
    assert tight.verdict == "does not fit" and "does not fit" in tight.to_dict()["fit"]
    assert tight.name not in {one.name for one in result.together}
    assert all(one.after.fit is not None and one.after.fit.fits for one in result.together)


def test_a_cpu_has_no_cuda_graphs() -> None:
    result = forerun.optimise(CNN, "xeon-emr-2vcpu", batch=4)
    assert "no CUDA graphs" in reasons(result)["CUDA graph"] and "TF32" in reasons(result)["TF32 matmuls"]
    assert {"bf16 weights", "channels last"} <= {one.name for one in result.lines}


def test_goals_keep_or_change_the_batch() -> None:
    latency, energy = (forerun.optimise(CNN, "h200", batch=4, goal=goal) for goal in ("latency", "energy"))
    assert {one.after.workload["batch"] for one in latency.lines} == {4}
    assert "larger batch" in reasons(latency)
    one = line(energy, "batch 32")
    assert one.before.energy_j and one.after.energy_j
    assert one.gain.value == pytest.approx(8 * one.before.energy_j.value / one.after.energy_j.value)
    assert energy.other_devices and all(other.device != "h200" for other in energy.other_devices)


class Checkpointed(nn.Module):
    """A stack of blocks, each run again in the backward pass if so asked."""

    def __init__(self, again: bool, layers: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Feed() for _ in range(layers))
        self.again = again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return x


class Feed(nn.Module):
    """x + down(gelu(up(norm(x))))."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(256), nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def training() -> Optimisation:
    settings: dict[str, Any] = {"mode": "training", "optimizer": "adamw", "batch": 128, "input_shape": (128, 256)}
    return forerun.optimise(Checkpointed(False), "h200", goal="memory", **settings)


def test_checkpointing_is_what_pytorch_makes_of_it(training: Optimisation) -> None:
    one = line(training, "gradient checkpointing")
    settings: dict[str, Any] = {"mode": "training", "optimizer": "adamw", "batch": 128, "input_shape": (128, 256)}
    real = forerun.predict(Checkpointed(True), "h200", measured=False, **settings)
    assert one.after.flops == real.flops and one.after.bytes == real.bytes
    assert one.after.to_dict()["memory_allocated_mb"] == pytest.approx(real.to_dict()["memory_allocated_mb"])
    assert one.after.to_dict()["device_ms"] == pytest.approx(real.to_dict()["device_ms"])
    assert one.after.latency_ms and one.before.latency_ms and one.after.memory_mb and one.before.memory_mb
    assert one.after.latency_ms.value > one.before.latency_ms.value
    assert one.memory_change_mb is not None and one.memory_change_mb < -0.3 * one.before.memory_mb.value
    assert one.verdict == "claimed" and one.where == "settings" and "checkpoint(" in one.code
    assert one.after == forerun.predict(one.workload.model, "h200", measured=False, dtype="fp32", **settings)


def test_a_fused_optimizer_reads_and_writes_everything_once(training: Optimisation) -> None:
    one = line(training, "fused optimizer")
    steps = [op for op in one.workload.model.ops if op.phase == "optimizer"]
    weights = 4 * one.before.parameters
    assert [op.attrs["bytes_read"] for op in steps] == [4 * weights]  # weights, gradients, two states
    assert [op.attrs["bytes_written"] for op in steps] == [3 * weights]
    assert one.after.bytes < one.before.bytes and one.after.macs == one.before.macs
    assert "fused=True" in one.code and "independent" in one.interval_from
    assert "half precision" in reasons(training) and "int8 and int4 weights" in reasons(training)


def test_a_language_model_has_weights_lengths_and_channels_to_change() -> None:
    result = forerun.optimise("distilgpt2", "h200", mode="prefill", batch=2, seq_len=130, dtype="bf16")
    assert {"int8 weights", "int4 weights", "sequence padded to 136", "sequence padded to 192"} <= {
        one.name for one in result.lines
    }
    wide = line(result, "channels on the tensor-core grid")
    assert wide.where == "network" and "50257 -> 50304" in wide.code
    shapes = {t.shape for t in wide.workload.model.tensors}
    assert not any(50257 in shape for shape in shapes) and any(50304 in shape for shape in shapes)
    assert wide.name not in {one.name for one in result.together}
    padded = line(result, "sequence padded to 192")
    assert padded.before.latency_ms and padded.after.latency_ms
    assert padded.gain.value == pytest.approx(padded.before.latency_ms.value / padded.after.latency_ms.value)
    assert "images" in reasons(result)["channels last"]


def test_an_onnx_file_keeps_its_dtypes(tmp_path: Path) -> None:
    path = tmp_path / "linear.onnx"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    save(model(nodes, {"x": (FLOAT, ["batch", 64])}, ["y"], [weight("w", 64, 64)]), path)
    result = forerun.optimise(str(path), "h200", batch=4)
    assert "CUDA graph" in {one.name for one in result.lines}
    why = reasons(result)
    assert "own dtypes" in why["autocast to bf16"] and "own dtypes" in why["channels last"]


def test_a_captured_graph_is_changed_in_what_is_not_captured() -> None:
    graph = forerun.optimise(Transformer(layers=2), "h200", input_shape={"ids": (16,)}).lines[0].workload.model
    result = forerun.optimise(graph, "h200", dtype="fp32")
    assert "captured with" in reasons(result)["bf16 weights"]
    assert line(result, "CUDA graph").verdict == "claimed" and result.command is None


@pytest.mark.parametrize(
    ("device", "settings", "message"),
    [
        ("h200", {"goal": "speed"}, "there is no goal 'speed'"),
        (
            {"base": "t4", "name": "mine"},
            {"goal": "cost"},
            "the goal cost cannot be predicted: no cloud price is known",
        ),
        ("h200", {"colour": "red"}, "not a setting of a workload"),
        ("h200", {"mode": "decode"}, "no decode mode|decode"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(device: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ForerunError, match=message):
        forerun.optimise(CNN, device, **settings)


def test_the_command_prints_a_table_that_fits_and_json(on_h200: Optimisation) -> None:
    words = ["optimise", CNN, "--device", "h200", "--batch", "4", "--goal", "throughput"]
    for width in (80, 160):
        done = CliRunner(env={"COLUMNS": str(width)}).invoke(app, words)
        assert done.exit_code == 0, done.output
        lines = done.output.splitlines()
        assert on_h200.command in lines  # to paste: on one line, however narrow
        codes = {one.code for one in on_h200.lines}
        assert all(len(text) <= width or text == on_h200.command or text.strip() in codes for text in lines)
        for part in ("Claimed", "Cannot tell", "Together", "forerun predict", "measured pairs"):
            assert part in done.output
    done = CliRunner().invoke(app, [*words, "--json"])
    assert json.loads(done.output) == json.loads(json.dumps(on_h200.to_dict()))
    assert CliRunner().invoke(app, [*words[:-1], "speed"]).exit_code != 0


def test_the_errors_of_gains_belong_to_the_shipped_weights(tmp_path: Path) -> None:
    rows = gain_errors.read(SHIPPED / "default")
    assert rows is not None and rows.about["last_measured"]
    for kind in ("half", "amp", "cudagraph", "batch", gain_errors.SEVERAL):
        assert rows.pairs("latency_ms", kind, "gpu") >= gain_errors.ENOUGH_PAIRS
    assert rows.kind_of("latency_ms", ("half", "cudagraph"), "gpu") == gain_errors.SEVERAL
    assert rows.kind_of("latency_ms", ("half", "fused-optimizer"), "gpu") is None
    # Beside other weights they say nothing.
    (tmp_path / gain_errors.FILE).write_bytes((SHIPPED / "default" / gain_errors.FILE).read_bytes())
    (tmp_path / "arrays.safetensors").write_bytes(b"other weights")
    assert gain_errors.read(tmp_path) is None
