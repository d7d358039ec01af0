"""Published predictors side by side: splits by declaration, what is kept of them, what they cost, the document."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from by_numbers import PowerLaw
from entry_points import installed

from forerun.cli import run
from forerun.data import domains, schema
from forerun.data.store import Store
from forerun.data.summary import REPEATED
from forerun.errors import ForerunError
from forerun.evaluate import predictors_document, same_rows, studies
from forerun.evaluate.collect import collect, from_rows, stored_frame
from forerun.evaluate.costs import costs, store_costs, stored_costs
from forerun.evaluate.full import study_board, summary
from forerun.evaluate.held_out import held_out
from forerun.evaluate.judged import judged
from forerun.evaluate.metrics import figures
from forerun.evaluate.published_figures import PUBLISHED, published_cell
from forerun.evaluate.same_rows import BASELINES, StoredPredictions, device_lines, split_lines
from forerun.evaluate.stored import (
    is_prediction,
    store_device_lines,
    store_predictions,
    stored_device_lines,
    stored_predictions,
)
from forerun.networks import FILES
from forerun.predictors.baselines.dummy import DummyPredictor
from forerun.predictors.cases import TrainingCases
from forerun.predictors.laws.graph_numbers import GRAPH_NUMBERS
from forerun.predictors.registry import PREDICTORS
from forerun.predictors.saved import SHIPPED
from forerun.training.cases import model_cases

TARGETS = ["latency_ms", "memory_mb", "energy_j"]
MODELS = (
    "cnn:depth=2,filters=16,classes=10", "unet:base=24,levels=2,outputs=1",
    "autoencoder:image=32,width=16,levels=3,latent=64,variational=1",
)  # fmt: skip


def with_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """Stored rows with the numbers of graphs, which their table lacks: made up from what it has."""
    numbers = dict.fromkeys(GRAPH_NUMBERS, 0.0) | {"nodes": rows["kernel_launches"], "edges": rows["kernel_launches"]}
    numbers |= {"parameters": rows["parameters"].fillna(1e6), "macs": rows["flops"] / 2, "op_kinds": "conv matmul"}
    return rows.assign(**numbers)


def nothing_to_gather() -> Any:
    raise AssertionError("kept predictions and columns of the table are enough")


@dataclass(frozen=True)
class Fitted:
    folder: Path
    predictor: PowerLaw
    rows: pd.DataFrame
    frames: dict[str, pd.DataFrame]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """All rows of models on the H200, with the default's answers."""
    return with_numbers(stored_predictions(SHIPPED / "default"))


@pytest.fixture(scope="module")
def registered() -> Iterator[None]:
    """`power-law` is a registered predictor."""
    with installed(PREDICTORS, EntryPoint("power-law", "by_numbers:PowerLaw", "forerun.predictors")):
        yield


