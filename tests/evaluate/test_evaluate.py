"""`forerun evaluate`: one table for several predictors, the test set beside it, and what is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forerun.data.splits import kinds_of_network
from forerun.evaluate.collect import collect, from_rows
from forerun.evaluate.full import board_of_test_set, study_board
from forerun.evaluate.kinds import WELL_KNOWN
from forerun.evaluate.stored import stored_predictions
from forerun.evaluate.test_set import GPU, in_test_set, is_test_family
from forerun.predictors.saved import SHIPPED

Run = Callable[..., subprocess.CompletedProcess[str]]
NAMES = ["dummy", "one-ratio", "default"]
TEST_FAMILIES = [
    "bloom", "coat", "dbrx", "deberta", "densenet", "diffusion_unet", "efficientnet", "efficientnetv2", "gptj",
    "iformer", "mobilenetv4", "modernbert", "persimmon", "pvt", "qwen3_moe", "seed_oss", "sentence-transformers",
    "speech_cnn", "stablelm", "starcoder2", "starnet", "time_series", "tnt", "vgg",
    "video_resnet", "wavlm",
]  # fmt: skip


def nothing_to_gather() -> Any:
    raise AssertionError("kept predictions and columns of the table are enough")


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return collect(NAMES, "family", nothing_to_gather)


def test_one_table_for_all_predictors_and_a_report(run_forerun: Run, tmp_path: Path) -> None:
    words = ("evaluate", ",".join(NAMES), "--split", "family", "--targets", "latency,energy", "--out", "docs")
    done = run_forerun(*words, COLUMNS="200")
    assert done.returncode == 0, done.stderr
    heading = next(line for line in done.stdout.splitlines() if "MAPE" in line)
    for column in (" n ", "coverage", "median APE", "within 10 %", "in 90 % interval", "mean width", "noise floor"):
        assert column in heading
    table, easier, _ = done.stdout.partition("Families held out by name")
    assert easier  # a table of its own, of the default alone
    for target in ("latency_ms", "energy_j"):
        lines = [line.split() for line in table.splitlines() if line.startswith(f"{target} ")]
        everything = [words for words in lines if words[1] == "all"]
        assert [words[2].rstrip(",") for words in everything] == [*NAMES, "default"]
        # The noise floor is that of the rows, whoever predicts them; where the host's speed is known, it is lower.
        floors = [float(words[-2]) for words in everything]
        assert len(set(floors[:3])) == 1 and floors[3] < floors[0] and {words[-1] for words in everything} == {"%"}
    # Where the output is no terminal, progress is lines.
    assert done.stderr.count("holding out: 16 of 16 after") == 2
    text = (tmp_path / "docs" / "SCOREBOARD.md").read_text()
    assert "# Scoreboard" in text and "Noise floor" in text and "| latency_ms | all | default |" in text


def test_no_predictor_answers_with_the_predictions_of_another(frames: dict[str, pd.DataFrame]) -> None:
    made = study_board(frames, "family", ["latency_ms", "energy_j", "memory_mb"])
    assert made.value("energy_j", "all", "one-ratio", "coverage") == 0
    assert made.value("memory_mb", "all", "dummy", "coverage") == 0
    assert made.value("energy_j", "all", "default", "coverage") == 1
    once = made.lines[(made.lines["target"] == "latency_ms") & (made.lines["regime"] == "all")]
    assert list(once["predictor"]) == ["dummy", "one-ratio", "default", "default, host probed"]
    assert once["n"].nunique() == 1 and once["mape"].nunique() == 4
    base = from_rows(frames["default"]).models.rows
    assert not [c for c in base if c.startswith("predicted_") or c == "host_slowness"]


def test_one_ratio_is_fitted_without_the_family_that_it_is_asked_about(frames: dict[str, pd.DataFrame]) -> None:
    rows = frames["one-ratio"]
    ratio = (rows["predicted_latency_ms"] / rows["roofline_ms"]).round(9)
    assert (ratio.groupby(rows["family"]).nunique() == 1).all()
    assert 12 <= ratio.nunique() <= 16  # one number for each part; two may be equal


def test_the_families_of_the_test_set_follow_from_the_seed() -> None:
    rows = stored_predictions(SHIPPED / "default")
    assert sorted(set(rows["family"][in_test_set(rows)])) == TEST_FAMILIES
    assert all(is_test_family(name) for name in TEST_FAMILIES)
    assert not any(is_test_family(name) for name in ("resnet", "cnn", "unet", "gpt2", "llama"))
    assert GPU == "rtx4060ti-16gb"


def test_the_study_table_and_the_test_set_share_no_row(frames: dict[str, pd.DataFrame]) -> None:
    study, scored_test = study_board(frames, "family", ["latency_ms"]), board_of_test_set(frames, ["latency_ms"])
    rows = frames["default"]
    # The first row of each case; compiled calls have lines of their own.
    first = ~rows.sort_values("repeat", kind="stable").duplicated(["case_key", "device"]).sort_index()
    asked = first & (rows["runtime"] == "eager")
    for made, mine in ((study, asked & ~in_test_set(rows)), (scored_test, asked & in_test_set(rows))):
        assert made.value("latency_ms", "all", "default", "n") == mine.sum()
    errors = [made.value("latency_ms", "all", "default", "mape") for made in (study, scored_test)]
    assert errors[0] != errors[1] and max(errors) < 0.3
    # The rows of the test set change nothing in the study table.
    moved = {name: frame.copy() for name, frame in frames.items()}
    for frame in moved.values():
        frame.loc[in_test_set(frame).to_numpy(), "predicted_latency_ms"] *= 100
    shown = ["mape", "median_ape", "acc10", "n"]
    pd.testing.assert_frame_equal(study_board(moved, "family", ["latency_ms"]).lines[shown], study.lines[shown])


def test_the_test_set_has_a_table_of_its_own(run_forerun: Run, frames: dict[str, pd.DataFrame]) -> None:
    done = run_forerun("evaluate", "one-ratio,default", "--exam", "--targets", "latency", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {line["split"] for line in found} == {"family"}
    assert {line["target"] for line in found} == {"latency_ms", "graph_ms"}  # of eager calls, and as CUDA graphs
    expected = board_of_test_set(frames, ["latency_ms"])
    for line in found:
        for column in ("n", "mape", "interval_coverage"):
            value = expected.value(line["target"], line["regime"], line["predictor"], column)
            assert line[column] == pytest.approx(value, nan_ok=True) or (line[column] is None and value != value)


def test_kinds_are_shown_one_by_one(run_forerun: Run) -> None:
    done = run_forerun("evaluate", "default", "--split", "kind", "--targets", "device", COLUMNS="200")
    assert done.returncode == 0, done.stderr
    rows = stored_predictions(SHIPPED / "default", "kind")
    rows = rows[~in_test_set(rows)]
    others = {kind for kind in kinds_of_network(rows) if kind not in WELL_KNOWN}
    assert f"small CNNs: {len(others)} kinds" in done.stdout
    by_kind = done.stdout.split("Device time by kind")[1]
    assert all(kind in by_kind for kind in others)
    lines = [line.split("%")[0].split() for line in by_kind.splitlines() if "%" in line and "MAPE" not in line]
    errors = [float(words[-1]) for words in lines]
    assert errors == sorted(errors, reverse=True) and len(errors) >= len(others)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["defautl"], "no predictor is called 'defautl'"),
        (["default", "--split", "colour"], "there is no split 'colour'"),
        (["default", "--targets", "lateness"], "'lateness' is not a quantity that is scored"),
        (["dummy", "--where", "no_such_column = 1"], "no_such_column"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], sentence: str, run_forerun: Run) -> None:
    done = run_forerun("evaluate", *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("forerun: ") and sentence in line
