"""`forerun tune`: a search that can be stopped and goes on, and settings that `forerun train` takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun import cli
from forerun.errors import ForerunError
from forerun.evaluate import tuning
from forerun.evaluate.test_set import is_test_family
from forerun.predictors.baselines.one_ratio import OneRatioPredictor
from forerun.predictors.cases import TrainingCases
from forerun.predictors.published.mlp import MlpPredictor
from forerun.predictors.published.regressors import RegressorsPredictor
from forerun.predictors.published.trees import TreesPredictor


class Ridge(RegressorsPredictor):
    """A search that takes no time."""

    def __init__(self, model: str = "ridge", strength: float = 30.0, features: Any = None) -> None:
        super().__init__(model=model, strength=strength, features=features)

    @classmethod
    def search_space(cls, trial: Any) -> dict[str, Any]:
        return {"strength": trial.suggest_float("strength", 1e-4, 10.0, log=True)}

    @classmethod
    def grid(cls) -> dict[str, Any]:
        return {"strength": (0.001, 0.1), "model": ("ridge", "lasso")}


def search(cases: TrainingCases, folder: Path, trials: int, **settings: Any) -> tuning.Tuned:
    return tuning.tune(Ridge, cases, folder, trials=trials, folds=2, **settings)


def test_a_search_goes_on_and_finds_something_better(few_cases: TrainingCases, tmp_path: Path) -> None:
    first = search(few_cases, tmp_path, 3)
    assert (first.before, first.trials, first.failed, first.split) == (0, 3, 0, "family")
    again = search(few_cases, tmp_path, 6)
    assert (again.before, again.trials) == (3, 6)
    assert again.usual_error is not None and again.error <= first.error <= again.usual_error
    done = search(few_cases, tmp_path, 6)
    assert (done.before, done.trials, done.settings) == (6, 6, again.settings)
    other = search(few_cases, tmp_path, 1, targets=("latency_ms",))  # another question, another study
    assert other.before == 0 and len(list(tmp_path.glob("*.journal"))) == 2


def test_the_first_trial_has_the_default_settings(few_cases: TrainingCases, tmp_path: Path) -> None:
    found = search(few_cases, tmp_path, 1)
    assert found.settings == {"strength": 30.0} and found.error == found.usual_error


def test_finished_trials_survive_an_interrupt(
    few_cases: TrainingCases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = tuning.error, []

    def interrupted(*words: Any) -> float:
        calls.append(words)
        if len(calls) == 3:
            raise KeyboardInterrupt
        if len(calls) == 2:
            raise ForerunError("this fit diverged")
        return real(*words)

    monkeypatch.setattr(tuning, "error", interrupted)
    found = search(few_cases, tmp_path, 5)
    assert (found.stopped, found.trials, found.failed) == (True, 2, 1)
    again = search(few_cases, tmp_path, 4)
    assert (again.before, again.trials, again.stopped) == (2, 4, False)


def test_seconds_end_a_search(few_cases: TrainingCases, tmp_path: Path) -> None:
    assert search(few_cases, tmp_path, 100, seconds=0.01).trials == 1


def test_a_grid_is_tried_once_and_whole(few_cases: TrainingCases, tmp_path: Path) -> None:
    found = search(few_cases, tmp_path, 3, grid=True)
    assert found.trials == 3
    again = search(few_cases, tmp_path, 50, grid=True)
    assert (again.before, again.trials) == (3, 4)
    assert set(again.settings) == {"strength", "model"}


def test_a_single_family_is_held_out_by_its_networks(few_cases: TrainingCases, tmp_path: Path) -> None:
    one = TrainingCases(few_cases.models.take((few_cases.models.rows["family"] == "cnn").to_numpy()),
                        few_cases.operators)  # fmt: skip
    assert search(one, tmp_path, 1).split == "model"


def test_the_test_set_is_not_tuned_on(few_cases: TrainingCases) -> None:
    rows = few_cases.models.rows
    test_family = "vgg"
    assert is_test_family(test_family)
    renamed = TrainingCases(few_cases.models, few_cases.operators)
    renamed.models.rows["family"] = rows["family"].where(rows["family"] != "unet", test_family)
    try:
        kept = tuning.without_test_set(renamed).models.rows
    finally:
        rows["family"] = rows["family"].where(rows["family"] != test_family, "unet")
    assert len(kept) < len(rows) and test_family not in set(kept["family"])


@pytest.mark.parametrize("kind", [TreesPredictor, MlpPredictor, RegressorsPredictor])
def test_suggested_settings_are_parameters(kind: Any) -> None:
    import optuna

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(8):
        suggested = kind.search_space(study.ask())
        assert set(suggested) <= set(kind().parameters())
        assert json.loads(json.dumps(suggested)) == suggested
        kind(**suggested)


def test_what_cannot_be_tuned_is_one_sentence(few_cases: TrainingCases, tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match="the predictor one-ratio has nothing to tune"):
        tuning.tune(OneRatioPredictor, few_cases, tmp_path)
    with pytest.raises(ForerunError, match="the predictor mlp has no grid to tune"):
        tuning.tune(MlpPredictor, few_cases, tmp_path, grid=True)
    with pytest.raises(ForerunError, match="none of the targets given"):
        search(few_cases, tmp_path, 1, targets=("device_ms",))


def test_from_tune_to_train(
    few_cases: TrainingCases, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MlpPredictor, "search_space", classmethod(lambda cls, trial: {
        "hidden": [4], "steps": trial.suggest_int("steps", 10, 60), "learning_rate": 0.01
    }))  # fmt: skip
    monkeypatch.setattr(MlpPredictor.__init__, "__defaults__", ((4,), 50, 0.01, 0))
    models = tuple(name for name in few_cases.models.rows["model"].unique() if name.startswith("cnn:"))
    where = ["--no-public", "--where", f"device = 'h200' and mode = 'training' and model in {models}"]
    file = tmp_path / "best.json"
    words = ["tune", "mlp", *where, "--trials", "2", "--folds", "2", "--targets", "latency", "--out", str(file)]
    for earlier in ("2 trials", "2 trials, 2 of them before this run"):
        assert cli.run(words) == 0
        captured = capsys.readouterr().out
        assert captured.splitlines()[0] == earlier and "settings: {" in captured
    settings = json.loads(file.read_text())
    assert set(settings) == {"hidden", "steps", "learning_rate"}
    file.write_text(json.dumps({**settings, "hidden": []}))
    out = tmp_path / "weights"
    assert cli.run(["train", "mlp", *where, "--folds", "2", "--settings", str(file), "--out", str(out)]) == 0
    assert MlpPredictor.load(out).parameters() == {**settings, "hidden": [], "seed": 0}
    assert (out / "MODEL_CARD.md").is_file()
    capsys.readouterr()
    for content, sentence in (
        ({"hiden": [8]}, "the predictor mlp has no parameter 'hiden'. Did you mean hidden?"),
        ({"steps": "many"}, "steps of the predictor mlp cannot be 'many'"),
        ([1], "holds no settings"),
    ):
        file.write_text(json.dumps(content))
        assert cli.run(["train", "mlp", "--settings", str(file)]) == 2
        assert sentence in capsys.readouterr().err
    assert cli.run(["evaluate", "mlp", "--split", "family", "--refit", *where[1:]]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert "only one family among the rows" in line
