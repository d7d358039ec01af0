"""The predictor mlp: a network that learns the training step of small CNNs, and epochs of such a training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from torch import nn

import forerun
from forerun import cli
from forerun.errors import ForerunError
from forerun.evaluate.check import check_predictor
from forerun.evaluate.held_out import held_out
from forerun.frontends import load_graph
from forerun.graph.profile import profile
from forerun.prediction import Prediction
from forerun.predictors.cases import TrainingCases
from forerun.predictors.published.mlp import MlpPredictor
from forerun.predictors.published.whole_model.numbers import of_graph
from forerun.workload import Workload


@pytest.fixture(scope="module")
def cnns(few_cases: TrainingCases) -> TrainingCases:
    return TrainingCases(few_cases.models.take((few_cases.models.rows["family"] == "cnn").to_numpy()),
                         few_cases.operators)  # fmt: skip


@pytest.fixture(scope="module")
def fitted(cnns: TrainingCases) -> MlpPredictor:
    predictor = MlpPredictor(hidden=(16, 16), steps=300).fit(cnns)
    return predictor.calibrate(held_out(MlpPredictor(hidden=()), cnns, "model", folds=3))


def error(predictor: MlpPredictor, cases: TrainingCases) -> float:
    found = predictor.predict_cases(cases.models)
    return float(np.nanmedian(np.abs(np.log(found["predicted_latency_ms"] / cases.models.rows["latency_ms"]))))


def test_depth_and_filters_are_read_off_the_graph() -> None:
    found = of_graph(profile(load_graph(Workload("cnn:depth=6,filters=24", batch=2)), "fp32"))
    assert (found["convolutions"], found["filters"]) == (6, 24)
    assert of_graph(profile(load_graph(Workload("nerf:width=64", batch=2)), "fp32"))["filters"] == 0


def test_the_loss_falls_and_the_median_is_beaten(fitted: MlpPredictor, cnns: TrainingCases) -> None:
    assert len(fitted.losses_) == 50 and fitted.losses_[-1] < 0.2 * fitted.losses_[0]
    rows = cnns.models.rows[cnns.models.rows["mode"] == "training"]
    by_median = np.abs(np.log(rows["latency_ms"].median() / rows["latency_ms"])).median()
    linear = MlpPredictor(hidden=()).fit(cnns)
    assert error(fitted, cnns) < error(linear, cnns) < by_median


def test_it_answers_training_on_devices_that_it_was_fitted_to(fitted: MlpPredictor, cnns: TrainingCases) -> None:
    found = fitted.predict_cases(cnns.models)["predicted_latency_ms"]
    assert (found.notna() == (cnns.models.rows["mode"] == "training")).all()
    with pytest.raises(ForerunError, match="answers training, not inference"):
        forerun.predict("cnn:depth=4,filters=16", "h200", predictor=fitted)
    with pytest.raises(ForerunError, match="knows h200 and no other device"):
        forerun.predict("cnn:depth=4,filters=16", "a100", mode="training", predictor=fitted)


def test_it_keeps_the_contract(fitted: MlpPredictor) -> None:
    assert "saved" in check_predictor(lambda: fitted)


def test_saved_it_answers_the_same(fitted: MlpPredictor, cnns: TrainingCases, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    again = MlpPredictor.load(tmp_path)
    assert fitted.predict_cases(cnns.models).equals(again.predict_cases(cnns.models))
    arrays = load_file(tmp_path / "arrays.safetensors")
    save_file({**arrays, "weights_": arrays["weights_"][:-1].copy()}, tmp_path / "arrays.safetensors")
    with pytest.raises(ForerunError, match="holds no whole predictor mlp: layers"):
        MlpPredictor.load(tmp_path)
    (tmp_path / "arrays.safetensors").write_bytes(b"nothing")
    with pytest.raises(ForerunError, match="holds no whole predictor mlp"):
        MlpPredictor.load(tmp_path)


def test_a_loss_that_is_no_number_is_one_sentence(cnns: TrainingCases) -> None:
    with pytest.raises(ForerunError, match="loss of the predictor mlp is no number any more: a learning_rate of 1e"):
        MlpPredictor(learning_rate=1e200, steps=10).fit(cnns)


def test_a_single_family_cannot_be_held_out(cnns: TrainingCases) -> None:
    with pytest.raises(ForerunError, match="only one family among the rows: nothing would be left to learn from"):
        held_out(MlpPredictor(hidden=()), cnns, "family")
    found = held_out(MlpPredictor(hidden=()), cnns, "model", folds=3)
    assert found["predicted_latency_ms"].notna().sum() == (found["mode"] == "training").sum()


def test_epochs_of_a_training() -> None:
    p = forerun.predict("cnn:depth=4,filters=16", "h200", batch=64, mode="training", measured=False, epochs=20,
                        dataset_size=50_000)  # fmt: skip
    found = p.training
    assert found is not None and p.latency_ms is not None and p.energy_j is not None and p.cost_usd is not None
    steps = 20 * 782  # 50,000 / 64 samples, rounded up
    assert found.steps == steps
    assert found.hours.value == pytest.approx(steps * p.latency_ms.value / 3.6e6)
    assert found.epoch_hours.high == pytest.approx(found.hours.high / 20)
    assert found.energy_kwh is not None and found.energy_kwh.value == pytest.approx(steps * p.energy_j.value / 3.6e6)
    assert found.cost_usd is not None and found.cost_usd.value == pytest.approx(steps * p.cost_usd.value)
    assert found.carbon_kg is not None and found.carbon_kg.value > 0
    assert found.samples_per_s.value == pytest.approx(50_000 / found.epoch_hours.value / 3600)
    assert Prediction.from_json(p.to_json()) == p
    assert "training" not in forerun.predict("cnn:depth=4,filters=16", "h200").to_dict()


def test_epochs_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "cnn:depth=4,filters=16", "--device", "h200", "--mode", "training", "--epochs", "20"]
    assert cli.run([*words, "--dataset-size", "50000", "--batch", "64"]) == 0
    shown = capsys.readouterr().out
    assert "Training: 20 epochs of 50,000 samples, 15,640 steps" in shown
    assert "Time per epoch" in shown and "samples/s" in shown
    assert cli.run([*words, "--dataset-size", "50000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["training"]["epochs"] == 20 and found["training"]["hours"]["unit"] == "h"
    for more, sentence in (
        (words, "--epochs and --dataset-size go together: give both"),
        ([*words[:4], "--epochs", "2", "--dataset-size", "100"], "--epochs is of a training: --mode must be training"),
        ([*words[:-1], "0", "--dataset-size", "100"], "--epochs must be a whole number of 1 or more, got 0"),
    ):
        assert cli.run(more) == 2
        assert capsys.readouterr().err.strip().splitlines()[-1] == f"forerun: {sentence}"


def test_a_network_without_convolutions_is_refused() -> None:
    with pytest.raises(ForerunError, match=r"goes by convolutions, and .* has none"):
        forerun.predict(nn.Linear(8, 8), "h200", mode="training", input_shape=(8,), predictor="mlp")


def test_beyond_its_range_it_says_so_and_needs_no_less_than_the_tensors() -> None:
    asked = {"mode": "training", "predictor": "mlp", "optimizer": "adamw"}
    inside, beyond = (forerun.predict("cnn:depth=6,filters=32", "h200", batch=b, **asked) for b in (128, 65536))
    assert not any("was fitted to batch" in note for note in inside.notes)
    assert any("was fitted to batch from 16 to 1,024" in note for note in beyond.notes)
    assert beyond.memory_mb and beyond.memory_allocated_mb
    assert beyond.memory_mb.value > beyond.memory_allocated_mb.value
