"""Tabular models through the public doors: by their settings, as fitted estimators, and what is refused."""

from __future__ import annotations

import json

import pytest

import forerun
from forerun.cli import run
from forerun.errors import ForerunError
from forerun.frontends.tabular.kinds import KINDS

CPU = "epyc-7763"
FIT = "tabular:xgboost,trees=500,depth=8,rows=1e6,columns=50"


def seconds(name: str, device: str = CPU, **settings: object) -> float:
    answer = forerun.predict(name, device, **settings)
    assert answer.latency_ms is not None
    return answer.latency_ms.value / 1e3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_every_kind_answers_time_memory_and_energy_with_intervals(kind: str, mode: str) -> None:
    answer = forerun.predict(f"tabular:{kind},rows=2e4,columns=20", CPU, mode=mode, threads=8)
    assert answer.basis == "learned" and "memory of" in answer.unknown["fit"]
    for name in ("latency_ms", "memory_mb", "memory_allocated_mb", "energy_j", "power_w", "throughput", "cost_usd"):
        found = getattr(answer, name)
        assert found is not None, answer.unknown
        assert 0 < found.low <= found.value <= found.high
    assert answer.energy_j is not None and answer.latency_ms is not None
    assert answer.energy_j.high <= 280 * answer.latency_ms.high / 1e3, "no more than the power limit of one socket"
    assert answer.memory_mb is not None and answer.memory_mb.low > 50
    assert forerun.Prediction.from_json(answer.to_json()) == answer


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("tabular:xgboost,trees=100,rows=1e5,columns=50", FIT),
        ("tabular:random_forest,rows=1e4,columns=20", "tabular:random_forest,rows=1e5,columns=20"),
        ("tabular:svm,rows=3e3,columns=20", "tabular:svm,rows=3e4,columns=20"),
        ("tabular:mlp,width=64,columns=20", "tabular:mlp,width=256,layers=3,columns=20"),
    ],
)
def test_more_work_takes_longer(less: str, more: str) -> None:
    assert seconds(less, mode="training") < seconds(more, mode="training")


def test_threads_help_as_far_as_the_library_uses_them() -> None:
    assert seconds(FIT, mode="training", threads=16) < seconds(FIT, mode="training", threads=2)
    alone = "tabular:svm,rows=1e4,columns=20"
    assert seconds(alone, mode="training", threads=16) == pytest.approx(seconds(alone, mode="training", threads=2))


