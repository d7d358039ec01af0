"""`forerun train` as people run it: on a few rows, killed on the way and started again, then used."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import warm

import forerun
from forerun.evaluate.stored import stored_predictions
from forerun.predictors.default import DefaultPredictor
from forerun.training.provenance import LIBRARIES

Run = Callable[..., subprocess.CompletedProcess[str]]
MODELS = (
    "cnn:depth=2,filters=16,classes=10", "unet:base=24,levels=2,outputs=1",
    "autoencoder:image=32,width=16,levels=3,latent=64,variational=1",
)  # fmt: skip
WHERE = f"device = 'h200' and model in {MODELS}"
COMMAND = ("train", "default", "--no-public", "--where", WHERE, "--operators", "60", "--steps", "10", "--folds", "3")
LIMIT_S = 300.0


@dataclass(frozen=True)
class Trained:
    """What a run left: the folder of weights, its two outputs, and the parts that the killed run had finished."""

    folder: Path
    stdout: str
    stderr: str
    before: dict[str, int]  # time of change by path
    after: dict[str, int]


def parts(store: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in store.glob("evaluations/*-family-*/part_*.parquet")}


def killed_with_all_its_processes(store: Path, out: Path) -> None:
    """Trains until a part is finished, and is killed then."""
    env = {**os.environ, "FORERUN_STORE": str(store)}
    with open(os.devnull, "wb") as nothing:
        first = warm.python(env).start(
            ["-m", "forerun", *COMMAND, "--out", str(out)], cwd=store, env=env, stdout=nothing.fileno(),
            stderr=nothing.fileno(),
        )  # fmt: skip
    process = psutil.Process(first.pid)
    began = time.monotonic()
    while not parts(store) and process.is_running() and time.monotonic() - began < LIMIT_S:
        time.sleep(0.02)
    process.suspend()  # it starts no further ones
    children = process.children(recursive=True)
    first.kill()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    assert first.wait(LIMIT_S) == -signal.SIGKILL, "the run ended before it could be killed"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Trains once: killed, with all its processes, as soon as a part is finished; then run to the end."""
    store, out = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("weights") / "mine"
    killed_with_all_its_processes(store, out)
    before = parts(store)
    env = {**os.environ, "FORERUN_STORE": str(store)}
    again = warm.run(["-m", "forerun", *COMMAND, "--out", str(out)], env=env)
    assert again.returncode == 0, again.stderr
    return Trained(out, again.stdout, again.stderr, before, parts(store))


def test_a_killed_run_goes_on_with_the_parts_it_had_finished(trained: Trained) -> None:
    assert 1 <= len(trained.before) < 3
    assert len(trained.after) == 3
    assert {path: trained.after[path] for path in trained.before} == trained.before
    assert not list(trained.folder.parent.glob("**/*.part"))


def test_what_was_trained_answers(trained: Trained, run_forerun: Run) -> None:
    words = ("predict", MODELS[0], "--device", "a100", "--batch", "8", "--json")
    mine, shipped = (run_forerun(*words, *more) for more in (("--predictor", str(trained.folder)), ()))
    assert mine.returncode == shipped.returncode == 0, mine.stderr
    found, other = (json.loads(done.stdout) for done in (mine, shipped))
    assert found["basis"] == "learned"
    assert found["latency_ms"]["low"] < found["latency_ms"]["value"] < found["latency_ms"]["high"]
    assert found["latency_ms"] != other["latency_ms"]
    assert found["provenance"]["rows"] != other["provenance"]["rows"]


def test_the_weights_state_what_they_stand_on(trained: Trained) -> None:
    origin = DefaultPredictor.load(trained.folder).provenance
    assert origin["rows"] == {"models": {"forerun-h200": len(stored_predictions(trained.folder))},
                              "operators": {"forerun-h200": 60}}  # fmt: skip
    assert origin["forerun"] == forerun.__version__
    assert set(origin["libraries"]) == set(LIBRARIES) and all(origin["libraries"].values())
    assert set(origin["sets"]) == {"forerun-h200"}
    assert len(origin["sets"]["forerun-h200"]) >= 32 and int(origin["sets"]["forerun-h200"], 16)
    assert origin["commit"] is None or len(origin["commit"].rstrip("+")) >= 7
    assert origin["fitted"] >= origin["measured_until"] >= "2026-11-15"


def test_held_out_rows_and_a_model_card_are_beside_the_weights(trained: Trained) -> None:
    rows = stored_predictions(trained.folder)
    assert set(rows["family"]) == {"cnn", "unet", "autoencoder"} and set(rows["model"]) == set(MODELS)
    targets = ("latency_ms", "device_ms", "energy_j", "memory_mb")
    assert rows[[f"predicted_{target}" for target in targets]].notna().all(axis=None)
    card = (trained.folder / "MODEL_CARD.md").read_text()
    assert "`forerun train default`" in card and f"with forerun {forerun.__version__}" in card
    assert "| models | forerun-h200 | 25 |" in card
    # Written for a terminal or a log: how far the work is, and what came of it.
    assert "holding out families (GPU): 3 of 3" in trained.stderr
    assert "latency, held out: mean error" in trained.stdout
    assert "device time, held out: mean error" in trained.stdout
    assert f"use it with --predictor {trained.folder}" in trained.stdout.replace("\n", "")


def test_mistakes_are_one_sentence(run_forerun: Run) -> None:
    for words, sentence in (
        (("train", "defautl"), "no predictor is called 'defautl'"),
        (("train", "dummy", "--where", "no_such_column = 1"), "no_such_column"),
        (("train", "dummy", "--where", "model = 'no such model'"), "no such model"),
    ):
        done = run_forerun(*words, "--no-public")
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("forerun: ") and sentence in line