@pytest.fixture(scope="module")
def fitted(registered: None, rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fitted]:
    """Fitted to some of the rows, by columns, with what it keeps; others are compared on these rows."""
    rows = rows[rows["repeat"] == 0].iloc[::6].reset_index(drop=True)
    predictor, cases = PowerLaw(), from_rows(rows)
    found = judged(predictor, cases, progress=lambda title: nullcontext())
    predictor.fit(cases).calibrate(found.calibration)
    folder = tmp_path_factory.mktemp("fitted") / "power-law"
    predictor.save(folder)
    for part, frame in found.frames.items():
        store_predictions(folder, frame, part, predictor.columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(same_rows, "stored_frame", lambda name, split: stored_frame(name, split, rows))
        yield Fitted(folder, predictor, rows, found.frames)


def test_figures_have_r_squared_and_shares_within_five_and_ten_per_cent() -> None:
    measured = np.array([1.0, 2.0, 3.0, 4.0])
    found = figures(measured * [1.04, 0.92, 1.0, 1.5], measured)
    assert (found["acc5"], found["acc10"]) == (0.5, 0.75)
    assert found["r2"] == pytest.approx(1 - (0.04**2 + 0.16**2 + 0 + 2**2) / 5)
    assert np.isnan(figures(np.ones(2), np.ones(2))["r2"])  # nothing varies, so nothing can be explained


def test_a_predictor_is_held_out_by_its_own_splits_and_folds(fitted: Fitted) -> None:
    assert set(fitted.frames) == {"random", "gpu"}  # neither kinds nor CPUs
    assert DummyPredictor.hold_out.splits == ("family", "kind", "device") and DummyPredictor.hold_out.folds == 16
    counted: list[tuple[int, int]] = []
    held_out(PowerLaw(), from_rows(fitted.rows), "random", progress=lambda done, of: counted.append((done, of)))
    assert counted[-1] == (3, 3)


def test_what_is_kept_is_small_and_enough_to_score_and_fit_again(
    fitted: Fitted, rows: pd.DataFrame, tmp_path: Path
) -> None:
    fitted.predictor.save(tmp_path)
    answers = [f"predicted_{target}" for target in TARGETS]
    whole = rows[[c for c in rows if not is_prediction(c) or c in answers]]
    store_predictions(tmp_path, whole, "random", PowerLaw.columns)
    assert len(rows) > 7000 and (tmp_path / "left_out_random.parquet").stat().st_size < 500_000
    again = stored_predictions(fitted.folder, "random")
    frame = fitted.frames["random"]
    assert len(again) == len(frame) and set(PowerLaw.columns) <= set(again)
    for column in ("predicted_latency_ms", "latency_ms", "macs"):
        assert again[column].to_numpy() == pytest.approx(frame[column].to_numpy(dtype=float), rel=2e-5, nan_ok=True)
    frames = collect([str(fitted.folder)], "family", nothing_to_gather, refit=True, folds=2)
    refitted = frames[str(fitted.folder)]
    assert refitted["predicted_latency_ms"].notna().sum() == again["predicted_latency_ms"].notna().sum()


@pytest.mark.parametrize("split", ["random", "family", "kind"])
def test_every_split_scores_all_predictors_with_their_coverage(fitted: Fitted, split: str) -> None:
    mine = str(fitted.folder)
    names = ["dummy", "roofline", mine] + (["default"] if split != "random" else [])
    frames = collect(names, split, nothing_to_gather, wanted=fitted.rows)
    board = study_board(frames, split, ["latency_ms", "memory_mb"])
    line = {name: board.value("latency_ms", "all", name, "coverage") for name in names}
    assert 0.5 < line.pop(mine) < 1 and set(line.values()) == {1.0}  # it has no prefill and no decode
    assert board.value("memory_mb", "all", mine, "coverage") > 0.5
    assert board.value("latency_ms", "decode", mine, "coverage") == 0
    assert {"r2", "acc5", "acc10"} <= set(summary(board))


def test_without_a_family_that_is_all_it_learns_from_it_has_no_answers(rows: pd.DataFrame) -> None:
    class SmallCnns(PowerLaw):
        def answers_row(self, rows: pd.DataFrame) -> np.ndarray:
            return super().answers_row(rows) & (rows["source"] == "cnn").to_numpy()

    rows = rows[rows["source"].isin(["cnn", "unet"])]
    assert held_out(SmallCnns(), from_rows(rows), "family")["predicted_latency_ms"].isna().all()
    found = held_out(SmallCnns(), from_rows(rows), "random")
    assert (found["predicted_latency_ms"].notna() == (rows["source"] == "cnn").to_numpy()).all()


def test_one_family_alone_leaves_nothing_to_learn_from(rows: pd.DataFrame) -> None:
    with pytest.raises(ForerunError, match="there is only one family among the rows: nothing would be left to learn"):
        held_out(DummyPredictor(), from_rows(rows[rows["family"] == "resnet"]))
    with pytest.raises(ForerunError, match="only one kind of network among the rows"):
        held_out(DummyPredictor(), from_rows(rows[rows["source"] == "cnn"]), "kind")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--where", "family = 'resnet'"], "there is only one family among the rows"),
        (["--where", "family = 'none'"], "no row of a model meets \"family = 'none'\""),
        (["--where", "source = 'tabular'"], "is of a model that ran well on a GPU"),
    ],
)
def test_selections_that_cannot_be_judged_are_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", "dummy", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("forerun: ") and sentence in err


