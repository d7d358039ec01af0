"""Figures of README and docs/ are those of the kept results; a run that makes some tables again keeps the others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import warm

from forerun.evaluate import fits, memory_rule, results, stamp
from forerun.evaluate.collect import stored_frame
from forerun.evaluate.full import study_board
from forerun.evaluate.results import Section
from forerun.evaluate.scoreboard import floor_of

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "readme.py"
#: The pages that have figures of results, each between markers.
PAGES = ("README.md", "docs/PREDICT.md", "docs/SERVE.md", "docs/TRAIN.md")


def check(root: Path) -> subprocess.CompletedProcess[str]:
    return warm.run([str(SCRIPT), "--check", "--root", str(root)])


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*PAGES, "docs/scoreboard.json", "benchmarks/speed.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_pages_have_the_figures_of_the_kept_results(checkout: Path) -> None:
    done = check(checkout)
    assert done.returncode == 0, done.stderr


def test_every_figure_has_one_place(checkout: Path) -> None:
    page = checkout / "docs" / "TRAIN.md"
    text = page.read_text()
    block = re.search(r"<!-- figures: host -->.*?<!-- end -->\n", text, re.S)
    assert block is not None
    for changed in (text.replace(block[0], ""), text + block[0], text.replace("figures: host", "figures: hosts")):
        page.write_text(changed)
        done = check(checkout)
        assert done.returncode == 1 and "host" in done.stderr


#: What is outside markers: the confidence of intervals, the margin of memory, a bound on FLOPs, settings, limits.
BY_HAND = {
    "README.md": set(),
    "docs/PREDICT.md": {"90 %", "8 %", "1 %", "10 s"},
    "docs/SERVE.md": {"120 s", "2 GB", "30 s"},
    "docs/TRAIN.md": {"90 %"},
}


@pytest.mark.parametrize("name", PAGES)
def test_no_figure_of_the_results_stands_outside_the_markers(name: str) -> None:
    page = re.sub(r"<!-- (?:figures: )?\w+ -->.*?<!-- end -->|```.*?```", "", (ROOT / name).read_text(), flags=re.S)
    found = re.findall(r"[\d.]+ %|[\d,]+ requests/s|[\d.]+ (?:s|ms|GB)\b", page)
    assert set(found) == BY_HAND[name]
    assert not re.findall(r"\d+ of [\d,]+ (?:batches|cases)", page)


@pytest.mark.parametrize("part", ["server", "captures"])
def test_a_figure_of_the_server_or_of_captures_that_was_changed_is_found(checkout: Path, part: str) -> None:
    path = checkout / "benchmarks" / "speed.json"
    found = json.loads(path.read_text())
    name = {"server": "requests_per_s", "captures": "over_limit"}[part]
    found[part][name] += 1
    path.write_text(json.dumps(found))
    done = check(checkout)
    assert done.returncode == 1 and "readme.py" in done.stderr


@pytest.mark.parametrize("name", ["docs/TRAIN.md", "docs/scoreboard.json", "benchmarks/speed.json"])
def test_a_figure_that_was_changed_is_found(checkout: Path, name: str) -> None:
    path = checkout / name
    if name == "docs/TRAIN.md":
        text = path.read_text()
        line = next(line for line in text.splitlines() if line.startswith("| device time |"))
        path.write_text(text.replace(line, line.replace(" %", ".9 %", 1)))
    elif name == "docs/scoreboard.json":
        found = json.loads(path.read_text())
        table = found["families"]
        at = table["columns"].index("mape")
        for row in table["rows"]:
            row[at] = None if row[at] is None else 2 * row[at]
        path.write_text(json.dumps(found))
    else:
        found = json.loads(path.read_text())
        found["figures"][0]["measured"] += 1
        path.write_text(json.dumps(found))
    done = check(checkout)
    assert done.returncode == 1 and "readme.py" in done.stderr


def test_the_stored_tables_are_those_of_the_stored_predictions() -> None:
    """Errors of every line, from the predictions that ship; intervals take long and follow from the same rows."""
    frame = stored_frame("default", "family")
    assert frame is not None
    stored = results.read(ROOT / "docs")
    assert {"families", "exam", "noise", "kinds", "cpu", "models"} <= set(stored)
    lines = stored["families"].table
    made = study_board({"default": frame}, "family", ["device_ms", "memory_mb"])
    for target, predictor in (("device_ms", "default"), ("memory_mb", "default"), ("memory_mb", memory_rule.NAME)):
        shown = lines[(lines["target"] == target) & (lines["regime"] == "all") & (lines["predictor"] == predictor)]
        for column in ("n", "mape", "interval_coverage"):
            value = made.value(target, "all", predictor, column)
            assert float(shown[column].iloc[0]) == pytest.approx(value, rel=1e-4, nan_ok=True)
    # The rule of thumb is no straw man, and the simulation beats it.
    rule, ours = (made.value("memory_mb", "all", name, "mape") for name in (memory_rule.NAME, "default"))
    assert ours < rule < 0.3


def test_the_page_says_which_split_its_figures_are_of() -> None:
    stored, frame = results.read(ROOT / "docs"), stored_frame("default", "family")
    assert frame is not None and ("block" in frame) == ("by_name" in stored)
    text = (ROOT / "docs" / "TRAIN.md").read_text()
    headline = " ".join((ROOT / "README.md").read_text().split())
    together = "held out together with their architectural relatives"
    if "by_name" not in stored:  # predictions that are older than the joining of families
        assert "stayed in training" in text and together not in headline
        return
    assert together in headline
    errors = {}
    for name in ("families", "by_name"):
        lines = stored[name].table
        mine = lines[(lines["target"] == "device_ms") & (lines["regime"] == "all") & (lines["predictor"] == "default")]
        errors[name] = float(mine["mape"].iloc[0])
    assert errors["families"] > errors["by_name"]
    row = next(line for line in text.splitlines() if line.startswith("| device time |"))
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[2:4] == [f"{100 * errors[name]:.1f} %" for name in ("families", "by_name")]


def test_the_scoreboard_says_when_its_predictions_are_of_other_code() -> None:
    page = " ".join((ROOT / "docs" / "SCOREBOARD.md").read_text().split())
    assert ("The prediction code of default changed" in page) == (stamp.notice("default") is not None)


def test_probed_lines_stand_beside_the_noise_of_probed_hosts() -> None:
    floors = pd.DataFrame(
        {"quantity": ["latency_ms", "latency_ms, host probed"], "regime": "all", "mean": [0.186, 0.12]}
    )
    assert floor_of(floors, "latency_ms", "all", "default") == 0.186
    assert floor_of(floors, "latency_ms", "all", "default, host probed") == 0.12
    assert floor_of(floors, "energy_j", "all", "default") != floor_of(floors, "energy_j", "all", "default")  # NaN
    noise = results.read(ROOT / "docs")["noise"].table
    both = noise[noise["regime"] == "all"].set_index("quantity")["mape"]
    assert both["latency_ms, host probed"] < both["latency_ms"]


def test_a_table_that_was_not_made_again_stays(tmp_path: Path) -> None:
    first = [Section("a", "A", pd.DataFrame({"mape": [0.5]})), Section("b", "B", pd.DataFrame({"n": [3]}), "Words.")]
    results.write(tmp_path, first, ["a", "b"])
    found = results.write(tmp_path, [Section("a", "A", pd.DataFrame({"mape": [0.25, None]}))], ["b", "a"])
    assert [one.name for one in found] == ["b", "a"] and found[0].words == "Words."
    again = results.read(tmp_path)
    assert again["a"].table["mape"].iloc[0] == 0.25 and pd.isna(again["a"].table["mape"].iloc[1])
    assert again["b"].table["n"].tolist() == [3] and again["b"].made


def test_the_rule_of_thumb_finds_what_rows_are_made_of() -> None:
    rows = pd.DataFrame(
        [(family, float(10 ** (6 + n % 3)), float(n + 1) * 2**27, mode, "adamw" if mode == "training" else None)
         for n in range(24) for family in (f"f{n % 6}",) for mode in ("inference", "training")],
        columns=["family", "parameters", "bytes", "mode", "optimizer"],
    )  # fmt: skip
    rows = rows.assign(dtype="fp32", model=rows.index.astype(str), graph_hash=rows.index.astype(str), runtime="eager")
    copies = rows["mode"].map({"inference": 1, "training": 4})
    rows["memory_mb"] = rows["parameters"] * 4 * copies / 2**20 + 500 + 0.1 * rows["bytes"] / 2**20
    assert memory_rule.answers(rows, "memory_mb") == pytest.approx(rows["memory_mb"].to_numpy(), rel=1e-3)
    assert memory_rule.answers(rows.drop(columns="bytes"), "memory_mb") is None


def test_recall_is_of_the_batches_that_ran_out_of_memory() -> None:
    trials = ((90, True), (100, True), (101, False), (110, False))
    one = fits.Limit("m", "inference", "h200", 100, 101, 104, trials)
    told = fits.table([one], rows=(1, 98)).iloc[0]
    assert (told["ran out of memory"], told["said not to fit"], told["recall"]) == (2, 1, "50.0%")
    assert (told["ran"], told["of these refused"], told["share refused"]) == (100, 1, "1.00%")
