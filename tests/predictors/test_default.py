"""The default predictor as users meet it, and the held-out figures of its last fit."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import forerun
from forerun import predict
from forerun._util.companion import companion
from forerun.data.splits import kinds_of_network
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import full, report
from forerun.evaluate.collect import collect
from forerun.evaluate.kinds import WELL_KNOWN
from forerun.evaluate.metrics import figures
from forerun.evaluate.scoreboard import board, with_intervals
from forerun.evaluate.stored import stored_predictions
from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.predictors.default import DefaultPredictor
from forerun.predictors.laws.conformal import OUT_OF_DISTRIBUTION
from forerun.predictors.laws.energy import back_to_back_ms
from forerun.predictors.saved import ARRAYS, FILE, SHIPPED

CNN = "cnn:depth=4,filters=16,classes=10"
WEIGHTS = SHIPPED / "default"


def test_confidence_sets_the_width() -> None:
    narrow, wide = (predict(CNN, "a100", batch=64, confidence=c).latency_ms for c in (0.6, 0.95))
    assert narrow is not None
    assert wide is not None
    assert narrow.value == wide.value
    assert wide.low < narrow.low < narrow.high < wide.high
    with pytest.raises(ForerunError, match="confidence must be from"):
        predict(CNN, "a100", confidence=1.2)


def test_a_slow_host_slows_what_the_host_binds() -> None:
    fast, slow = (predict(CNN, "a100", batch=1, host=h) for h in (1, 3))
    assert fast.bound == slow.bound == "host"
    assert slow.latency_ms.value == pytest.approx(3 * fast.latency_ms.value, rel=0.1)  # type: ignore[union-attr]
    assert slow.device_ms == fast.device_ms
    default_slowness = DefaultPredictor.shipped().weights.host.default_slowness
    unknown, given = (predict(CNN, "a100", batch=1, host=h) for h in ("default", default_slowness))
    assert unknown.latency_ms == given.latency_ms
    with pytest.raises(ForerunError, match="how many times slower"):
        predict(CNN, "a100", host="fast")


def test_what_was_never_measured_is_named_and_widens_the_interval() -> None:
    seen = predict(CNN, "h200", batch=3)
    unseen = predict(CNN, "rtx3080", batch=3)
    assert seen.basis == unseen.basis == "learned"
    assert not any("out of domain" in note for note in seen.notes)
    assert any("out of domain" in note and "rtx3080" in note for note in unseen.notes)
    assert seen.device_ms is not None
    assert unseen.device_ms is not None
    assert unseen.device_ms.high / unseen.device_ms.low > seen.device_ms.high / seen.device_ms.low
    assert seen.provenance["rows"]["models"]
    fewer = DefaultPredictor.shipped()  # as if no op had ever been measured
    fewer.weights_ = dataclasses.replace(fewer.weights, domain=dict(fewer.weights.domain) | {"ops": []})
    both = predict(CNN, "rtx3080", batch=3, predictor=fewer)
    assert both.device_ms is not None
    one, two = (np.log(p.device_ms.high / p.device_ms.value) for p in (unseen, both))
    assert two**2 - one**2 == pytest.approx((1.645 * OUT_OF_DISTRIBUTION["ops"]) ** 2, rel=0.01)
    tpu = predict(CNN, "tpu-v5e", batch=3)
    assert tpu.basis == "roofline"


def test_every_group_that_answers_is_calibrated() -> None:
    known = DefaultPredictor.shipped().weights.calibration.counts
    for mode in ("inference", "training", "prefill", "decode"):
        for group in (f"cpu/{mode}", f"latency_ms/{mode}", f"device_ms/{mode}", f"energy_j/{mode}"):
            assert known[group] >= 40, group


def test_intervals_on_cpus_hold_for_families_that_neither_fit_nor_calibration_saw() -> None:
    rows = stored_predictions(WEIGHTS, "cpu").assign(predicted_host_ms=0.0)
    rows = rows.assign(predicted_device_ms=rows["predicted_latency_ms"])
    low, high = with_intervals(rows, "latency_ms", DefaultPredictor())
    held = ((low <= rows["latency_ms"]) & (rows["latency_ms"] <= high)).groupby(rows["family"]).mean()
    counts = rows["family"].value_counts()[held.index]
    # Rows of one family err together, so the families are the independent cases: two standard deviations of these.
    mean = float(np.average(held, weights=counts))
    deviation = float(np.sqrt(np.average((held - mean) ** 2, weights=counts) * (counts**2).sum()) / counts.sum())
    assert abs(mean - 0.9) < 2 * deviation
    assert 0.83 < mean < 0.97


def test_the_share_that_stands_on_measurements_is_reported() -> None:
    assert predict(CNN, "h200", batch=3).provenance["learned_share"] == 1.0
    assert predict(CNN, "tpu-v5e", batch=3).provenance["learned_share"] == 0.0
    storages = [Storage(2**20, "activation") for _ in range(3)]
    tensors = [Tensor((512, 512), "fp32", i) for i in range(3)]
    ops = [Op("unknown", "acme::frobnicate", (0,), (1,)), Op("elementwise", "aten::neg", (1,), (2,))]
    half = predict(Graph("half known", ops, tensors, storages, 0, 0), "h200").provenance["learned_share"]
    assert 0.0 < half < 1.0


class OneMatmul(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.nn.Linear(8192, 8192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wide(x)


@pytest.mark.parametrize("name", ["t4", "l4", "h100-pcie"])
def test_a_chip_at_its_power_limit_is_slow_for_that_reason(name: str) -> None:
    device = load_device(name)
    case: dict[str, Any] = {"model": OneMatmul(), "batch": 8192, "input_shape": (8192,), "dtype": "fp16"}
    p = predict(device=device, **case)
    assert p.power_w.value > 0.8 * device.tdp_w
    assert forerun.explain(device=device, **case).ops[0].bound == "compute"
    for factor in (0.8, 1.2):  # all but the little that is not arithmetic follows the limit
        other = predict(device=dataclasses.replace(device, tdp_w=factor * device.tdp_w), **case)
        assert other.device_ms.value * factor == pytest.approx(p.device_ms.value, rel=0.02)


def test_memory_intervals_are_calibrated_too() -> None:
    narrow, wide = (predict(CNN, "h200", batch=3, mode="training", confidence=c) for c in (0.6, 0.95))
    plain = predict("gpt2", "h200", batch=3, mode="prefill", seq_len=48, dtype="bf16", confidence=0.95)
    for name in ("memory_mb", "memory_allocated_mb"):
        a, b, c = (getattr(p, name) for p in (narrow, wide, plain))
        assert b.low <= a.low <= a.value <= a.high <= b.high
        assert c.high / c.low < b.high / b.low  # what cuDNN takes beside the tensors is its own choice


def test_runtimes_differ_where_reality_does() -> None:
    eager, replay, fused = (
        predict("resnet50", "h200", batch=1, dtype="fp16", runtime=r) for r in ("eager", "cudagraph", "compile")
    )
    assert eager.bound == "host"
    assert replay.latency_ms.value < eager.latency_ms.value / 2  # type: ignore[union-attr]
    assert fused.latency_ms.value < eager.latency_ms.value  # type: ignore[union-attr]
    assert fused.bytes < 0.95 * eager.bytes  # weights, most of it at this batch, are copied into another layout
    assert fused.macs == eager.macs


def test_weights_are_data_and_small(tmp_path: Path) -> None:
    assert sum(f.stat().st_size for f in WEIGHTS.iterdir()) < 20 * 2**20
    assert {f.suffix for f in WEIGHTS.iterdir()} == {".json", ".safetensors", ".md"}
    shipped, copy = DefaultPredictor.shipped(), tmp_path / "copy"
    shipped.save(copy)
    assert (copy / ARRAYS).read_bytes() == (WEIGHTS / ARRAYS).read_bytes()
    first, again = (predict(CNN, "t4", batch=3, predictor=p) for p in (shipped, copy))
    assert again.to_dict() == first.to_dict()
    (copy / FILE).write_text(json.dumps({"predictor": "default", "format": 99}))
    with pytest.raises(ForerunError, match="format 99"):
        DefaultPredictor.load(copy)
    with pytest.raises(ForerunError, match="holds no predictor"):
        DefaultPredictor.load(tmp_path / "nothing")


def test_kept_predictions_belong_to_the_weights(tmp_path: Path) -> None:
    assert len(stored_predictions(WEIGHTS)) > 4000
    folder = tmp_path / "default"
    shutil.copytree(WEIGHTS, folder)
    apart = companion()
    assert apart is not None
    for file in (apart / "predictors" / "default").glob("left_out*.parquet"):
        shutil.copy(file, folder)
    assert len(stored_predictions(folder)) == len(stored_predictions(WEIGHTS))
    other = DefaultPredictor.shipped()
    other.weights_ = dataclasses.replace(other.weights, joules=1.01 * other.weights.joules)
    other.save(folder)
    for part in ("gpu", "cpu"):
        with pytest.raises(ForerunError, match="belong to other weights: run forerun train default"):
            stored_predictions(folder, part)
    (folder / "left_out.parquet").unlink()
    with pytest.raises(ForerunError, match="has no held-out predictions"):
        stored_predictions(folder)


def test_other_weights_must_not_be_worse(tmp_path: Path) -> None:
    """Held-out predictions as they were kept when the weights were fitted: a limit for the next fit. Whether today's
    code still predicts so is not seen here but by the gate (benchmarks/gate.py)."""

    def nothing_to_gather() -> Any:
        raise AssertionError("kept predictions and columns of the table are enough")

    frames = collect(["dummy", "default"], "family", nothing_to_gather)
    well_known = kinds_of_network(frames["default"]).isin(WELL_KNOWN).to_numpy()
    packages = (frames["default"]["source"] == "python").to_numpy()
    made, whole = board(frames, only=well_known & ~packages), board(frames)
    for target, limit in (("device_ms", 0.15), ("latency_ms", 0.26), ("energy_j", 0.21), ("memory_mb", 0.06)):
        assert board(frames, only=packages).value(target, "all", "default", "mape") < limit
    by_kind = collect(["default"], "kind", nothing_to_gather)
    others = ~kinds_of_network(by_kind["default"]).isin(WELL_KNOWN).to_numpy()
    new = board(by_kind, split="kind", only=others)
    for target, group, limit in (
        ("device_ms", "all", 0.095), ("latency_ms", "device-bound", 0.115), ("energy_j", "all", 0.135),
        ("memory_mb", "all", 0.04), ("memory_allocated_mb", "all", 0.04), ("graph_ms", "all", 0.105),
    ):  # fmt: skip
        assert new.value(target, group, "default", "mape") < limit
        assert 0.86 < new.value(target, group, "default", "interval_coverage") < 0.95
    for target, group, predictor, limit in (
        ("device_ms", "all", "default", 0.075),
        ("device_ms", "training, device-bound", "default", 0.09),
        ("device_ms", "prefill", "default", 0.065),
        ("device_ms", "decode", "default", 0.05),
        ("latency_ms", "device-bound", "default", 0.085),
        ("latency_ms", "all", "default, host probed", 0.13),
        ("energy_j", "all", "default", 0.14),
    ):
        assert made.value(target, group, predictor, "mape") < limit
        assert made.value(target, group, "dummy", "mape") > 2 * limit
    assert whole.value("graph_ms", "all", "default", "mape") < 0.09
    assert whole.value("device_ms", "compile", "default", "mape") < 0.14
    for target, limit in (("memory_mb", 0.04), ("memory_allocated_mb", 0.035)):
        assert made.value(target, "all", "default", "mape") < limit
    for target in ("device_ms", "latency_ms", "energy_j"):
        for group in ("all", "device-bound", "host-bound"):
            assert 0.86 < whole.value(target, group, "default", "interval_coverage") < 0.94
    assert (made.lines[made.lines["predictor"].str.startswith("default")]["coverage"] == 1).all()
    path = report.write(made, frames["default"], DefaultPredictor(), tmp_path, {}, full.NOTES)
    by_family = path.read_text().split("worst first")[1].split("![")[0]
    assert "| predicted / measured | in 90 % interval |" in by_family and by_family.count(" % |") > 40
    assert (tmp_path / "scoreboard_scatter.png").stat().st_size > 10_000


def test_small_held_out_networks_are_predicted_well() -> None:
    """What users try first. By predictors that saw no row of the family: their training steps lie outside more often
    than those of other families (README.md)."""
    rows = stored_predictions(WEIGHTS)
    rows = rows[rows["family"].isin(["cnn", "unet"]) & (rows["repeat"] == 0)]
    low, high = with_intervals(stored_predictions(WEIGHTS), "device_ms", DefaultPredictor())
    measured = rows["device_ms"].to_numpy()
    found = figures(rows["predicted_device_ms"].to_numpy(), measured, low[rows.index], high[rows.index])
    assert found["n"] > 500
    assert found["mape"] < 0.10
    assert found["interval_coverage"] > 0.78
    calls = rows[rows["mode"] == "inference"]
    predicted, measured = (calls[name].to_numpy() for name in ("predicted_device_ms", "device_ms"))
    assert figures(predicted, measured, low[calls.index], high[calls.index])["interval_coverage"] > 0.9


def test_calls_in_a_loop_take_as_long_as_they_were_measured_to() -> None:
    """Where the device sets the pace, a call that is waited for takes longer than one in a loop; with that taken off,
    loops are met twice as closely as by the calls themselves."""
    rows = stored_predictions(WEIGHTS)
    rows = rows[(rows["repeat"] == 0) & (rows["mode"] == "inference") & (rows["device_ms"] > 0.8 * rows["latency_ms"])]
    calls, busy, loops = (rows[name].to_numpy() for name in ("latency_ms", "device_ms", "loop_ms"))
    runtimes = rows["runtime"].fillna("eager").to_numpy(dtype=str)
    found = back_to_back_ms(calls, busy, [load_device("h200")] * len(rows), runtimes)
    error, plain = (float(np.nanmedian(np.abs(np.log(each / loops)))) for each in (found, calls))
    assert len(rows) > 1000 and error < 0.5 * plain < 0.02
