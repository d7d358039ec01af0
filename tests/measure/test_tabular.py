"""Tabular models: their names, what is really built, and a sweep that goes on where it was cut."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("xgboost")

from forerun.errors import ForerunError, MissingPackage
from forerun.measure import tabular, tabular_models
from forerun.measure.core import rows, specs
from forerun.measure.core.protocol import PROTOCOL_VERSION

ROOT = Path(__file__).parents[2]
TREES = ("random_forest", "extra_trees", "hist_gradient_boosting", "xgboost")
TINY: dict[str, Any] = {
    "name": "tiny",
    "kind": "tabular",
    "seed": 2,
    "n": 4,
    "per_model": 2,
    "kinds": ["xgboost", "random_forest"],
    "draws": {"trees": [3], "depth": [3, 4], "features": [4, 8]},
    "rows": [1, 50],
    "threads": [1, "all"],
}


@pytest.mark.parametrize(
    "text",
    [
        "tabular:random_forest,trees=100,depth=8,features=32",
        "tabular:extra_trees,trees=1,depth=1,features=4",
        "tabular:hist_gradient_boosting,trees=500,depth=16,features=256",
        "tabular:xgboost,trees=10,depth=3,features=8",
        "tabular:logistic_regression,features=16",
        "tabular:mlp,layers=2,width=64,features=8",
    ],
)
def test_names_round_trip(text: str) -> None:
    kind, settings = tabular_models.parse(text)
    assert tabular_models.name(kind, **settings) == text


def test_order_and_spaces_do_not_matter() -> None:
    kind, settings = tabular_models.parse("tabular:xgboost, features=8, depth=3, trees=10")
    assert tabular_models.name(kind, **settings) == "tabular:xgboost,trees=10,depth=3,features=8"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("random_forest,trees=10,depth=3,features=8", "must begin with 'tabular:'"),
        ("tabular:random_forst,trees=10,depth=3,features=8", "Did you mean random_forest?"),
        ("tabular:", "is no kind of tabular model"),
        ("tabular:xgboost,trees=10,depth=3", "needs features=, as in tabular:xgboost,trees=100,depth="),
        ("tabular:xgboost,trees=10,deep=3,features=8", "'deep=3' in"),
        ("tabular:xgboost,trees=10,depth=3,features=8,", "'' in"),
        ("tabular:xgboost,trees=10,trees=20,depth=3,features=8", "'trees' is given twice"),
        ("tabular:xgboost,trees=10,depth=17,features=8", "depth=17 in"),
        ("tabular:xgboost,trees=-1,depth=3,features=8", "must be a whole number from 1 to 5000."),
        ("tabular:logistic_regression,trees=10,features=8", "'trees=10' in"),
        ("tabular:mlp,layers=two,width=8,features=8", "layers=two in"),
    ],
)
def test_bad_names_give_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(ForerunError) as caught:
        tabular_models.parse(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingPackage, match=r"needs xgboost, .* pip install 'forerun\[tabular\]'$"):
        tabular_models.build("xgboost", trees=2, depth=2, features=4)
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(MissingPackage, match="needs scikit-learn"):
        tabular_models.build("random_forest", trees=2, depth=2, features=4)


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize(("trees", "depth", "features"), [(4, 1, 4), (5, 6, 8), (3, 16, 4), (2, 16, 64)])
def test_trees_are_what_was_asked(kind: str, trees: int, depth: int, features: int) -> None:
    result = tabular_models.facts(kind, tabular_models.build(kind, trees=trees, depth=depth, features=features))
    assert (result["trees"], result["max_depth"]) == (trees, depth)
    assert result["mean_depth"] == depth, "every tree reaches the depth, not just one"
    assert trees * (2 * depth + 1) <= result["nodes"] <= trees * (2 ** (depth + 1) - 1)
    assert result["nodes"] > trees * min(2**depth, 300) / 2, "a chain would reach the depth too"


def test_counts_agree_with_the_library() -> None:
    model = tabular_models.build("xgboost", trees=3, depth=5, features=8)
    assert tabular_models.facts("xgboost", model)["nodes"] == len(model.get_booster().trees_to_dataframe())
    network = tabular_models.build("mlp", layers=2, width=16, features=8)
    # 8 * 16 + 16, 16 * 16 + 16, and 16 + 1 for the one output of two classes
    assert tabular_models.facts("mlp", network) == {"parameters": 144 + 272 + 17}
    linear = tabular_models.build("logistic_regression", features=8)
    assert tabular_models.facts("logistic_regression", linear) == {"parameters": 9}


def test_the_published_spec() -> None:
    spec = specs.load(str(ROOT / "sweeps" / "cpu_tabular.yaml"))
    drawn = tabular.cases(spec)
    assert drawn == tabular.cases(spec)
    assert len({specs.key_of(case) for case in drawn}) == len(drawn) == 340
    assert {case["family"] for case in drawn} == set(tabular_models.KINDS)
    assert {case["batch"] for case in drawn} == set(spec["rows"])
    assert min(Counter(case["name"] for case in drawn).values()) >= 2
    one, other = {**drawn[0], "threads": 1}, {**drawn[0], "threads": 2}
    assert specs.key_of(one) != specs.key_of(other)


def test_bad_specs_give_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for change, reason in (({"kind": "op"}, "kind tabular"), ({"n": 500}, "give only"), ({"kinds": ["svm"]}, "svm")):
        path = tmp_path / "spec.json"
        path.write_text(json.dumps({**TINY, **change}))
        assert tabular.main([str(path), "--out", str(tmp_path / "rows.jsonl")]) == 2
        printed = capsys.readouterr().err
        assert reason in printed and printed.count("\n") == 1
    assert not (tmp_path / "rows.jsonl").exists()


def measured(out: Path) -> list[dict[str, Any]]:
    return [row for row in rows.read(out) if row["kind"] == "model"]


def test_runs_and_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    spec, out = tmp_path / "tiny.json", tmp_path / "rows.jsonl"
    spec.write_text(json.dumps(TINY))
    command = [sys.executable, "-m", "forerun.measure.tabular", str(spec), "--out", str(out), "--budget", "200"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300).stdout
    assert "cases in" in printed and "0 units left" in printed
    first = measured(out)
    keys = Counter((row["key"], row["repeat"]) for row in first)
    assert set(keys.values()) == {1}
    assert {key for key, repeat in keys if not repeat} == {specs.key_of(case) for case in tabular.cases(TINY)}
    assert sum(repeat for _, repeat in keys) >= 0.08 * 4
    for row in rows.merge(rows.read(out)):
        assert (row["status"], row["protocol"], row["spec"]) == ("ok", PROTOCOL_VERSION, "tiny")
        assert row["latency_ms"] > 0 and row["loop_ms"] > 0 and row["memory"]["used_mb"] > 0
        assert row["wall_ms"]["min"] <= row["wall_ms"]["median"] <= row["wall_ms"]["p99"]
        assert row["timed_calls"] >= 5 and "energy_j" in row and row["time"]
        kind, settings = tabular_models.parse(row["case"]["name"])
        assert (kind, settings["depth"]) == (row["case"]["family"], row["max_depth"])
        assert row["nodes"] >= settings["trees"] * (2 * settings["depth"] + 1)
        assert row["case"]["source"] == "tabular" and row["case"]["input_shape"] == [settings["features"]]
        assert row["software"]["sklearn"] and row["software"]["xgboost"] and row["device"]["kind"] == "cpu"

    data = out.read_bytes()
    out.write_bytes(data[:-40])
    stored = len(measured(out))
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    again = measured(out)
    assert stored == len(first) - 1 and again[:stored] == first[:stored]
    assert Counter((row["key"], row["repeat"]) for row in again) == keys


@pytest.fixture
def _process_as_it_was() -> Iterator[None]:
    """A worker sets the process up for measuring; other tests want their log and their signals back."""
    handler = signal.getsignal(signal.SIGALRM)
    yield
    logging.disable(logging.NOTSET)
    signal.signal(signal.SIGALRM, handler)


@pytest.mark.usefixtures("_process_as_it_was")
def test_failures_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(kind: str, **settings: int) -> None:
        raise ValueError(f"{kind} does not like this")

    monkeypatch.setattr(tabular_models, "build", broken)
    assert tabular.run(TINY, tmp_path / "rows.jsonl", 60) == 0
    result = measured(tmp_path / "rows.jsonl")
    assert len(result) > 4 and {row["status"] for row in result} == {"error"}
    assert all(f"ValueError: {row['case']['family']} does not like this" in row["reason"] for row in result)
