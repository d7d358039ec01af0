"""Arguments that cannot be are refused in one sentence that names them, through Python and through the command line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

import forerun
from forerun.errors import ForerunError

CNN = "cnn:depth=2,filters=16,classes=10"
NAN, INFINITE = float("nan"), float("inf")
POPULATION = "cnn:depth={depth},filters=16,classes=10"
JOB: dict[str, Any] = {"device": "h200", "dataset_size": 1000, "epochs": 1}
TRAINING: dict[str, Any] = {"mode": "training", "epochs": 3, "dataset_size": 1000}

LISTS: list[tuple[str, Callable[[], Any], str]] = [
    ("compare with none", lambda: forerun.compare(CNN, []), "devices must not be empty"),
    ("compare with text", lambda: forerun.compare(CNN, "h200"), "devices must be a list, got 'h200'"),
    ("no workloads", lambda: forerun.predict_many([], ["h200"]), "workloads must not be empty"),
    ("no devices", lambda: forerun.predict_many([{"model": CNN}], []), "devices must not be empty"),
    ("one workload", lambda: forerun.predict_many({"model": CNN}, ["h200"]), "workloads must be a list"),
    ("workload as text", lambda: forerun.predict_many([CNN], ["h200"]), "a workload is a mapping of its settings"),
    *[
        (f"recommend {name}", lambda name=name: forerun.recommend(CNN, **{name: []}), f"{name} must not be empty")
        for name in ("devices", "vendors", "clouds", "regions", "gpus", "batches", "dtypes")
    ],
    ("recommend among text", lambda: forerun.recommend(CNN, devices="h200"), "devices must be a list"),
    ("recommend of a number", lambda: forerun.recommend(CNN, vendors=[5]), "a name is text, got 5"),
    ("budget on none", lambda: forerun.budget(CNN, **{**JOB, "device": []}), "device must not be empty"),
    ("pack nothing", lambda: forerun.pack_mig([], "h200"), "there is no workload to place"),
    ("pack a number", lambda: forerun.pack_mig(5, "h200"), "not 5"),
    ("report on none", lambda: forerun.make_report(CNN, [], "report.html"), "devices must not be empty"),
    ("uneven columns", lambda: forerun.predict_population(POPULATION, {"depth": [2, 3], "batch": [1]}, "h200"),
     "depth 2, batch 1"),
    ("no column", lambda: forerun.predict_population(POPULATION, {"depth": 3}, "h200"), "depth must be a column"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "sentence"), [case[1:] for case in LISTS], ids=[case[0] for case in LISTS])
def test_lists_that_are_empty_or_none_at_all(ask: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ForerunError) as refused:
        ask()
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["epochs", "dataset_size"])
@pytest.mark.parametrize("value", ["3", 2.5, NAN, INFINITE, True, 0, -1, 10**400, [3]], ids=repr)
def test_counts_of_a_training(name: str, value: Any) -> None:
    with pytest.raises(ForerunError, match=f"{name} must be (a whole number of 1 or more|at most)"):
        forerun.predict(CNN, "h200", **{**TRAINING, name: value})


@pytest.mark.parametrize("name", ["max_hours", "max_seconds", "max_usd", "max_kwh", "max_carbon_kg"])
@pytest.mark.parametrize("value", ["3", NAN, INFINITE, 1e308, 10**400, -1, True, [3]], ids=repr)
def test_limits_of_a_job(name: str, value: Any) -> None:
    with pytest.raises(ForerunError, match=f"{name} must be (a number of 0 or more|at most)"):
        forerun.budget(CNN, device="h200", dataset_size=1000, **{name: value})


def test_the_largest_limit_that_is_taken_is_answered() -> None:
    row = forerun.budget(CNN, device="h200", dataset_size=10, max_hours=1e15).rows[0]
    assert row.hours.value <= 1e15 and row.each.hours.value + row.hours.value >= 1e15 * (1 - 1e-9)


@pytest.mark.parametrize(
    "wrong",
    [{"confidence": "0.9"}, {"confidence": NAN}, {"host": NAN}, {"region": 5}, {"instance": 5}, {"task": 5},
     {"predictor": 5}, {"predictor": None}, {"batch": "3"}, {"batch": INFINITE}, {"seq_len": "3"}],
    ids=str,
)  # fmt: skip
def test_settings_of_another_type(wrong: dict[str, Any]) -> None:
    with pytest.raises(ForerunError) as refused:
        forerun.predict(CNN, "h200", **wrong)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("goal", [[], NAN, 5])
def test_goals_of_another_type(goal: Any) -> None:
    for ask in (
        lambda: forerun.optimise(CNN, "h200", goal=goal), lambda: forerun.recommend(CNN, goal=goal),
        lambda: forerun.pack_mig([CNN], "h200", goal=goal),
    ):  # fmt: skip
        with pytest.raises(ForerunError, match="goal"):
            ask()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (f"budget {CNN} -d h200 --dataset-size 1000 --max-hours 1e308", "--max-hours must be at most"),
        (f"budget {CNN} -d h200 --dataset-size 1000 --max-usd nan", "--max-usd must be a number"),
        (f"predict {CNN} -d h200 --mode training --epochs 0 --dataset-size 9", "--epochs must be a whole number"),
        ("landscape estimate --parameters inf --tokens 1T -d h200", "inf"),
        (f"compare {CNN} -d ,", "device"),
    ],
)  # fmt: skip
def test_the_command_line_says_one_sentence_and_exits_with_2(
    run_forerun: Callable[..., subprocess.CompletedProcess[str]], words: str, sentence: str
) -> None:
    done = run_forerun(*words.split())
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert sentence in " ".join(done.stderr.split())