def test_a_quantity_that_no_row_has_is_one_sentence(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "power-law"
    shutil.copytree(fitted.folder, folder)
    store_predictions(folder, fitted.frames["gpu"].assign(energy_j=np.nan), "gpu", fitted.predictor.columns)
    assert run(["evaluate", str(folder), "--targets", "latency,energy"]) == 2
    assert "energy_j was measured in none of the rows" in capsys.readouterr().err


@pytest.fixture(scope="module")
def measured() -> TrainingCases:
    """Three small networks, captured."""
    rows = Store().read("models", filters=[("device", "==", "h200"), ("model", "in", MODELS), ("status", "==", "ok")])
    rows = rows[(rows["runtime"].fillna("eager") == "eager") & rows["mode"].isin(["inference", "training"])]
    models = model_cases(rows[rows["device_ms"].notna()].reset_index(drop=True))
    return TrainingCases(models, models.take(np.zeros(len(models), dtype=bool)))


def test_costs_are_measured(measured: TrainingCases, tmp_path: Path) -> None:
    predictor = PowerLaw().fit(measured)
    found = costs(predictor, measured.models, training_s=0.5)
    assert 0 < found["single_s"] < 1 and 0 < found["batch_us"] < 1e6 and found["training_s"] == 0.5
    assert found["bytes"] > 100 and found["parameters"] == 3 * 6  # targets, and numbers with a constant
    assert any(model in found["single_of"] for model in MODELS) and "cores" in found["machine"]
    store_costs(tmp_path, found)
    assert stored_costs(tmp_path) == found and stored_costs(tmp_path / "none") is None


def test_of_held_out_gpus_only_figures_are_stored(measured: TrainingCases, registered: None, tmp_path: Path) -> None:
    class ByDatasheet(PowerLaw):
        sees_devices = True

    models = measured.models
    half = np.arange(len(models)) % 2 == 0
    published = models.take(half)
    gpus = ("a100-sxm4-80gb", "rtx4060ti-16gb", "rtx3090", "rtx4090")
    published.rows["device"] = [gpus[n % 4] for n in range(len(published))]
    published = TrainingCases(models, measured.operators, published_models=published)
    unseen = held_out(ByDatasheet(), published, "device")
    lines = device_lines(ByDatasheet(), unseen, published)
    assert {line["device"] for line in lines} == {"all", *gpus} - {"rtx4060ti-16gb"}  # without the test set's GPU
    assert {line["predictor"] for line in lines} == {"power-law", "roofline", "dummy"}
    whole = [line for line in lines if line["device"] == line["mode"] == "all" and line["target"] == "latency_ms"]
    assert len({line["n"] for line in whole}) == 1 and all(line["mape"] > 0 for line in whole)
    assert "interval_coverage" in whole[0] and {"r2", "tau", "acc5", "acc10", "rmse"} <= set(whole[0])
    ByDatasheet().fit(published).save(tmp_path)
    store_device_lines(tmp_path, lines)
    assert [list(line) for line in stored_device_lines(tmp_path)] == [list(line) for line in lines]
    text = (tmp_path / "left_out_device.json").read_text()
    assert "NaN" not in text and not any(model in text for model in MODELS)


def test_every_predictor_stands_on_the_same_rows(fitted: Fitted) -> None:
    name = str(fitted.folder)
    lines = pd.DataFrame(split_lines(StoredPredictions(), name, "family", TARGETS))
    for target, count in (("latency_ms", 5), ("memory_mb", 2), ("energy_j", 4)):
        mine = lines[lines["target"] == target]
        assert mine["predictor"].iloc[0] == name and len(mine) == count and mine["n"].nunique() == 1
    latency = lines[lines["target"] == "latency_ms"].set_index("predictor")
    assert set(latency.index) == {name, *BASELINES}
    assert latency.loc[name, "coverage"] < 1 and (latency.drop(name)["coverage"] == 1).all()
    assert latency.loc["default", "mape"] < latency.loc["roofline", "mape"] < latency.loc["dummy", "mape"]
    # Single rows held out: the default has no such predictions, so the harder split is used, and the table says so.
    random = split_lines(StoredPredictions(), name, "random", ["latency_ms"])
    assert "default (families held out)" in {line["predictor"] for line in random}


def test_the_document_is_written_from_what_was_kept(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"power-law": PUBLISHED["trappm"]}
    monkeypatch.setattr(predictors_document, "PUBLISHED", known)
    monkeypatch.setattr("forerun.evaluate.published_figures.PUBLISHED", known)
    folder, docs = tmp_path / "power-law", tmp_path / "docs"
    shutil.copytree(fitted.folder, folder)
    about = {"single_s": 0.002, "single_of": "resnet50", "batch_us": 3.5, "training_s": 61.0, "bytes": 42_000}
    store_costs(folder, {**about, "parameters": 18, "machine": "a machine, 2 cores"})
    line = {"predictor": "power-law", "target": "latency_ms", "mode": "all", "device": "all", "n": 7, "coverage": 0.5,
            "mape": 0.25}  # fmt: skip
    store_device_lines(folder, [line, {**line, "device": "v100-32gb"}])
    # Numbers of a study are shown as they are, under whatever name: this error is in percent already.
    table = pd.DataFrame([{"variant": "SAGE", "error": 16.0, "mape": 45.9}, {"variant": "GAT", "error": 36.7}])
    studies.keep(
        docs / "figures", "variants", title="Variants", words="At equal epochs.", command="python x.py", table=table,
        chart=studies.bars(table, "variant", ["error"], "mean error, %"),
    )  # fmt: skip
    words = ["evaluate", f"{folder},default,roofline,dummy", "--document", str(docs / "PREDICTORS.md")]
    assert run([*words, "--figures", str(tmp_path / "pages")]) == 0, capsys.readouterr().err
    text = (docs / "PREDICTORS.md").read_text()
    order = ["## In short", "## Noise floor", "## What was published", "## Latency", "### Rows of power-law",
             "### Rows of default", "## Memory", "## Energy", "## Speed and size", "## Variants"]  # fmt: skip
    places = [text.index(heading) for heading in order]
    assert places == sorted(places)
    assert "| power-law | one GPU held out | 7 | 50.0 % | 25.0 % |" in text and "v100-32gb" not in text
    assert text.count("9.51 % (training step)") == 2  # in the summary, and at single rows held out
    assert "| power-law | 2 | 3.5 | 61 | 42 kB | 18 | resnet50 | a machine, 2 cores |" in text
    assert (
        "| SAGE | 16 | 45.9 |" in text
        and "| GAT | 36.7 |" in text
        and "(figures/predictors_variants.html)" in text
        and "`python x.py`" in text
    )
    page = (docs / "figures" / "predictors_variants.html").read_text()
    assert "SAGE" in page and "plotly.min.js" in page and (docs / "figures" / "plotly.min.js").stat().st_size > 1e6
    assert "forerun evaluate power-law,default,roofline,dummy --document docs/PREDICTORS.md" in text
    assert str(tmp_path) not in text
    for target in TARGETS:
        assert (docs / "figures" / f"predictors_scatter_{target}.png").stat().st_size > 10_000
        assert "plotly" in (tmp_path / "pages" / f"predictors_scatter_{target}.html").read_text()


def test_without_anything_kept_there_is_no_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "dummy", "--document", str(tmp_path / "PREDICTORS.md")]) == 2
    assert "no predictions are stored of dummy" in capsys.readouterr().err


