"""What each part of a predictor contributes: one line each, the first of them the roofline predictor."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import ablation as part
from forerun.frontends import load_graph
from forerun.graph.profile import profile
from forerun.measure.cases import case_of
from forerun.predictors.baselines.roofline import RooflinePredictor
from forerun.predictors.cases import TrainingCases
from forerun.predictors.default import DefaultPredictor, ablation, fit_host
from forerun.training.cases import model_cases, operator_cases
from forerun.workload import Workload

WORKS = [Workload(f"cnn:depth=3,filters={f},classes=10", batch=b) for f in (8, 12, 32) for b in (1, 512)]
WORKS.append(Workload("cnn:depth=3,filters=8,classes=10", batch=4, mode="training", optimizer="adamw"))

ONE_NETWORK = DefaultPredictor(steps=5, seeds=(0,))


def rows_of(works: list[Workload], devices: list[str]) -> pd.DataFrame:
    rows = [
        {"case": json.dumps(case_of(w)), "case_key": str(i), "device": d, "family": f"f{i % 4}", "repeat": i // 6,
         "graph_hash": f"f{i % 4}", "mode": w.mode, "runtime": w.runtime, "dataset": "own", "session": "s",
         "extra": "{}", "software": None, "measured_at": f"2025-01-01T00:{i:02}:00Z"}
        for i, (w, d) in enumerate(zip(works, devices, strict=True))
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def found() -> TrainingCases:
    """Models and operators of a chip of our own making: physics, off by a third, on a host that is half as fast."""
    models = model_cases(rows_of(WORKS, ["h200"] * len(WORKS)))
    physics = RooflinePredictor().predict_cases(models)
    device, host = (physics[f"predicted_{name}"].to_numpy() for name in ("device_ms", "host_ms"))
    latency = np.maximum(1.33 * device, 2 * host)
    rows = models.rows.assign(device_ms=1.33 * device, latency_ms=latency, loop_ms=latency, energy_j=latency)
    rows = rows.drop(columns="block")  # one network, taken for four families
    rows["case_key"] = [str(i % 6) for i in range(len(rows))]  # the seventh is taken for a repeat of the first
    shapes = [{"m": 2**i, "n": 256, "k": 2**i} for i in range(4, 10)]
    frame = pd.DataFrame([{"op": "linear", "shape": json.dumps(s), "dtype": "fp16", "device": "h200", "device_ms": 0.01,
                           "direction": "forward", "devices": 1, "dataset": "own", "runtime": "eager"}
                          for s in shapes])  # fmt: skip
    own, public = operator_cases(frame), operator_cases(frame.assign(dataset="neusight", timing_group="neusight"))
    return TrainingCases(replace(models, rows=rows), own, public)


@pytest.fixture(scope="module")
def full(found: TrainingCases) -> pd.DataFrame:
    """The held-out predictions of a predictor that makes no error."""
    rows = found.models.rows
    return rows.assign(predicted_device_ms=rows["device_ms"], predicted_latency_ms=rows["latency_ms"])


def test_physics_over_whole_tables_is_the_roofline_predictor_case_by_case() -> None:
    devices = ["h200", "rtx4090", "xeon-emr-2vcpu", "t4", "h200", "a100", "p4"]
    cases = model_cases(rows_of(WORKS, devices))
    at_once = RooflinePredictor().predict_cases(cases, np.full(len(cases), 1.5))
    slower = RooflinePredictor().with_settings(host_slowness=1.5)
    for i, (work, name) in enumerate(zip(WORKS, devices, strict=True)):
        times = slower.times(profile(load_graph(work), work.dtype), [load_device(name)], work)
        for target in ("latency_ms", "device_ms", "host_ms", "energy_j"):
            expected = pytest.approx(getattr(times, target)[0, 0], rel=1e-9, nan_ok=target == "energy_j")
            assert at_once.loc[i, f"predicted_{target}"] == expected


def test_every_part_has_a_line(found: TrainingCases, full: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_host, "ROUNDS", 1)  # all hosts here are of one speed
    seen = []
    lines = part.ablation(ONE_NETWORK, found, full, folds=2, progress=lambda *at: seen.append(at))
    assert list(lines["part"]) == [part.PHYSICS, ablation.OPERATORS, ablation.HOST, part.FULL, part.UNPUBLISHED]
    assert seen == [(1, 2), (2, 2)]
    assert (lines["n"] == 6).all()  # the seventh row is a repeat of the first
    assert lines.drop(columns="part").notna().all(axis=None)
    errors = lines.set_index("part")
    assert errors.loc[part.PHYSICS, "device_ms, all: mape"] == pytest.approx(1 - 1 / 1.33)
    assert errors.loc[part.PHYSICS, "latency_ms, host-bound: mape"] == pytest.approx(0.5)
    assert (
        errors.loc[ablation.HOST, "latency_ms, host-bound: mape"] < 0.47
    )  # six rows pull the costs a little their way
    assert errors.loc[part.FULL, "latency_ms, all: median_ape"] == 0
    text = part.readable(lines)
    assert text.loc[0, "device_ms, all"] == "24.8 / 24.8 %"
    assert len(text.columns) == len(part.SHOWN) + 2


def test_predictions_of_other_rows_are_refused(found: TrainingCases, full: pd.DataFrame) -> None:
    with pytest.raises(ForerunError, match="not of these rows"):
        part.ablation(ONE_NETWORK, found, full.iloc[::-1], folds=2)
    with pytest.raises(ForerunError, match="not of these rows"):
        part.ablation(ONE_NETWORK, found, full.iloc[1:], folds=2)
