"""The default predictor as users meet it, the suite every predictor passes, and the gate on its accuracy."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from forerun.predictors.weights import Weights

import forerun
from forerun import predict
from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import full, report
from forerun.evaluate.check import PredictorFault, check_predictor
from forerun.evaluate.metrics import figures
from forerun.graph.ir import Graph, Op, Storage, Tensor
from forerun.measure.cases import workload_of
from forerun.predictors.base import Times
from forerun.predictors.default import SHIPPED, UNSEEN, DefaultPredictor
from forerun.predictors.energy import ALONE_US
from forerun.predictors.roofline import RooflinePredictor

CNN = "cnn:depth=4,filters=16,classes=10"


@pytest.mark.parametrize("kind", [RooflinePredictor, DefaultPredictor])
def test_predictors_pass_the_suite(kind: type) -> None:
    done = check_predictor(kind)
    assert {"deterministic", "not_faster_than_light", "intervals", "grows_with_batch", "unseen_op"} <= set(done)


def test_the_suite_finds_a_liar() -> None:
    class TooFast(RooflinePredictor):
        def times(self, profile, devices, workload):  # type: ignore[no-untyped-def]
            told = super().times(profile, devices, workload)
            return Times(**{**vars(told), "device_ms": told.light_ms / 2})

    with pytest.raises(PredictorFault, match="faster than its FLOPs and bytes allow"):
        check_predictor(TooFast)


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
    guessed, told = (predict(CNN, "a100", batch=1, host=h) for h in ("default", Weights.load(SHIPPED).host_guess))
    assert guessed.latency_ms == told.latency_ms
    with pytest.raises(ForerunError, match="how many times slower"):
        predict(CNN, "a100", host="fast")


def test_what_was_never_measured_is_said() -> None:
    seen = predict(CNN, "h200", batch=3)
    unseen = predict(CNN, "rtx3080", batch=3)
    assert seen.basis == unseen.basis == "learned"
    assert not any("out of domain" in note for note in seen.notes)
    assert any("out of domain" in note and "rtx3080" in note for note in unseen.notes)
    assert seen.device_ms is not None
    assert unseen.device_ms is not None
    assert unseen.device_ms.high / unseen.device_ms.low > seen.device_ms.high / seen.device_ms.low
    assert seen.provenance["rows"]["models"]
    shipped = Weights.load(SHIPPED)
    fewer = dataclasses.replace(
        shipped, domain=dict(shipped.domain) | {"ops": []}
    )  # as if no op had ever been measured
    both = predict(CNN, "rtx3080", batch=3, predictor=DefaultPredictor(weights=fewer))
    assert both.device_ms is not None
    one, two = (np.log(p.device_ms.high / p.device_ms.value) for p in (unseen, both))
    assert two**2 - one**2 == pytest.approx((1.645 * UNSEEN["ops"]) ** 2, rel=0.01)
    tpu = predict(CNN, "tpu-v5e", batch=3)
    assert tpu.basis == "roofline"


def test_every_group_that_answers_is_calibrated() -> None:
    known = Weights.load(SHIPPED).calibration.counts
    for mode in ("inference", "training", "prefill", "decode"):
        for group in (f"cpu/{mode}", f"latency_ms/{mode}", f"device_ms/{mode}", f"energy_j/{mode}"):
            assert known[group] >= 40, group
    told = pd.read_parquet(SHIPPED / "left_out_cpu.parquet")
    factors = [Weights.load(SHIPPED).calibration.factors(f"cpu/{mode}") for mode in told["mode"]]
    ratio = (told["latency_ms"] / told["told_latency"]).to_numpy()
    assert 0.86 < np.mean([low <= r <= high for (low, high), r in zip(factors, ratio, strict=True)]) < 0.95


def test_how_much_stands_on_measurements_is_told() -> None:
    assert predict(CNN, "h200", batch=3).provenance["learned_share"] == 1.0
    assert predict(CNN, "tpu-v5e", batch=3).provenance["learned_share"] == 0.0
    storages = [Storage(2**20, "activation") for _ in range(3)]
    tensors = [Tensor((512, 512), "fp32", i) for i in range(3)]
    strange = [Op("unknown", "acme::frobnicate", (0,), (1,)), Op("elementwise", "aten::neg", (1,), (2,))]
    half = predict(Graph("strange", strange, tensors, storages, 0, 0), "h200").provenance["learned_share"]
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
    more = predict(device=dataclasses.replace(device, tdp_w=1.2 * device.tdp_w), **case)
    assert more.device_ms.value < 1.02 * p.device_ms.value


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
    assert fused.bytes < 0.8 * eager.bytes
    assert fused.macs == eager.macs


def test_weights_are_data_and_small(tmp_path: Path) -> None:
    assert sum(f.stat().st_size for f in SHIPPED.iterdir()) < 20 * 2**20
    shipped = Weights.load(SHIPPED)
    shipped.save(tmp_path / "copy")
    again = Weights.load(tmp_path / "copy")
    np.testing.assert_array_equal(again.host_us, shipped.host_us)
    (tmp_path / "copy" / "weights.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ForerunError, match="format 99"):
        Weights.load(tmp_path / "copy")
    with pytest.raises(ForerunError, match="holds no weights"):
        Weights.load(tmp_path / "nothing")


def test_the_scoreboard_is_complete_and_may_not_fall(tmp_path: Path) -> None:
    """Left-out families as they were when the weights were made: a change of the weights must not make them worse."""
    told = pd.read_parquet(SHIPPED / "left_out.parquet")
    made = full.scoreboard(told)
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
    for target, limit in (("memory_mb", 0.04), ("memory_allocated_mb", 0.035)):
        assert made.value(target, "all", "default", "mape") < limit
    for target in ("device_ms", "latency_ms", "energy_j"):
        for group in ("all", "device-bound", "host-bound"):
            assert 0.86 < made.value(target, group, "default", "interval_coverage") < 0.94
    assert (made.lines["coverage"] == 1).all()
    path = report.write(made, told, tmp_path, {}, full.NOTES)
    assert "worst first" in path.read_text()
    assert (tmp_path / "scoreboard_scatter.png").stat().st_size > 10_000


def test_a_frozen_slice_of_real_rows(tmp_path: Path) -> None:
    """The shipped weights on shipped measurements: accuracy and coverage may not fall."""
    rows = Store(tmp_path).read("models")
    rows = rows[(rows["device"] == "h200") & (rows["status"] == "ok") & (rows["repeat"] == 0)]
    rows = rows[rows["source"].isin(["cnn", "unet"])].sort_values("case_key").iloc[::7]
    said, real, inside = [], [], []
    for case, device_ms in zip(rows["case"], rows["device_ms"], strict=True):
        work = workload_of(json.loads(case))
        told = predict(
            work.model, "h200", batch=work.batch, dtype=work.dtype, mode=work.mode, optimizer=work.optimizer,
            amp=work.amp, predictor=DefaultPredictor(),
        ).device_ms  # fmt: skip
        assert told is not None
        said.append(told.value)
        real.append(device_ms)
        inside.append(told.low <= device_ms <= told.high)
    assert len(said) > 40
    assert figures(np.array(said), np.array(real))["mape"] < 0.10
    assert np.mean(inside) > 0.86


def test_how_much_longer_a_call_takes_by_itself_is_what_the_rows_say(tmp_path: Path) -> None:
    rows = Store(tmp_path).read("models")
    rows = rows[(rows["device"] == "h200") & (rows["status"] == "ok") & (rows["repeat"] == 0)]
    assert 1e3 * (rows["latency_ms"] - rows["loop_ms"]).median() == pytest.approx(ALONE_US, abs=2)