def test_intervals_widen_beyond_what_was_measured() -> None:
    def width(name: str, device: str, **settings: object) -> float:
        found = forerun.predict(name, device, mode="training", **settings).latency_ms
        assert found is not None
        return found.high / found.low

    near = "tabular:hist_gradient_boosting,rows=1e4,columns=20"
    assert width(near, CPU, threads=2) > width(near, "xeon-emr-2vcpu")
    assert width(near, CPU, threads=64) > width(near, CPU, threads=2)
    assert width(near.replace("1e4", "1e8"), CPU, threads=2) > width(near, CPU, threads=2)
    assert width(near, CPU, threads=2, confidence=0.95) > width(near, CPU, threads=2)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["tabular:xgboost,trees=0,columns=5"], "trees=0 in"),
        (["tabular:xgboost,depth=-1,columns=5"], "depth=-1 in"),
        (["tabular:xgbost,columns=5"], "Did you mean xgboost?"),
        (["tabular:xgboost,rows=0,columns=5"], "rows=0 in"),
        (["tabular:xgboost,columns=1e12"], "columns=1e12 in"),
        (["tabular:xgboost"], "needs columns="),
        ([FIT, "--mode", "training", "--device", "h200"], "h200 is a GPU: no law of tabular models is known there"),
        ([FIT, "--mode", "decode"], "has the modes inference and training, not decode"),
        ([FIT, "--mode", "training", "--batch", "8"], "a fit reads all rows of its table"),
        ([FIT, "--dtype", "fp16"], "leave dtype out"),
        ([FIT, "--seq-len", "8"], "seq_len is no setting of a tabular model"),
        ([FIT, "--mode", "training", "--optimizer", "adam"], "leave optimizer adam out"),
        ([FIT, "--predictor", "roofline"], "--predictor is no setting of a tabular model"),
        ([FIT, "--threads", "1000"], "threads must be a whole number from 1 to 64"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    device = [] if "--device" in arguments else ["--device", CPU]
    assert run(["predict", *arguments, *device]) == 2
    printed = capsys.readouterr().err
    assert reason in printed and printed.count("\n") == 1


def test_commands_that_need_a_graph_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", FIT, "--device", CPU]) == 2
    assert "a tabular model has no graph of operations" in capsys.readouterr().err


def test_the_command_prints_what_python_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", FIT, "--mode", "training", "--device", CPU, "--threads", "16", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    answer = forerun.predict(FIT, CPU, mode="training", threads=16)
    assert answer.latency_ms is not None
    assert printed["latency_ms"]["value"] == answer.latency_ms.value
    assert (
        printed["check"] == "forerun measure tabular:xgboost,trees=500,depth=8,rows=1000000,columns=50 --mode training"
    )


def test_a_fitted_estimator_is_read_as_it_is() -> None:
    pytest.importorskip("sklearn")
    import numpy as np
    from sklearn import cluster, ensemble, linear_model, neighbors, neural_network, svm

    x = np.random.default_rng(0).standard_normal((300, 6), dtype=np.float32)
    y = (x[:, 0] > 0).astype(int)
    for estimator, name in (
        (ensemble.RandomForestClassifier(7, max_depth=4), "tabular:random_forest,trees=7,depth=4,rows=300,columns=6"),
        (ensemble.HistGradientBoostingRegressor(max_iter=5),
         "tabular:hist_gradient_boosting,trees=5,classes=0,rows=300,columns=6"),
        (neighbors.KNeighborsClassifier(3), "tabular:knn,neighbors=3,rows=300,columns=6"),
        (svm.SVR(), "tabular:svm,classes=0,rows=300,columns=6"),
        (neural_network.MLPClassifier((8, 8), max_iter=3), "tabular:mlp,layers=2,width=8,epochs=3,rows=300,columns=6"),
        (linear_model.LogisticRegression(), "tabular:logistic_regression,columns=6"),
    ):  # fmt: skip
        answer = forerun.predict(estimator.fit(x, y), CPU, batch=100, threads=2)
        assert answer.model == name and (answer.check is None) == ("rows=" not in name)
    few, many = (ensemble.ExtraTreesClassifier(200, max_depth=d, random_state=0).fit(x, y) for d in (1, 9))
    assert seconds(few, batch=10_000) < seconds(many, batch=10_000)
    for wrong, reason in (
        (cluster.KMeans(2).fit(x), "no law of KMeans is known"),
        (ensemble.RandomForestClassifier(), "this RandomForestClassifier is not fitted"),
        (linear_model.Ridge(), "this Ridge is not fitted"),
    ):
        with pytest.raises(ForerunError, match=reason):
            forerun.predict(wrong, CPU)
    with pytest.raises(ForerunError, match="does not keep how many rows"):
        forerun.predict(linear_model.Ridge().fit(x, y), CPU, mode="training")


def test_measuring_through_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setenv("FORERUN_BUSY_SHARE", "1")
    for mode, rows in (("training", 300), ("inference", 20)):
        arguments = ["measure", "tabular:ridge,rows=300,columns=5", "--mode", mode, "--no-keep", "--json"]
        assert run([*arguments, *(["--batch", "20"] if mode == "inference" else [])]) == 0
        row = json.loads(capsys.readouterr().out)
        assert row["status"] == "ok" and row["latency_ms"] > 0 and row["parameters"] == 6
        assert row["case"]["batch"] == rows and row["case"]["threads"] >= 1 and row["software"]["sklearn"]
    assert run(["measure", "tabular:ridge,rows=300,columns=5", "--device", "cuda", "--no-keep"]) == 2
    assert "on this machine's CPU" in capsys.readouterr().err
