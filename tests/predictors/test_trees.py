"""The predictor trees: fitted to real rows, saved and read back, and what it says of its own answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun import cli
from forerun.data.splits import stratified
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate.check import check_predictor
from forerun.evaluate.held_out import held_out
from forerun.frontends import load_graph
from forerun.graph.profile import profile
from forerun.predictors.cases import TrainingCases
from forerun.predictors.laws.specs import roofline_ms
from forerun.predictors.published.trees import GRID, TreesPredictor
from forerun.predictors.published.trees.summary import shares, summary
from forerun.predictors.published.whole_model.devices import HOST_NUMBERS, of_hosts
from forerun.predictors.registry import load_predictor
from forerun.predictors.saved import weights_hash
from forerun.report import feature_charts
from forerun.workload import Workload

CNN = Workload("cnn:depth=4,filters=16,classes=10", batch=32, mode="training", optimizer="adamw")
Lines = Callable[[], str]


@pytest.fixture(scope="module")
def fitted(few_cases: TrainingCases) -> TreesPredictor:
    predictor = TreesPredictor(trees=60, learning_rate=0.1).fit(few_cases)
    frame = held_out(TreesPredictor(trees=20), few_cases, folds=3)
    return predictor.calibrate(frame)


@pytest.fixture(scope="module")
def folder(fitted: TreesPredictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trees")
    fitted.save(out)
    return out


def test_it_learns_more_than_the_median(fitted: TreesPredictor, few_cases: TrainingCases) -> None:
    rows, found = few_cases.models.rows, fitted.predict_cases(few_cases.models)
    for target in fitted.targets:
        error = np.abs(found[f"predicted_{target}"] / rows[target] - 1).median()
        by_median = np.abs(rows[target].median() / rows[target] - 1).median()
        assert error < 0.3 * by_median, target
    assert (found["predicted_latency_ms"] >= rows["roofline_ms"]).all()
    assert fitted.predict_cases(few_cases.cpu_models)["predicted_energy_j"].notna().all()  # type: ignore[arg-type]


def test_features_can_be_fewer(few_cases: TrainingCases) -> None:
    errors = {}
    for features, hardware in (("macs", False), ("all", True)):
        made = TreesPredictor(trees=40, features=features, hardware=hardware).fit(few_cases)
        found = made.predict_cases(few_cases.models)["predicted_latency_ms"]
        errors[features] = float(np.abs(np.log(found / few_cases.models.rows["latency_ms"])).mean())
    assert errors["all"] < errors["macs"]
    both = TreesPredictor(trees=5, host=True).fit(few_cases)
    assert both.seen[-4:] == HOST_NUMBERS and len(both.seen) == len(TreesPredictor().seen) + 4
    assert both.predict_cases(few_cases.models).notna().all().all()
    with pytest.raises(ForerunError, match="features must be macs, "):
        TreesPredictor(features="flops").fit(few_cases)


def test_host_features_are_those_of_the_cpu_beside_the_device() -> None:
    gpu, cpu = load_device("h200"), load_device("epyc-7763")
    names = ["AMD EPYC 7763 64-Core Processor", "Intel(R) Xeon(R) Processor", None, "AMD EPYC 7763 64-Core Processor"]
    found = of_hosts([gpu, gpu, gpu, cpu], names)
    assert found["host_clock"][[0, 3]].tolist() == [2450, 2450] and found["host_cores"][0] == 64
    assert found["host_cache"][0] == 256 and np.isnan(found["host_memory"][0])
    assert np.isnan(found["host_clock"][[1, 2]]).all()  # clouds hide theirs
    assert np.isnan(of_hosts([gpu])["host_clock"]).all() and of_hosts([cpu])["host_clock"] == [2450]


def test_stratified_folds_have_their_share_of_every_stratum(few_cases: TrainingCases) -> None:
    rows = few_cases.models.rows
    strata = rows["family"] + "/" + rows["mode"]
    folds = [test for _, test in stratified(rows["case_key"], strata, 3)]
    assert (np.sum(folds, axis=0) == 1).all()
    cases = rows["case_key"].groupby(strata).nunique()
    for test in folds:
        held = rows["case_key"][test].groupby(strata[test]).nunique().reindex(cases.index, fill_value=0)
        assert (np.abs(held - cases / 3) < 1).all()
    found = held_out(TreesPredictor(trees=5), few_cases, "stratified", folds=3)
    assert found["predicted_latency_ms"].notna().all()


def test_it_keeps_the_contract(fitted: TreesPredictor) -> None:
    assert "saved" in check_predictor(lambda: fitted)


def test_saved_trees_answer_the_same(fitted: TreesPredictor, folder: Path, few_cases: TrainingCases) -> None:
    again = TreesPredictor.load(folder)
    before, after = (p.predict_cases(few_cases.models) for p in (fitted, again))
    assert before.equals(after)
    columns, device = profile(load_graph(CNN), CNN.dtype), load_device("a100-sxm4-40gb")
    mine, theirs = (p.contributions(columns, device, CNN) for p in (fitted, again))
    assert [one.feature for one in mine.factors] == [one.feature for one in theirs.factors]
    assert [one.factor for one in mine.factors] == pytest.approx([one.factor for one in theirs.factors], rel=1e-6)
    assert {path.name for path in folder.iterdir()} == {
        "predictor.json", "latency_ms.json", "memory_mb.json", "energy_j.json"
    }  # fmt: skip


def test_other_trees_are_other_weights(folder: Path, few_cases: TrainingCases, tmp_path: Path) -> None:
    TreesPredictor(trees=60, learning_rate=0.1, seed=1).fit(few_cases).save(tmp_path)
    assert weights_hash(tmp_path) != weights_hash(folder)


def changed(text: str, change: Callable[[Any], Any]) -> str:
    content = json.loads(text)
    change(content["learner"]["gradient_booster"]["model"]["trees"][0])
    return json.dumps(content)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (lambda text: text[: len(text) // 2], "latency_ms.json"),
        (lambda text: "[]", "holds no whole trees"),
        (lambda text: "{}", "holds no whole trees"),
        (lambda text: changed(text, lambda tree: tree["left_children"].__setitem__(0, 10**6)), "names nodes"),
        (lambda text: changed(text, lambda tree: tree["left_children"].__setitem__(0, 0)), "names nodes"),
        (lambda text: changed(text, lambda tree: tree["split_indices"].__setitem__(0, 999)), "features that there are"),
        (lambda text: changed(text, lambda tree: tree["sum_hessian"].pop()), "lists of different lengths"),
        (lambda text: changed(text, lambda tree: tree.pop("split_conditions")), "split_conditions"),
    ],
)
def test_a_broken_file_is_one_sentence(
    broken: Callable[[str], str], sentence: str, folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    file = copy / "latency_ms.json"
    file.write_text(broken(file.read_text()))
    with pytest.raises(ForerunError, match=sentence) as caught:
        TreesPredictor.load(copy)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "energy_j.json").unlink()
    with pytest.raises(ForerunError, match=r"energy_j.json: no such file"):
        TreesPredictor.load(copy)


def test_too_few_rows_and_a_target_that_nobody_measured(few_cases: TrainingCases) -> None:
    few = np.zeros(len(few_cases.models), dtype=bool)
    with pytest.raises(ForerunError, match="there are 0 of these: it needs 20"):
        TreesPredictor().fit(TrainingCases(few_cases.models.take(few), few_cases.operators))
    without = replace(few_cases.models, rows=few_cases.models.rows.drop(columns="energy_j"))
    empty = replace(few_cases.models, rows=few_cases.models.rows.assign(energy_j=np.nan))
    for models in (without, empty):
        with pytest.raises(ForerunError, match="energy_j was measured in fewer than 20"):
            TreesPredictor().fit(TrainingCases(models, few_cases.operators))


def test_contributions_add_up_to_the_answer(fitted: TreesPredictor) -> None:
    columns, device = profile(load_graph(CNN), CNN.dtype), load_device("h200")
    found = fitted.contributions(columns, device, CNN)
    total = found.usual_ms * np.prod([one.factor for one in found.factors])
    assert total == pytest.approx(found.latency_ms, rel=1e-5)
    answer = fitted.times(columns, [device], CNN).latency_ms[0, 0]
    assert max(found.latency_ms, roofline_ms(columns, [device])[0, 0]) == pytest.approx(answer, rel=1e-5)
    strengths = [one.strength for one in found.factors]
    assert strengths == sorted(strengths, reverse=True)
    shown, rest = found.top(5)
    assert len(shown) == 5 and rest == pytest.approx(np.prod([one.factor for one in found.factors[5:]]))


def test_explain_prints_and_draws_them(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", str(CNN.model), "-d", "h200", "-b", "32", "--mode", "training", "--predictor", str(folder)]
    assert cli.run([*words, "--top", "4", "--figure", str(tmp_path / "why.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("× " in line for line in lines) == 5 and any("more)" in line for line in lines)
    page = (tmp_path / "why.html").read_text()
    assert "usual" in page and "predicted" in page and "<script" in page
    assert cli.run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictor"] == "trees"
    for more, sentence in (
        (["--figure", str(tmp_path / "why.png")], "ends in .html"),
        (["--host", "1.5"], "knows nothing of hosts"),
    ):
        assert cli.run([*words, *more]) == 2
        assert sentence in capsys.readouterr().err
    assert cli.run(["explain", "cnn:depth=4,filters=16", "-d", "h200", "--figure", "x.html"]) == 2
    assert "explains the time of ops" in capsys.readouterr().err


def test_a_summary_over_many_cases(fitted: TreesPredictor, few_cases: TrainingCases) -> None:
    table = summary(fitted, few_cases.models)
    assert list(table.columns) == ["feature", "mean_log", "mean_factor"]
    assert table["mean_log"].is_monotonic_decreasing and table["mean_factor"].iloc[0] > 1.05
    found, values = shares(fitted, few_cases.models)
    assert found.shape == values.shape == (len(few_cases.models), len(fitted.seen))
    assert len(feature_charts.summary_bars(table, 8).data[0].x) == 8
    assert len(feature_charts.beeswarm(found, values, 6).data) == 6


def test_the_grid_names_parameters() -> None:
    assert set(GRID) <= set(TreesPredictor().parameters())
    usual = TreesPredictor().parameters()
    assert all(usual[name] in values for name, values in GRID.items())


@pytest.mark.parametrize("name", ["trees", "regressors"])
def test_one_gpu_teaches_nothing_of_others(name: str) -> None:
    """As shipped they know the H200 alone among GPUs, and neither another GPU nor a slice is answered; or others from
    simulated rows, which their answers say."""
    if getattr(load_predictor(name), "simulated_devices_", []):
        assert forerun.predict("cnn:depth=2,filters=8", "a100-sxm4-40gb", predictor=name).basis == "simulated"
        return
    with pytest.raises(ForerunError, match=r"knows h200, .* and no other device: 3 of a kind are needed"):
        forerun.predict("cnn:depth=2,filters=8", "a100-sxm4-40gb", predictor=name)
    found = forerun.predict("cnn:depth=2,filters=8", "h200", predictor=name)
    assert found.mig_options and all(option.latency_ms is None for option in found.mig_options)
