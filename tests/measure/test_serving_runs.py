"""Serving runs of tiny models with transformers' real continuous batching on the CPU, and the table they end up in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from forerun.cli.app import app
from forerun.data import serving
from forerun.data.intake import take_in
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.measure import sweep
from forerun.measure.core.rows import read
from forerun.measure.core.serving_cases import Traffic, units
from forerun.measure.core.serving_metrics import Request, Window, measures

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512}  # fmt: skip
CLOSED = {"dtype": "bf16", "arrivals": "closed", "concurrency": 3, "prompt": 20, "output": 5}
POISSON = {"dtype": "bf16", "arrivals": "poisson", "rate": 30, "prompt": 20, "output": 5, "spread": 0.5}
SPEC: dict[str, Any] = {
    "name": "tiny", "kind": "serving", "ramp_s": 0.2, "window_s": 0.5,
    "engine": {"block_size": 16, "num_blocks": 32, "max_batch_tokens": 64},
    "blocks": [
        {"configs": {"tiny-llama": {"family": "llama", "config": {"model_type": "llama", **SIZES}}},
         "settings": [CLOSED, POISSON]},
        # The library's class of this model does not pass the engine's cache on to attention.
        {"configs": {"tiny-nemotron": {"family": "nemotron", "config": {"model_type": "nemotron", **SIZES}}},
         "settings": [CLOSED]},
    ],
}  # fmt: skip


def spec_file(folder: Path, spec: dict[str, Any] = SPEC) -> Path:
    path = folder / "tiny.json"
    path.write_text(json.dumps(spec))
    return path


def runs_in(file: Path) -> int:
    return sum(row["kind"] == "serving" for row in read(file))


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving")
    out = folder / "rows.jsonl"
    words = ["--spec", str(spec_file(folder)), "--out", str(out), "--budget", "400", "--case-limit", "100"]
    command = [sys.executable, "-m", "forerun.measure.core", *words, "--device", "cpu", "--no-host-probe"]
    ran = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert ran.returncode == 0 and "0 units left" in ran.stdout, ran.stdout + ran.stderr
    return out


@pytest.fixture(scope="module")
def store(rows_file: Path) -> Store:
    store = Store(rows_file.parent / "store", shipped=False)
    assert take_in([rows_file], store)["serving"] == 5
    return store


def test_a_closed_loop(store: Store) -> None:
    row = serving.rows(store).query("arrivals == 'closed'").iloc[0]
    assert row["model"].endswith("tiny-llama") and row["family"] == "llama" and row["engine"] == "transformers"
    assert row["attention"].endswith("sdpa") and row["num_blocks"] == 32 and row["max_batch_tokens"] == 64
    assert row["completed"] >= 1 and row["window_s"] >= 0.5
    assert 0 < row["running"] <= 3.001 and 0 < row["busy"] <= 1
    assert row["ttft_p50_ms"] <= row["ttft_p90_ms"] <= row["ttft_p99_ms"]
    parts = row["prepare_ms"] + row["step_ms"] + row["update_ms"]
    assert parts == pytest.approx(row["iteration_ms"], rel=1e-4)
    requests, (begin, end) = serving.trace(row)
    assert (requests["prompt"] == 20).all() and (requests["output"][3:] == 5).all()  # the first stand in the middle
    last = requests["last_token_s"][(requests["tokens"] == requests["output"])]
    assert row["completed"] == ((last > begin) & (last <= end)).sum()
    at_once = [(requests["arrival_s"] <= t).sum() - (last <= t).sum() for t in np.linspace(begin, end, 20)]
    assert max(at_once) <= 3


def test_poisson_arrivals(store: Store) -> None:
    row = serving.rows(store).query("arrivals == 'poisson'").iloc[0]
    requests, (begin, end) = serving.trace(row)
    assert end - begin == pytest.approx(row["window_s"], rel=1e-3)
    assert len(requests) == row["requests"] and requests["output"].nunique() > 1
    whole = requests[requests["tokens"] >= requests["output"]]
    assert len(whole) and (whole["tokens"] == whole["output"]).all()  # no token ends an answer early
    assert (requests["first_token_s"].dropna() > requests["arrival_s"][requests["first_token_s"].notna()]).all()


def test_iterations_hold_what_was_computed(store: Store) -> None:
    row = serving.rows(store).query("arrivals == 'closed'").iloc[0]
    steps = serving.iterations(row)
    fills = steps[steps["prefill"] > 0]
    assert len(steps) >= row["iterations"] and (steps["decode"] <= 3).all()
    assert (fills["pairs"] >= fills["prefill"]).all() and fills["finished"].max() >= 1
    alone = fills[(fills["prefill"] == 20) & (fills["finished"] == 1)]
    assert (alone["pairs"] == 20 * 21 / 2).all()  # a prompt of 20 tokens under the causal mask
    assert (steps["context"] <= 3 * 25).all() and not (steps["used_blocks"] > 6).any()


def test_repeats_get_the_same_requests(store: Store) -> None:
    both = store.read("serving").query("arrivals == 'poisson' and status == 'ok'").sort_values("repeat")
    first, again = (serving.trace(row)[0] for _, row in both.iterrows())
    shared = min(len(first), len(again))
    assert shared > 5 and (first["prompt"][:shared] == again["prompt"][:shared]).all()
    assert np.allclose(first["arrival_s"][:shared], again["arrival_s"][:shared], atol=2e-3)
    floor = serving.noise(serving.rows(store)).set_index("quantity")
    assert floor.loc["itl_ms", "runs"] == 2 and floor.loc["itl_ms", "mean"] >= 0


def test_a_model_that_cannot_be_served_is_a_row(store: Store) -> None:
    failed = store.read("serving").query("status != 'ok'")
    assert len(failed) == 1 and failed["model"].iloc[0].endswith("tiny-nemotron")
    assert "paged attention cache" in failed["reason"].iloc[0]


def test_a_finished_sweep_measures_nothing_again(rows_file: Path) -> None:
    assert runs_in(rows_file) == 5  # three cases, and two repeats of the first model
    assert sweep.run([spec_file(rows_file.parent)], rows_file, budget_s=300, device="cpu") == (5, 5)
    assert runs_in(rows_file) == 5


def test_the_store_shows_and_exports_them(store: Store, tmp_path: Path) -> None:
    runner = CliRunner(env={"FORERUN_STORE": str(store.folder)})
    listed = json.loads(runner.invoke(app, ["data", "ls", "--json"]).stdout)
    assert {"dataset": "own", "table": "serving", "rows": 5, "failed": 1}.items() <= next(
        line for line in listed if line["table"] == "serving" and line["dataset"] == "own"
    ).items()
    sql = "select arrivals, ttft_ms from serving where dataset = 'own' and status = 'ok' order by arrivals"
    asked = json.loads(runner.invoke(app, ["data", "query", sql, "--json"]).stdout)
    assert [line["arrivals"] for line in asked] == ["closed", "closed", "poisson", "poisson"]
    done = tmp_path / "done.jsonl"
    assert runner.invoke(app, ["data", "export", str(done), "--where", "dataset = 'own'"]).exit_code == 0
    kinds = [json.loads(line)["kind"] for line in done.read_text().splitlines()]
    assert kinds.count("serving") == 5
    out = tmp_path / "again.jsonl"
    assert sweep.run([spec_file(tmp_path)], out, budget_s=60, device="cpu", resume=[done]) == (5, 5)
    assert runs_in(out) == 0


def test_requests_depend_on_the_case_only() -> None:
    case = units(SPEC, 0, set())[0].cases[0] | POISSON
    draws = [[(t.gap_s(), *t.lengths()) for _ in range(200)] for t in (Traffic(case, 64), Traffic(case, 64))]
    assert draws[0] == draws[1]
    gaps, prompts, outputs = map(np.array, zip(*draws[0], strict=True))
    assert gaps.mean() == pytest.approx(1 / 30, rel=0.3) and prompts.mean() == pytest.approx(20, rel=0.2)
    assert outputs.min() >= 4 and outputs.max() <= 20


def test_measures_count_what_ends_in_the_window() -> None:
    requests = [
        Request(arrival=0.0, prompt=10, output=3, submitted=0.0, token_times=[0.5, 1.5, 2.5]),  # its end is outside
        Request(arrival=1.0, prompt=10, output=2, submitted=1.0, token_times=[1.2, 1.9]),
        Request(arrival=1.9, prompt=10, output=2, submitted=1.9),
    ]
    # start, prepare, step, update, decode, context, prefill, pairs, finished, waiting, used blocks
    iterations = [(0.9, 1, 8, 1, 1, 11, 0, 0, 0, 0, 1), (1.1, 1, 98, 1, 1, 12, 10, 55, 1, 1, 2)]
    got = measures(requests, iterations, Window(begin=0.0, start=1.0, end=2.0))
    assert got["ttft_ms"] == pytest.approx(200) and got["ttft_n"] == 1
    assert got["itl_ms"] == pytest.approx((1000 + 700) / 2) and got["tpot_ms"] == pytest.approx(700)
    assert got["e2e_ms"] == pytest.approx(900) and got["completed"] == 1 and got["output_tokens_per_s"] == 3
    assert got["arrived"] == 1 and got["iterations_n"] == 1 and got["iteration_ms"] == 100
    assert got["running"] == pytest.approx(2 * 0.1) and got["prompt_tokens_per_s"] == 10 and got["busy"] == 0.1


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"arrivals": "daily"}, "arrivals are poisson or closed"),
        ({"rate": 0}, "needs rate"),
        ({"prompt": None}, "needs prompt"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(tmp_path: Path, setting: dict[str, Any], words: str) -> None:
    spec = {**SPEC, "blocks": [{**SPEC["blocks"][0], "settings": [{**POISSON, **setting}]}]}
    with pytest.raises(ForerunError, match=words):
        sweep.run([spec_file(tmp_path, spec)], tmp_path / "rows.jsonl", budget_s=10)


def test_the_sweep_of_the_h200() -> None:
    spec = sweep.load(Path(__file__).parents[2] / "sweeps" / "h200_serving_runs.yaml")
    planned = units(spec, 0, set())
    runs = [case for unit in planned for case in unit.cases]
    again = sum(len(unit.cases) for unit in planned if unit.repeat)
    assert len(runs) - again >= 150 and again >= 0.1 * (len(runs) - again)
    assert len({case["family"] for case in runs}) >= 8
    assert len(sweep.wanted(spec, 0)) == len(runs)
