"""Tabular models: what is really built, and a sweep that goes on where it was cut."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("xgboost")

from forerun.errors import ForerunError, MissingPackage
from forerun.frontends.tabular import kinds
from forerun.measure import sweep
from forerun.measure.core import rows, specs, tabular_cases, tabular_models
from forerun.measure.core.protocol import PROTOCOL_VERSION

ROOT = Path(__file__).parents[2]
TINY: dict[str, Any] = {
    "name": "tiny",
    "kind": "tabular",
    "seed": 2,
    "rows": [1, 50],
    "threads": [1],
    "blocks": [
        {"kind": "xgboost", "n": 1, "calls": 1, "draw": {"trees": [3], "depth": [3], "rows": [300], "columns": [4, 8]}},
        {"kind": "ridge", "n": 1, "calls": 1, "draw": {"rows": [300], "columns": [4]}},
    ],
}


def fitted(name: str) -> tuple[kinds.Tabular, Any]:
    model = kinds.parse(name)
    with tabular_models.library("threadpoolctl").threadpool_limits(1):
        return model, tabular_models.fit(tabular_models.untrained(model, 1), *tabular_models.table(model))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("tabular:xgboost,trees=500,depth=8,rows=1e6,columns=50",) * 2,
        ("tabular:random_forest, columns=20 ,rows=1e5", "tabular:random_forest,rows=100000,columns=20"),
        ("tabular:mlp,layers=2,width=64,features=8", "tabular:mlp,layers=2,width=64,rows=10000,columns=8"),
        ("tabular:knn,neighbors=5,columns=9", "tabular:knn,rows=10000,columns=9"),
    ],
)
def test_names_round_trip(text: str, written: str) -> None:
    model = kinds.parse(text)
    assert model.name == written.replace("1e6", "1000000")
    assert kinds.parse(model.name) == model


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tabular:random_forst,columns=8", "Did you mean random_forest?"),
        ("tabular:", "is no kind of tabular model"),
        ("tabular:xgboost,trees=10,depth=3", "needs columns=, as in tabular:xgboost,rows="),
        ("tabular:xgboost,trees=10,deep=3,columns=8", "'deep=3' in"),
        ("tabular:xgboost,trees=10,trees=20,depth=3,columns=8", "'trees' is given twice"),
        ("tabular:xgboost,trees=0,columns=8", "trees=0 in 'tabular:xgboost,trees=0,columns=8' must be a whole number"),
        ("tabular:xgboost,depth=-1,columns=8", "must be a whole number from 1 to 64."),
        ("tabular:xgboost,rows=0,columns=8", "rows=0 in"),
        ("tabular:xgboost,columns=1e12", "columns=1e12 in"),
        ("tabular:xgboost,columns=1.5e0", "columns=1.5e0 in"),
        (f"tabular:xgboost,columns={'9' * 5000}", "must be a whole number"),
        ("tabular:ridge,trees=10,columns=8", "'trees=10' in"),
        ("tabular:mlp,layers=two,columns=8", "layers=two in"),
        ("tabular:xgboost,classes=1,columns=8", "classes=0 is regression"),
        ("tabular:knn,neighbors=50,rows=20,columns=8", "50 neighbors among 20 rows"),
    ],
)
def test_bad_names_give_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(ForerunError) as caught:
        kinds.parse(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingPackage, match=r"needs xgboost, .* pip install 'forerun\[tabular\]'$"):
        fitted("tabular:xgboost,trees=2,columns=4,rows=50")


@pytest.mark.parametrize("kind", ["random_forest", "hist_gradient_boosting", "xgboost", "decision_tree"])
@pytest.mark.parametrize("classes", [0, 2])
def test_trees_are_what_was_asked(kind: str, classes: int) -> None:
    trees = "" if kind == "decision_tree" else "trees=3,"
    model, estimator = fitted(f"tabular:{kind},{trees}depth=4,classes={classes},rows=2000,columns=8")
    result = tabular_models.facts(estimator, kind)
    assert (result["trees"], result["max_depth"]) == (model.settings.get("trees", 1), 4)
    assert result["trees"] * 9 <= result["nodes"] <= result["trees"] * 31
    assert tabular_models.asked(estimator, kind)(tabular_models.questions(model, 7)).shape[0] == 7


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 8 * 16 + 16, 16 * 16 + 16, and 16 + 1 for the one output of two classes
        ("tabular:mlp,layers=2,width=16,epochs=2,rows=300,columns=8", {"parameters": 144 + 272 + 17, "iterations": 2}),
        ("tabular:ridge,rows=300,columns=8", {"parameters": 9}),
        ("tabular:knn,rows=300,columns=8", {"searches_tree": 1}),
        ("tabular:knn,rows=300,columns=30", {"searches_tree": 0}),
    ],
)
def test_facts_of_other_kinds(name: str, expected: dict[str, int]) -> None:
    model, estimator = fitted(name)
    assert tabular_models.facts(estimator, model.kind) == expected


def test_nodes_of_lightgbm_are_read_from_its_own_text() -> None:
    pytest.importorskip("lightgbm")
    _, estimator = fitted("tabular:lightgbm,trees=3,depth=4,leaves=12,rows=2000,columns=8")
    frame = estimator.booster_.trees_to_dataframe()
    result = tabular_models.facts(estimator, "lightgbm")
    assert (result["nodes"], result["max_depth"]) == (len(frame), int(frame["node_depth"].max()) - 1)


def test_the_published_spec() -> None:
    spec = sweep.load(ROOT / "sweeps" / "tabular.yaml")
    drawn = tabular_cases.cases(spec)
    assert drawn == tabular_cases.cases(spec)
    assert len({specs.key_of(case) for case in drawn}) == len(drawn) >= 800
    assert {case["family"] for case in drawn} == set(kinds.KINDS)
    assert {case["threads"] for case in drawn} == {1, 2}
    assert max(case["batch"] for case in drawn) == 10**6
    assert min(Counter(case["family"] for case in drawn if case["mode"] == "training").values()) >= 12


def test_bad_specs_give_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    block = TINY["blocks"][0]
    for change, reason in (
        ({"blocks": []}, "needs blocks"),
        ({"blocks": [{"kind": "xgboost"}]}, "block 1 needs kind, n and draw"),
        ({"blocks": [{**block, "n": 50}]}, "give only 2 of the 50"),
        ({"blocks": [{**block, "kind": "svn"}]}, "Did you mean svm?"),
        ({"rows": None}, "cannot be expanded"),
    ):
        path.write_text(json.dumps({**TINY, **change}))
        with pytest.raises(ForerunError, match=reason):
            sweep.run([path], tmp_path / "rows.jsonl", budget_s=5, device="cpu")
    assert not (tmp_path / "rows.jsonl").exists()


def test_runs_and_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    path, out = tmp_path / "tiny.json", tmp_path / "rows.jsonl"
    path.write_text(json.dumps(TINY))
    done, wanted = sweep.run([path], out, budget_s=150, device="cpu", case_limit_s=60)
    assert done == wanted >= 4
    first = [row for row in rows.merge(rows.read(out)) if row["kind"] == "model"]
    assert {row["case"]["mode"] for row in first} == {"training", "inference"}
    for row in first:
        assert (row["status"], row["protocol"], row["spec"]) == ("ok", PROTOCOL_VERSION, "tiny")
        assert row["latency_ms"] > 0 and row["loop_ms"] > 0 and row["memory"]["used_mb"] > 0
        assert row["host_probe_before"]["python_us"] > 0 and "energy_j" in row and row["time"]
        assert row["case"]["input_shape"] == [kinds.parse(row["case"]["name"]).settings["columns"]]
        assert row["software"]["sklearn"] and row["software"]["xgboost"] and row["device"]["kind"] == "cpu"
        assert row["case"]["family"] == "ridge" or row["nodes"] >= 9
        fits = row["case"]["mode"] == "training"
        assert row["case"]["batch"] == (300 if fits else row["case"]["batch"]) and row["timed_calls"] >= 1
    data = out.read_bytes()
    out.write_bytes(data[:-40])
    assert sweep.run([path], out, budget_s=150, device="cpu", case_limit_s=60) == (done, wanted)
    again = Counter((row["key"], row["repeat"]) for row in rows.read(out) if row["kind"] == "model")
    assert set(again.values()) == {1}
