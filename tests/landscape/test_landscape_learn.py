"""Rows, encodings, estimators, splits, explanations and trends, on forty rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from landscape_rows import write_tables

from forerun.errors import ForerunError
from forerun.landscape import encode, experiments, judge
from forerun.landscape.clean import read_tables
from forerun.landscape.encode import ENCODINGS, Encoding, encoded
from forerun.landscape.experiments import parts_of
from forerun.landscape.explain import Explained, explain
from forerun.landscape.fill.judge import judge_fills
from forerun.landscape.intervals import conformal
from forerun.landscape.learn import ESTIMATORS, estimator, ordered_folds, tune
from forerun.landscape.rows import TARGETS, Rows, rows_of
from forerun.landscape.schema import Tables
from forerun.landscape.trends import trends
from forerun.report.landscape import document


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return read_tables(write_tables(tmp_path_factory.mktemp("epoch")))


@pytest.fixture(scope="module")
def rows(tables: Tables) -> Rows:
    return rows_of(tables, "cost_2023_usd", multiplied=False)


def halves(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    return np.flatnonzero(rows.year < 2023), np.flatnonzero(rows.year >= 2023)


def test_rows_state_their_target_and_do_not_learn_from_it(tables: Tables) -> None:
    for target in TARGETS:
        rows = rows_of(tables, target, multiplied=False)
        assert target not in rows.numbers and np.isfinite(rows.known).all()
        assert len(set(rows.model)) == len(rows)
    assert "flop_6nd" not in rows_of(tables, "compute_flop", multiplied=False).numbers


def test_multiplied_rows_repeat_their_model(tables: Tables, rows: Rows) -> None:
    many = rows_of(tables, "cost_2023_usd", multiplied=True)
    assert len(many) > len(rows) and set(many.model) == set(rows.model)
    copies = pd.Series(many.known).groupby(many.model).nunique()
    assert (copies == 1).all()
    teak = tables.models.set_index("model").loc["Teak-99B"]
    combinations = [max(1, len(teak[name])) for name in ("organisations", "countries", "hardware", "domains")]
    assert (many.model == "Teak-99B").sum() == np.prod(combinations) >= 4


def few(texts: Sequence[str]) -> np.ndarray:
    """An embedding that costs nothing: letters counted."""
    return np.array([[text.lower().count(letter) for letter in "abcdefghij"] for text in texts], dtype=float)


@pytest.mark.parametrize("name", ENCODINGS)
def test_encodings_are_finite_and_know_their_training_part_alone(
    rows: Rows, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # UMAP compiles for a quarter of a minute; where texts lie is enough here.
    monkeypatch.setattr(encode, "_layout", lambda texts, embed, most=5: embed(texts)[:, :most])
    train, test = halves(rows)
    found = encoded(rows, train, test, ENCODINGS[name], embed=few)
    assert found.train.shape == (len(train), len(found.names)) and found.test.shape == (len(test), len(found.names))
    assert np.isfinite(found.train).all() and np.isfinite(found.test).all()
    if name == "embeddings with clusters":  # as published: clusters of every category beside coordinates of the text
        for category in rows.categories:
            named = list(enumerate(found.names))[len(found.centre) :]
            own = [at for at, column in named if column.startswith(f"{category}_")]
            assert own and (found.train[:, own].sum(axis=1) == 1).all()
        assert {"map 1", "map 10"} <= set(found.names)
    if name == "standard scaler":
        numbers = len([n for n in found.names if n in rows.numbers])
        assert np.abs(found.train[:, :numbers].mean(axis=0)).max() < 1e-9
    if name == "min-max":
        assert found.train.min() >= -1e-9 and found.train.max() <= 1 + 1e-9


def test_published_estimators_are_named_as_published() -> None:
    assert [experiments.PUBLISHED[name][1] for name in ("standard scaler", "min-max", "PCA 15")] == [
        "random forest", "gradient boosting", "gradient boosting"
    ]  # fmt: skip
    assert experiments.PUBLISHED["embeddings with clusters"] == (0.9226, "gradient boosting")


def test_noise_changes_training_rows_only(rows: Rows) -> None:
    train, test = halves(rows)
    plain, noisy = encoded(rows, train, test, Encoding()), encoded(rows, train, test, Encoding(noise=0.2))
    assert (plain.test == noisy.test).all() and (plain.train != noisy.train).any()
    assert (plain.known_train == noisy.known_train).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_learns(rows: Rows, name: str) -> None:
    every = np.arange(len(rows))
    part = encoded(rows, every, every, Encoding())
    found = estimator(name).fit(part.train, part.known_train).predict(part.test)
    least = 0.3 if name == "histogram boosting" else 0.7  # ten rows a leaf
    assert judge.figures(part.known_test, found, 0.0)["r2"] > least


def test_an_unknown_estimator() -> None:
    with pytest.raises(ForerunError, match="unknown estimator 'forest'"):
        estimator("forest")


def test_splits_keep_models_organisations_and_years_on_one_side(tables: Tables) -> None:
    rows = rows_of(tables, "cost_2023_usd", multiplied=True)
    for protocol, groups in (("models", rows.model), ("organisations", rows.organisation)):
        seen = []
        for train, test in judge.splits(protocol, rows.model, rows.organisation, rows.year):
            assert not set(groups[train]) & set(groups[test])
            seen += test.tolist()
        assert sorted(seen) == list(range(len(rows)))
    train, test = next(judge.splits("time", rows.model, rows.organisation, rows.year))
    assert rows.year[train].max() < judge.CUT <= rows.year[test].min()
    train, test = next(judge.splits("published", rows.model, rows.organisation, rows.year))
    assert set(rows.model[train]) & set(rows.model[test])  # copies of a model on both sides


def test_folds_by_time_never_look_ahead() -> None:
    year = np.random.default_rng(0).uniform(2015, 2024, 50)
    folds = list(ordered_folds(year))
    assert len(folds) == 3
    for earlier, later in folds:
        assert year[earlier].max() < year[later].min()


def test_figures() -> None:
    known = np.array([1.0, 2.0, 3.0, 4.0])
    found = judge.figures(known, known + np.array([0.0, 0.2, -0.2, 1.0]), 0.25)
    assert found["within 2"] == 0.75 and found["coverage"] == 0.75 and found["decades"] == pytest.approx(0.35)
    assert judge.figures(known, known, 0.0)["r2"] == 1.0
    assert conformal(np.arange(1, 100, dtype=float)) == 90.0


def test_judging_by_every_protocol(tables: Tables) -> None:
    for protocol in judge.PROTOCOLS:
        parts, years = parts_of(
            rows_of(tables, "cost_2023_usd", multiplied=protocol == "published"), "standard scaler", protocol
        )
        found = judge.judge(parts, "ridge", {}, years)
        assert found["n"] > 5 and 0 <= found["coverage"] <= 1 and found["width"] > 0


def test_tuning_stays_inside_the_training_rows(rows: Rows) -> None:
    train, test = halves(rows)
    changed = Rows(**{**vars(rows), "known": np.where(np.isin(np.arange(len(rows)), test), 99.0, rows.known)})
    assert tune(rows, train, "ridge", Encoding(), 4) == tune(changed, train, "ridge", Encoding(), 4)
    assert tune(rows, train, "linear", Encoding(), 4) == {}


def test_costs_are_measured(rows: Rows) -> None:
    train, test = halves(rows)
    found = judge.costs(encoded(rows, train, test, Encoding()), "ridge", {})
    assert all(value > 0 for value in found.values()) and found["process, MB resident"] > 50


@pytest.fixture(scope="module")
def explained(rows: Rows) -> Explained:
    return explain(rows, ["Nutmeg-8B"])


def test_explanations(rows: Rows, explained: Explained) -> None:
    found = explained
    assert found.shares.shape[0] == len(rows) and "compute_flop" in found.shares.columns[:3]
    assert {"chip", "chip_year"} <= set(found.shares.columns)  # a name, and a number whose name begins like it
    assert found.permuted["loss of R²"].is_monotonic_decreasing
    assert len(found.single["Nutmeg-8B"]) >= 3 and found.selected["features"].is_monotonic_increasing
    with pytest.raises(ForerunError, match="'Nutmeg-9B' does not state cost_2023_usd"):
        explain(rows, ["Nutmeg-9B"])


def test_trends(tables: Tables) -> None:
    found = trends(tables, ("year",))
    assert found.groups["models"].ge(3).all() and found.groups["year"].is_monotonic_increasing
    compute = found.growth.set_index(["quantity", "models"]).loc[("training compute, FLOP", "all")]
    assert compute["factor a year"] > 1 and compute["n"] > 20
    assert (found.prices["stated_usd_per_hour"] > 0).all()
    plain = found.to_dict()
    assert plain["by"] == ["year"] and plain["groups"][0]["models"] >= 3
    with pytest.raises(ForerunError, match=r"cannot be grouped by 'years'. Did you mean year\?"):
        trends(tables, ("years",))


def test_the_study_and_its_document(
    tables: Tables, explained: Explained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way with few comparisons: what each part computes has tests of its own."""
    few_questions = [("cost_2023_usd", "standard scaler", protocol, name) for protocol in judge.PROTOCOLS
                     for name in ("linear", "ridge")]  # fmt: skip
    monkeypatch.setattr(experiments, "questions", lambda: few_questions)
    monkeypatch.setattr(experiments, "SPACES", {"ridge": experiments.SPACES["ridge"]})
    monkeypatch.setattr(experiments, "ESTIMATORS", ("ridge",))
    monkeypatch.setattr(experiments, "explain", lambda rows, single: explained)
    monkeypatch.setattr(experiments, "judge_fills", lambda tables, options: judge_fills(tables, ("rms",), 2, options))
    monkeypatch.setattr(experiments, "side_by_side", map)  # children would load PyTorch, which nothing here needs
    monkeypatch.setattr(judge, "costs", lambda part, name, settings: {"training, s": 0.1})
    seen: list[tuple[int, int]] = []
    study = experiments.run(tables, lambda done, total: seen.append((done, total)), trials=2)
    assert seen[-1] == (100, 100) and [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(study.compared) == len(few_questions) and study.later[0].cut == 2024
    written = document.write(study, tmp_path / "LANDSCAPE.md")
    assert all(path.stat().st_size > 1000 for path in written) and len(written) == 2 + len(document.PICTURES)
    words = (tmp_path / "LANDSCAPE.md").read_text()
    for part in ("0.9482", "What the difference teaches", "joined estimate", "Epoch AI", "within a factor of 2"):
        assert part in words
    page = (tmp_path / "figures" / document.PAGE).read_text()
    assert "No language model was at hand" in words
    assert "### Single models" in words and "| Nutmeg-8B | " in words
    assert "LIME: Nutmeg-8B" in page and "forerun landscape experiments" in page
    assert not list(tmp_path.rglob("*.part"))
    with pytest.raises(ForerunError, match="there is no folder"):
        document.write(study, tmp_path / "none" / "LANDSCAPE.md")