def test_published_figures_are_shown_at_single_rows_held_out() -> None:
    assert published_cell("trees", "memory_mb", "random") == "1.81 %"
    assert published_cell("trees", "memory_mb", "family") == published_cell("default", "memory_mb", "random") == ""
    assert all(found.differs.endswith(".") and set(found.figures) <= set(REPEATED) for found in PUBLISHED.values())


def test_kinds_of_rows_in_sql_and_in_python() -> None:
    found = Store().query("select source, family, mode, kind from models")
    assert set(found["kind"]) == set(domains.KINDS)
    assert (domains.kinds(found) == found["kind"]).all()
    by_source = found.groupby("source")["kind"].agg(lambda kinds: "/".join(sorted(set(kinds))))
    assert by_source["timm"] == by_source["cnn"] == "vision"
    assert by_source["hf"] == "language/other/speech/vision"  # other: images and text at once (CLIP)
    assert by_source["conformer"] == "speech" and by_source["recommender"] == "other"
    assert domains.kind_of("hf", "whisper", "inference") == "speech" and domains.kind_of("hf", "vit", None) == "vision"
    assert domains.kind_of(None, None, "serving") == "language" and domains.kind_of(None, None, "training") == "other"
    # Every family of named networks is placed by name, not by default.
    assert not [name for name in FILES if name not in domains._by_source()]


def test_a_kind_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select count(*) as n from models where mode = 'inference' and kind = 'vision'"
    assert run(["data", "query", sql, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["n"] > 3000
    # Rows go out as they are in the store, without what is computed.
    assert run(["data", "export", str(tmp_path / "rows.csv"), "--where", "kind = 'speech'"]) == 0
    rows = pd.read_csv(tmp_path / "rows.csv", low_memory=False)
    assert len(rows) > 100 and list(rows) == schema.TABLES["models"].names
