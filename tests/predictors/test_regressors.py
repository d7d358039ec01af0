"""The predictor regressors: every model fits, is kept as arrays that answer as scikit-learn does, and is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from forerun.errors import ForerunError
from forerun.evaluate.check import check_predictor
from forerun.evaluate.held_out import held_out
from forerun.predictors.cases import TrainingCases
from forerun.predictors.published.regressors import RegressorsPredictor, fitted, models
from forerun.predictors.published.regressors.measured import errors_over_splits, measured
from forerun.predictors.published.regressors.selection import importance, select_features
from forerun.predictors.published.whole_model import numbers


def small(model: str = "forest", **settings: object) -> RegressorsPredictor:
    return RegressorsPredictor(model=model, trees=12, **settings)  # type: ignore[arg-type]


def error(predictor: RegressorsPredictor, cases: TrainingCases, target: str = "latency_ms") -> float:
    found = predictor.predict_cases(cases.models)[f"predicted_{target}"]
    return float(np.abs(np.log(found / cases.models.rows[target])).median())


@pytest.fixture(scope="module")
def forest(few_cases: TrainingCases) -> RegressorsPredictor:
    return small().fit(few_cases).calibrate(held_out(small("ridge"), few_cases, folds=3))


@pytest.mark.parametrize("model", models.MODELS)
def test_arrays_answer_as_scikit_learn_does(model: str, few_cases: TrainingCases) -> None:
    predictor = small(model).fit(few_cases)
    rows = predictor.cases_of(few_cases)
    seen = numbers.of_rows(rows.rows, rows.devices)
    lines = predictor.prepared(numbers.matrix(seen, predictor.seen, logarithms=True))
    made = models.fit(predictor, lines, np.log(rows.rows["latency_ms"].to_numpy(dtype=float)))
    unseen = np.concatenate([lines, lines + np.random.default_rng(0).normal(0, 0.3, lines.shape)])
    np.testing.assert_allclose(fitted.answers(fitted.arrays(made), unseen), made.predict(unseen), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", models.MODELS)
def test_every_model_beats_the_median_and_is_saved(model: str, few_cases: TrainingCases, tmp_path: Path) -> None:
    predictor = small(model).fit(few_cases)
    latency = few_cases.models.rows["latency_ms"]
    assert error(predictor, few_cases) < 0.7 * float(np.abs(np.log(latency.median() / latency)).median())
    predictor.save(tmp_path)
    again = RegressorsPredictor.load(tmp_path)
    assert predictor.predict_cases(few_cases.models).equals(again.predict_cases(few_cases.models))
    assert {path.name for path in tmp_path.iterdir()} == {"predictor.json", "arrays.safetensors"}


@pytest.mark.parametrize("settings", [{"scaling": "minmax"}, {"pca": 5}, {"noise": 0.05, "copies": 2},
                                      {"features": ["macs", "bytes", "batch", "training", "is_cpu"]}])  # fmt: skip
def test_what_is_done_to_features_is_saved_too(settings: dict, few_cases: TrainingCases, tmp_path: Path) -> None:
    predictor = small("svr", **settings).fit(few_cases)
    assert error(predictor, few_cases) < 0.4
    predictor.save(tmp_path)
    again = RegressorsPredictor.load(tmp_path)
    assert predictor.predict_cases(few_cases.models).equals(again.predict_cases(few_cases.models))
    plain = small("svr").fit(few_cases)
    assert not predictor.predict_cases(few_cases.models).equals(plain.predict_cases(few_cases.models))


def test_it_keeps_the_contract(forest: RegressorsPredictor) -> None:
    assert "saved" in check_predictor(lambda: forest)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model": "forrest"}, "there is no regressor 'forrest'; choose linear, .* Did you mean forest"),
        ({"scaling": "robust"}, "scaling must be standard or minmax, got 'robust'"),
        ({"pca": 999}, "pca must be from 0"),
        ({"features": ["mac"]}, "no number of a model, device or host is called 'mac'. Did you mean macs"),
    ],
)
def test_wrong_settings_are_one_sentence(settings: dict, sentence: str, few_cases: TrainingCases) -> None:
    with pytest.raises(ForerunError, match=sentence):
        RegressorsPredictor(**settings).fit(few_cases)


def test_broken_arrays_are_one_sentence(forest: RegressorsPredictor, tmp_path: Path) -> None:
    forest.save(tmp_path)
    file = tmp_path / "arrays.safetensors"
    arrays = load_file(file)
    looped = arrays["latency_ms_left_"].copy()
    looped[0] = 10**6
    for change in ({"latency_ms_left_": looped}, {"latency_ms_value_": arrays["latency_ms_value_"][1:].copy()}):
        save_file({**arrays, **change}, file)
        with pytest.raises(ForerunError, match="holds no whole predictor regressors: its arrays do not fit"):
            RegressorsPredictor.load(tmp_path)
    save_file({name: values for name, values in arrays.items() if not name.startswith("energy_j")}, file)
    with pytest.raises(ForerunError, match="holds no whole predictor regressors"):
        RegressorsPredictor.load(tmp_path)
    file.write_bytes(b"broken")
    with pytest.raises(ForerunError, match="holds no whole predictor regressors"):
        RegressorsPredictor.load(tmp_path)


def test_no_rows_and_a_target_that_nobody_measured(few_cases: TrainingCases) -> None:
    none = few_cases.models.take(np.zeros(len(few_cases.models), dtype=bool))
    with pytest.raises(ForerunError, match="there are 0 of these"):
        small().fit(TrainingCases(none, few_cases.operators))
    empty = replace(few_cases.models, rows=few_cases.models.rows.assign(memory_mb=np.nan))
    with pytest.raises(ForerunError, match="memory_mb was measured in fewer than 20"):
        small().fit(TrainingCases(empty, few_cases.operators))


def test_features_are_chosen_by_what_they_change(
    forest: RegressorsPredictor, few_cases: TrainingCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importance(forest, few_cases.models)
    assert list(found.index) != list(forest.seen) and set(found.index) == set(forest.seen)
    chosen = select_features(forest, few_cases.models, keep=8)
    assert len(chosen) == 8 and {"bytes", "macs"} & set(chosen)
    assert error(small(features=chosen).fit(few_cases), few_cases) < 0.4
    monkeypatch.setitem(__import__("sys").modules, "shap", None)
    assert {"bytes", "macs"} & set(select_features(forest, few_cases.models, keep=8))


def test_errors_over_several_splits(few_cases: TrainingCases) -> None:
    found = errors_over_splits(small("ridge"), few_cases, splits=3)
    assert len(found) == 3 * 3 and (found["n"] > 0).all() and (found["mape"] > 0).all()
    assert found.groupby("target")["mape"].nunique().min() == 3


def test_what_models_cost_is_measured(few_cases: TrainingCases) -> None:
    found = measured(few_cases, ("linear", "forest"), splits=2, trees=12)
    assert list(found["model"]) == ["linear", "forest"]
    for column in ("mape", "mape_sd", "r2", "training_s", "prediction_us_per_case", "peak_traced_mb", "peak_rss_mb"):
        assert found[column].notna().all() and found[column].nunique() == 2, column
    assert (found[["training_s", "prediction_us_per_case", "peak_traced_mb"]] > 0).all(axis=None)
    assert (found["peak_rss_mb"] > 50).all() and found["training_s"].idxmax() == 1
