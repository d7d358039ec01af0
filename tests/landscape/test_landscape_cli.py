"""`forerun landscape`: import, estimate, trends, fill; what is wrong is one sentence and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from landscape_rows import model_rows, write, write_tables

from forerun import cli
from forerun.landscape import kept
from forerun.landscape.clean import read_tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("epoch"))


@pytest.fixture
def imported(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    kept.keep_tables(read_tables(folder))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.run(["landscape", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def wrong(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a mistake is answered with."""
    assert cli.run(["landscape", *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == "" and len(found.err.strip().splitlines()) == 1
    return found.err


def test_import_prints_rows_before_and_after(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    shown = run(capsys, "import", str(folder))
    assert "rows before" in shown and "40 models" in shown and "hardware names resolved" in shown
    found = json.loads(run(capsys, "import", str(folder), "--json"))
    assert found["models"] == 40 and found["steps"][0]["rows_before"] > 0


def test_estimate_needs_no_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "none"))
    asked = ("estimate", "--parameters", "70B", "--tokens", "15T", "--hardware", "h100-sxm", "--count", "4096")
    shown = run(capsys, *asked, "--date", "2026-01-31")
    for words in ("by physics", "by learned model", "90 % interval", "Energy", "Carbon", "Rent", "6.3e+24 FLOP"):
        assert words in shown
    found = json.loads(run(capsys, *asked, "--json", "--region", "FRA"))
    assert found["time"]["joined"]["low"] < found["time"]["physics"]["value"] < found["time"]["joined"]["high"]
    assert any("France" in note for note in found["notes"])
    shown = run(capsys, "estimate", "--parameters", "7B", "--tokens", "1T", "--hardware", "h100-sxm")
    assert "unknown" in shown and "--count" in shown


@pytest.mark.usefixtures("imported")
def test_estimate_like_a_published_model(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "estimate", "--like", "Nutmeg-8B", "--hardware", "b200", "--json"))
    assert found["question"]["like"] == "Nutmeg-8B" and found["question"]["basis"] == "stated"
    assert "Did you mean" in wrong(capsys, "estimate", "--like", "Nutmeg-9B", "--hardware", "b200")


@pytest.mark.usefixtures("imported")
def test_trends_as_a_table_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "trends.html"
    shown = run(capsys, "trends", "--by", "year,domain", "-o", str(page))
    assert "Growth since 2012" in shown and "doubles in, months" in shown and f"written to {page}" in shown
    content = page.read_text()
    assert (
        "forerun landscape trends --by year,domain" in content
        and 'id="plotly"' in content
        and "https://cdn" not in content
    )
    assert [path.name for path in tmp_path.glob("*.part")] == []
    assert json.loads(run(capsys, "trends", "--json"))["growth"]
    assert "ends in .html" in wrong(capsys, "trends", "-o", str(tmp_path / "trends.pdf"))
    assert "cannot be grouped by 'colour'" in wrong(capsys, "trends", "--by", "colour")


@pytest.mark.usefixtures("imported")
def test_explain_a_published_model_and_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "explain", "nutmeg-8b")
    assert "Nutmeg-8B: training cost, 2023 USD" in shown and "(stated: " in shown and "compute_flop" in shown
    plan = ("--parameters", "70B", "--tokens", "15T", "-d", "h100-sxm", "--count", "4096", "--date", "2026-01-31")
    small = ("--parameters", "1B", "--tokens", "20B", "-d", "h100-sxm", "--count", "8", "--date", "2026-01-31")
    found, less = (json.loads(run(capsys, "explain", *words, "--json")) for words in (plan, small))
    assert found["model"] == "your model" and found["stated"] is None and found["predicted"] > less["predicted"]
    (compute,) = [one for one in found["conditions"] if one["condition"].startswith("compute_flop above")]
    assert compute["factor"] > 1 and "e+" in compute["condition"]
    assert "Did you mean" in wrong(capsys, "explain", "Nutmeg-9B")
    assert "there is no target 'cost'" in wrong(capsys, "explain", "Nutmeg-8B", "--target", "cost")
    assert "not both" in wrong(capsys, "explain", "Nutmeg-8B", *plan)
    assert "name the chip with --hardware" in wrong(capsys, "explain", "--parameters", "7B")


@pytest.mark.usefixtures("imported")
def test_fill_shows_what_was_filled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "filled.csv"
    shown = run(capsys, "fill", "--method", "rms", "--show", "5", "-o", str(out))
    assert "values filled; 5 of them" in shown and "confidence" in shown
    assert len(out.read_text().splitlines()) > 6
    assert "unknown method 'magic'" in wrong(capsys, "fill", "--method", "magic")
    assert ".csv" in wrong(capsys, "fill", "--method", "rms", "-o", str(tmp_path / "filled.xlsx"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--parameters", "-1", "--tokens", "1T", "--hardware", "h100-sxm"), "--parameters must be larger than 0"),
        (("--parameters", "many", "--tokens", "1T", "--hardware", "h100-sxm"), "--parameters is a number such as 70B"),
        (("--parameters", "1B", "--tokens", "0", "--hardware", "h100-sxm"), "--tokens must be larger than 0"),
        (("--parameters", "1B", "--tokens", "1T", "--hardware", "h1000"), "unknown device 'h1000'. Did you mean h100"),
        (("--parameters", "1B", "--tokens", "1T"), "name the chip with --hardware"),
        (("--parameters", "1B", "--hardware", "t4"), "give both --parameters and --tokens"),
        (
            ("--parameters", "1B", "--tokens", "1T", "--hardware", "t4", "--count", "0"),
            "--count must be a number above 0",
        ),
        (("--parameters", "1B", "--tokens", "1T", "--hardware", "t4", "--date", "soon"), "--date is a date such as"),
        (("--parameters", "1B", "--tokens", "1T", "--hardware", "t4", "--region", "Atlantis"), "Atlantis"),
        (("--parameters", "1B", "--tokens", "1T", "--hardware", "t4", "--numbers", "no.json"), "does not hold numbers"),
    ],
)
def test_bad_questions(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in wrong(capsys, "estimate", *arguments)


def test_bad_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    for command in (("estimate", "--like", "X", "--hardware", "t4"), ("trends",), ("fill",),
                    ("experiments", "-o", str(tmp_path / "x.md"))):  # fmt: skip
        assert "no tables were imported" in wrong(capsys, *command)
    whole = write(tmp_path / "whole.csv", model_rows()).read_text()
    bad = tmp_path / "notable_ai_models.csv"
    for content, words in (
        (whole[: len(whole) // 2], "is cut off or damaged"),
        (whole.replace("Parameters,", "Size,", 1), "has no column 'Parameters'"),
        (whole.replace("2e9", "-1", 1), "must be larger than 0, got '-1'"),
    ):
        bad.write_text(content)
        assert words in wrong(capsys, "import", str(bad))
    assert not (tmp_path / "store" / "landscape").exists()
    assert "there is no folder" in wrong(capsys, "experiments", "-o", str(tmp_path / "no" / "x.md"))
