"""Simulated rows: made, marked, learned from, never judged as truth."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import forerun
from forerun import cli
from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import model_card
from forerun.evaluate.collect import unfitted
from forerun.evaluate.held_out import held_out
from forerun.evaluate.judged import judged
from forerun.evaluate.on_published import Simulation, published_truth, simulation
from forerun.predictors.cases import TrainingCases
from forerun.predictors.default import DefaultPredictor
from forerun.predictors.published.mlp import MlpPredictor
from forerun.predictors.published.trees import TreesPredictor
from forerun.predictors.registry import load_predictor
from forerun.training.simulated import chosen_devices, with_simulated

NAMES = "a100-sxm4-80gb,v100-16gb,h100-sxm"
CNN = "cnn:depth=4,filters=24,classes=10"


def no_progress(title: str) -> object:
    return contextlib.nullcontext()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"), shipped=False)


@pytest.fixture(scope="module")
def cases(few_cases: TrainingCases, store: Store) -> TrainingCases:
    predictor = TreesPredictor(trees=20)
    devices = chosen_devices(NAMES, predictor, store)
    return with_simulated(few_cases, devices, predictor, store)


@pytest.fixture(scope="module")
def folder(cases: TrainingCases, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees fitted to them, saved."""
    made = TreesPredictor(trees=20).fit(cases)
    made.record_provenance({"rows": {"simulated models": {"simulated": 1}}, "options": {"simulated": NAMES}})
    out = tmp_path_factory.mktemp("trees")
    made.save(out)
    return out


def test_rows_are_what_the_default_predictor_says_and_marked_as_that(cases: TrainingCases, store: Store) -> None:
    made = cases.simulated_models
    assert made is not None and set(made.rows["device"]) == set(NAMES.split(","))
    chosen = made.take((made.rows["model"] == CNN).to_numpy() & (made.rows["device"] == "v100-16gb").to_numpy())
    workload, row = chosen.workloads[0], chosen.rows.iloc[0]
    asked = {"batch": workload.batch, "mode": workload.mode, "dtype": workload.dtype, "optimizer": workload.optimizer}
    found = forerun.predict(CNN, "v100-16gb", amp=workload.amp, **asked)
    assert row["latency_ms"] == pytest.approx(found.latency_ms.value, rel=1e-6)
    assert found.energy_j is not None and row["energy_j"] == pytest.approx(found.energy_j.value, rel=1e-3)
    assert found.memory_mb is not None and row["memory_mb"] == pytest.approx(found.memory_mb.value, rel=1e-6)
    assert store.read("models").empty
    kept = store.read("models", simulated=True)
    assert len(kept) == len(made) and kept["row_id"].is_unique
    assert json.loads(kept["simulated"].iloc[0])["predictor"] == "default"


def test_answers_for_such_devices_say_simulated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", CNN, "-b", "7", "--mode", "training", "--predictor", str(folder), "-d")
    for device, basis in (("h100-sxm", "simulated"), ("a100-sxm4-40gb", "simulated"), ("h200", "learned")):
        assert cli.run([*words, device, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["basis"] == basis, device
        assert found["mig_options"] and all(one["latency_ms"] is None for one in found["mig_options"])  # never measured
    assert cli.run([*words, "v100-16gb"]) == 0
    said = " ".join(capsys.readouterr().out.split())  # however the terminal breaks its lines
    assert "Basis: simulated (" in said and "to no measurement of v100-16gb, to simulated rows of it alone" in said


def test_nothing_is_judged_by_them(cases: TrainingCases, store: Store) -> None:
    made = cases.simulated_models
    assert made is not None
    for untrue in (replace(cases, models=made), replace(cases, published_models=made)):
        split = "device" if untrue.published_models else "random"
        with pytest.raises(ForerunError, match="simulated rows are no measurements: nothing is judged by them"):
            held_out(TreesPredictor(trees=5), untrue, split)
    found = held_out(TreesPredictor(trees=5), cases, "model", folds=3)
    assert set(found["device"]) == {"h200"} and found["simulated"].isna().all()
    assert published_truth(store, [load_device("v100-16gb")], TreesPredictor()) is None


def test_networks_that_are_held_out_are_held_out_of_them_too(cases: TrainingCases) -> None:
    """Their rows on other devices would tell the answer."""
    seen: list[set[str]] = []

    class Watched(TreesPredictor):
        def fit(self, cases: TrainingCases) -> Watched:
            assert cases.simulated_models is not None
            seen.append(set(cases.simulated_models.rows["model"]) - set(cases.models.rows["model"]))
            return super().fit(cases)

        def parameters(self) -> dict[str, object]:
            return {"trees": 2}

    Watched.hold_out = replace(TreesPredictor.hold_out, cheap_to_fit=True)  # in this process, where it is watched
    for split in ("model", "random"):
        held_out(Watched(trees=2), cases, split, folds=2)
    assert seen and all(not further for further in seen)


def test_a_predictor_of_one_device_learns_a_simulated_one(
    few_cases: TrainingCases, store: Store, tmp_path: Path
) -> None:
    predictor = MlpPredictor(hidden=(), steps=10)
    (device,) = chosen_devices("v100", predictor, store)
    cases = with_simulated(few_cases, [device], predictor, store)
    found = judged(predictor, cases, folds=2, progress=no_progress)  # type: ignore[arg-type]
    assert not found.frames and found.imitated is not None
    predictor.fit(cases).calibrate(found.calibration)
    assert predictor.basis_for(device) == "simulated" and predictor.problem_of(load_device("h200"))
    known = simulation(predictor, [device], cases, found.imitated, store)
    card = model_card.text(predictor, {}, known.text())
    assert "never judged as truth" in card and "simulated rows alone, which are no measurements" in card
    predictor.save(tmp_path)
    with pytest.raises(ForerunError, match="learned from simulated rows alone, which are no measurements"):
        unfitted(str(tmp_path), {})
    both = chosen_devices("v100,a100", predictor, store)
    with pytest.raises(ForerunError, match="give --simulated a100-sxm4-40gb alone"):
        predictor.fit(with_simulated(few_cases, both, predictor, store))


def test_the_card_has_errors_on_published_rows() -> None:
    lines = pd.DataFrame([{"dataset": "neusight", "device": "v100-16gb", "mode": "inference", "calls": 9,
                           "trees": 20.0, "default": 10.0, "one ratio": 50.0}])  # fmt: skip
    known = Simulation(("v100-16gb",), 100, "the predictor default", None, lines)
    assert "| neusight |" in known.text() and "mean error trees 20.0 %" in str(known.results)


@pytest.mark.parametrize(
    ("devices", "name", "sentence"),
    [
        ("h200", "trees", "h200 is measured: "),
        ("nothing-at-all", "trees", "nothing-at-all"),
        (",", "trees", "simulated names no device"),
        ("epyc-7763", "trees", "epyc-7763 is no GPU"),
        ("a100", "default", "the predictor default learns nothing from simulated rows: leave --simulated out"),
    ],
)
def test_bad_devices_are_one_sentence(
    devices: str, name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", name, "--simulated", devices]) == 2
    assert sentence in capsys.readouterr().err


def test_weights_without_simulated_rows_say_what_they_said(few_cases: TrainingCases) -> None:
    made = TreesPredictor(trees=5).fit(few_cases)
    assert made.simulated_devices_ == [] and made.basis_for(load_device("h200")) == "learned"
    assert isinstance(load_predictor("default"), DefaultPredictor)
    assert np.isnan(made.predict_cases(few_cases.models).to_numpy()).sum() == 0
