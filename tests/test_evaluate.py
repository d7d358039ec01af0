"""`forerun evaluate`: one table for several predictors, the exam beside it, and what is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forerun.evaluate.collect import collect, from_rows
from forerun.evaluate.exam import GPU, exam_rows, is_exam_family
from forerun.evaluate.full import exam_board, study_board
from forerun.evaluate.kept import kept_left_out
from forerun.predictors.saved import SHIPPED

Run = Callable[..., subprocess.CompletedProcess[str]]
NAMES = ["dummy", "one-ratio", "default"]
EXAM = [
    "bloom", "coat", "densenet", "efficientnet", "efficientnetv2", "mobilenetv4", "modernbert", "pvt", "stablelm",
    "starnet", "tnt", "vgg",
]  # fmt: skip


def nothing_to_gather() -> Any:
    raise AssertionError("kept predictions and columns of the table are enough")


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return collect(NAMES, "family", nothing_to_gather)


def test_one_table_for_all_predictors(run_forerun: Run) -> None:
    done = run_forerun("evaluate", ",".join(NAMES), "--split", "family", COLUMNS="200")
    assert done.returncode == 0, done.stderr
    heading = next(line for line in done.stdout.splitlines() if "mape" in line)
    for column in ("n", "coverage", "mape", "interval_coverage", "interval_width", "noise_floor"):
        assert column in heading.split() or column in heading
    for name in NAMES:
        assert f" {name} " in done.stdout
    # Where the output is no terminal, progress is lines.
    assert "leaving out: 16 of 16" in done.stderr


def test_no_predictor_answers_with_the_predictions_of_another(frames: dict[str, pd.DataFrame]) -> None:
    made = study_board(frames, "family")
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
    assert ratio.nunique() == 16  # one number for each part


def test_the_exams_families_follow_from_the_seed() -> None:
    rows = kept_left_out(SHIPPED / "default")
    assert sorted(set(rows["family"][exam_rows(rows)])) == EXAM
    assert all(is_exam_family(name) for name in EXAM)
    assert not any(is_exam_family(name) for name in ("resnet", "cnn", "unet", "gpt2", "llama"))
    assert GPU == "rtx4060ti-16gb"


def test_the_study_table_and_the_exam_share_no_row(frames: dict[str, pd.DataFrame]) -> None:
    study, exam = study_board(frames, "family"), exam_board(frames)
    rows = frames["default"]
    asked = rows["repeat"] == 0
    for made, mine in ((study, asked & ~exam_rows(rows)), (exam, asked & exam_rows(rows))):
        assert made.value("latency_ms", "all", "default", "n") == mine.sum()
    errors = [made.value("latency_ms", "all", "default", "mape") for made in (study, exam)]
    assert errors[0] != errors[1] and max(errors) < 0.3
    # The exam's rows change nothing in the study table.
    moved = {name: frame.copy() for name, frame in frames.items()}
    for frame in moved.values():
        frame.loc[exam_rows(frame).to_numpy(), "predicted_latency_ms"] *= 100
    shown = ["mape", "median_ape", "acc10", "n"]
    pd.testing.assert_frame_equal(study_board(moved, "family").lines[shown], study.lines[shown])


def test_the_exam_is_a_table_of_its_own(run_forerun: Run) -> None:
    study, exam = (
        json.loads(run_forerun("evaluate", "one-ratio,default", "--targets", "latency", "--json", *more).stdout)
        for more in ((), ("--exam",))
    )
    assert {line["split"] for line in study} == {"family"} and {line["split"] for line in exam} == {"exam families"}
    assert {line["target"] for line in study + exam} == {"latency_ms"}
    counts = [next(line["n"] for line in lines if line["regime"] == "all") for lines in (study, exam)]
    rows = kept_left_out(SHIPPED / "default")
    assert sum(counts) == (rows["repeat"] == 0).sum() and counts[1] == (exam_rows(rows) & (rows["repeat"] == 0)).sum()


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


def test_a_report_is_written(run_forerun: Run, tmp_path: Path) -> None:
    done = run_forerun("evaluate", "dummy,default", "--targets", "latency,energy", "--out", str(tmp_path / "docs"))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "docs" / "SCOREBOARD.md").read_text()
    assert "# Scoreboard" in text and "Noise floor" in text and "| latency_ms | all | default |" in text
