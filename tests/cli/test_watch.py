"""`forerun adapt --watch`: what this machine measures improves its next predictions, and drift is said."""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
import warm

import forerun
from forerun.data.store import Store
from forerun.device import Device
from forerun.measure.core import host_facts
from forerun.measure.machine import this_device
from forerun.predictors.registry import load_predictor

MODELS = [f"cnn:depth={depth},filters={filters},classes=10" for depth, filters in ((2, 4), (3, 8), (4, 4), (5, 8))]
UNSEEN = "cnn:depth=6,filters=8,classes=10"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store and settings of the test's own."""
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path / "store"


@pytest.fixture(scope="module")
def here() -> Device:
    return this_device()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(["-m", "forerun", *words])


def kept(home: Path) -> Path:
    (found,) = (home / "watched").iterdir()
    return found


def add_rows(here: Device, factors: Sequence[float]) -> None:
    """Rows as this machine would have measured them, each so many times as long as is predicted without any."""
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    cases = [(model, batch) for batch in (64, 128, 256) for model in MODELS]
    about = {"dataset": "own", "device": here.id, "host": host_facts.host()["cpu"], "status": "ok",
             "protocol": "forerun/2", "mode": "inference", "dtype": "fp32"}  # fmt: skip
    lines = []
    for number, ((model, batch), factor) in enumerate(zip(cases, factors, strict=False)):
        predicted = forerun.predict(model, here, batch=batch, host="reference", measured=False).latency_ms.value
        when = (before + datetime.timedelta(minutes=number)).isoformat()
        lines.append({**about, "row_id": f"{number}", "measured_at": when, "model": model, "batch": batch,
                      "latency_ms": factor * predicted})  # fmt: skip
    Store(shipped=False).append("models", pd.DataFrame(lines))


def test_what_this_machine_measures_improves_its_next_predictions(home: Path, here: Device) -> None:
    first = run("adapt", "--watch")
    assert first.returncode == 0 and "No rows of it yet" in first.stdout, first.stderr
    done = run("measure", MODELS[0], "--batch", "4")
    assert done.returncode == 0 and "no corrections: all rows are of one model" in done.stdout, done.stderr
    assert forerun.predict(UNSEEN, here, batch=4).basis == "learned"
    done = run("verify", MODELS[1], "--batch", "4", "--json")
    said = json.loads(done.stdout)
    assert said["prediction"]["basis"] == "learned"  # what is checked knew nothing of its own row
    assert (said["watched"]["cases"], said["watched"]["models"], said["watched"]["drift"]) == (2, 2, None)
    written = kept(home).stat().st_mtime_ns
    learned, adapted = (forerun.predict(UNSEEN, here, batch=4, host=host) for host in ("reference", "default"))
    assert (learned.basis, adapted.basis) == ("learned", "adapted (2 rows of this machine)")
    assert learned.latency_ms.value != adapted.latency_ms.value
    assert forerun.predict(MODELS[0], here, batch=4).basis == "measured"
    assert forerun.predict_many([{"model": UNSEEN}], [here])["basis"].tolist() == ["learned"]
    state = json.loads(run("adapt", "--watch", "--json").stdout)
    assert state["watched"] and state["devices"][0]["rows"] == 2 and state["devices"][0]["after"] is not None
    assert kept(home).stat().st_mtime_ns == written  # neither a query nor the state fits anything again
    assert "its rows stay in the store" in run("adapt", "--watch", "off").stdout
    assert forerun.predict(UNSEEN, here, batch=4).basis == "learned" and list((home / "watched").iterdir()) == []
    assert len(Store(shipped=False).read("models")) == 2


def test_a_row_that_contradicts_is_named_and_not_believed(home: Path, here: Device) -> None:
    add_rows(here, [1.5, 1.5, 1.5, 7.5, 1.5, 1.5, 1.5, 1.5, 1.5])
    said = run("adapt", "--watch").stdout
    assert f"Note: {MODELS[3]}, batch 64:" in said and "drift" not in said
    plain, adapted = (forerun.predict(UNSEEN, here, batch=96, host=host) for host in ("reference", "default"))
    assert adapted.latency_ms.value == pytest.approx(1.5 * plain.latency_ms.value, rel=0.1)


def test_drift_is_said_and_left_behind_by_a_fresh_start(home: Path, here: Device) -> None:
    add_rows(here, [1.5] * 7 + [4.0] * 3)
    said = run("adapt", "--watch").stdout
    (line,) = (line for line in said.splitlines() if "drift" in line)
    assert "the last 3 rows of this machine took 2." in line and "the 7 older ones" in line
    assert any(note.startswith("drift: the last 3 rows") for note in forerun.predict(UNSEEN, here, batch=96).notes)
    said = run("adapt", "--watch", "fresh").stdout
    assert "rows from then on" in said and "No rows of it yet" in said
    assert forerun.predict(UNSEEN, here, batch=96).basis == "learned"


def test_corrections_that_cannot_be_used_fail_no_prediction(home: Path, here: Device) -> None:
    add_rows(here, [1.5] * 6)
    assert run("adapt", "--watch").returncode == 0
    place, whole = kept(home), kept(home).read_bytes()
    stamp = load_predictor("default").stamp.encode()
    place.write_bytes(whole.replace(stamp, stamp[::-1]))
    answer = forerun.predict(UNSEEN, here, batch=96)
    assert answer.basis == "learned" and any("other weights of the predictor" in note for note in answer.notes)
    place.write_bytes(whole[:200])
    assert forerun.predict(UNSEEN, here, batch=96).basis == "learned"
    assert "corrected by 6 cases" in run("adapt", "--watch").stdout  # written anew
    assert forerun.predict(UNSEEN, here, batch=96).basis == "adapted (6 rows of this machine)"
    elsewhere = json.loads((home / "watch.json").read_text()) | {"machine": "another"}
    (home / "watch.json").write_text(json.dumps(elsewhere))
    assert forerun.predict(UNSEEN, here, batch=96).basis == "learned"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("off", "--rows", "x"), "goes alone"),
        (("often",), "takes on, off or fresh, not often"),
    ],
)
def test_what_is_watched_is_one_word(home: Path, words: tuple[str, ...], said: str) -> None:
    done = run("adapt", "--watch", *words)
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr
    assert not (home / "watch.json").exists()
