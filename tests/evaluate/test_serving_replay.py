"""The law of transformers' continuous batching is found from iterations that it made, and its runs are replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.evaluate.serving_replay import Replay
from forerun.evaluate.serving_runs import judge, section
from forerun.measure.core.serving_engine import COLUMNS
from forerun.measure.core.serving_metrics import Window
from forerun.predictors.laws.batching import BatchingLaw, Served

TRUE = BatchingLaw(prepare_ms=2, mask_ms=0.08, index_ms=2e-4, launch=1.3, layer_ms=0.15, dense=1.2, gather=2.5)
ENGINE = {"block_size": 16, "num_blocks": 400, "max_batch_tokens": 256}
CASES = [
    {"arrivals": "closed", "concurrency": 8, "prompt": 100, "output": 20},
    {"arrivals": "closed", "concurrency": 40, "prompt": 60, "output": 30},
    {"arrivals": "poisson", "rate": 12, "prompt": 200, "output": 24, "spread": 0.5},
]
WINDOW = Window(0.0, 0.7, 2.9)


def served(layers: int, heads: int, host_ms: float) -> Served:
    tokens = (1.0, 64.0, 2048.0)
    return Served(
        host_ms, tokens, (0.2 * layers, 0.25 * layers, 3.0 * layers), layers, heads, heads // 4, 128, 1, 4800, 990
    )


MODELS = {"a": served(16, 32, 9.0), "b": served(28, 24, 16.0), "c": served(32, 32, 18.0), "d": served(40, 40, 24.0)}
#: How many times as long as usual a launch took around the runs of each model.
SLOW = {"a": 1.0, "b": 1.0, "c": 0.8, "d": 1.6}


def run_of(case: dict[str, Any], model: str, law: BatchingLaw) -> Replay:
    def iteration_ms(*load: int) -> float:
        return float(law.latency_ms(MODELS[model], *(np.array([float(n)]) for n in load))[0])

    whole = {**case, "kind": "serving", "name": model, "engine": ENGINE, "config": {"vocab_size": 100}}
    return Replay(whole, 100, iteration_ms, 400)


def row_of(case: dict[str, Any], model: str, slow: float = 1.0) -> dict[str, Any]:
    """A run as the store has it, made by the true law on a host of which a probe says how slow it was."""
    law = TRUE.slowed(slow)
    replay = run_of(case, model, law)
    got = replay.until(WINDOW)
    lines = []
    for row in got["iterations"]:
        load = dict(zip(COLUMNS, row, strict=True))
        args = [np.array([float(load[name])]) for name in ("decode", "context", "prefill", "finished")]
        decode, context, prefill, finished = args
        step = law.step(MODELS[model], decode + prefill, context + prefill)
        prepare = law.prepare(MODELS[model], decode, context, prefill, finished)
        update = law.update(decode, finished)
        lines.append([row[0], float(prepare[0]), float(step[0]), float(update[0]), *row[4:]])
    trace = {"window": got["window"], "columns": list(range(6)), "rows": got["trace"]}
    return {
        "model": model, "status": "ok", "dataset": "t", "device": "h200", "attention": "paged|sdpa", "repeat": 0,
        "case": replay.case, "case_key": json.dumps([model, case]), "max_requests_per_batch": 400,
        **{name: case.get(name) for name in ("arrivals", "rate", "concurrency", "prompt", "output", "spread")},
        **{name: got[name] for name in ("itl_ms", "ttft_ms", "output_tokens_per_s")}, "trace": json.dumps(trace),
        "iteration_times": json.dumps({"columns": COLUMNS, "rows": lines}),
        "extra": {f"host_probe_{side}": {"launch_us": 8.0 * slow} for side in ("before", "after")},
    }  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("store"), shipped=False)
    store.append("serving", [row_of(case, model, slow) for model, slow in SLOW.items() for case in CASES])
    return store


def test_a_held_out_model_is_predicted(store: Store) -> None:
    judged = judge(store, known=MODELS)
    assert set(judged.iterations) == set(MODELS) and max(judged.iterations.values()) < 0.03
    assert "12 runs of 4 models" in section(judged).words
    errors = section(judged).table.query("arrivals == 'all'").set_index("quantity")
    assert (errors["runs"] == len(MODELS) * len(CASES)).all()
    assert errors.loc["itl_ms", "host probed"] < 0.03 and errors.loc["output_tokens_per_s", "host probed"] < 0.03
    assert errors.loc["ttft_ms", "host probed"] < 0.1 and errors.loc["itl_ms", "mape"] > 0.05
    assert judged.law.mask_ms == pytest.approx(TRUE.mask_ms, rel=0.2)
    assert judged.law.launch * 20 + judged.law.layer_ms * 30 == pytest.approx(1.3 * 20 + 0.15 * 30, rel=0.05)


def test_more_work_takes_longer() -> None:
    load = {"decode": 8.0, "context": 4000.0, "prefill": 300.0, "finished": 1.0}
    base = float(TRUE.latency_ms(MODELS["a"], *(np.array([v]) for v in load.values()))[0])
    for name in load:
        more = {**load, name: 4 * load[name]}
        assert float(TRUE.latency_ms(MODELS["a"], *(np.array([v]) for v in more.values()))[0]) > base


def test_a_replay_serves_in_order_and_within_its_blocks() -> None:
    replay = run_of(CASES[1], "b", TRUE)
    got = replay.until(Window(0.0, 1.0, 4.0))
    assert got["completed"] > 40 and got["running"] < 40.5
    used = [row[COLUMNS.index("used_blocks")] for row in got["iterations"]]
    tokens = [row[COLUMNS.index("decode")] + row[COLUMNS.index("prefill")] for row in got["iterations"]]
    assert max(used) <= ENGINE["num_blocks"] and max(tokens) <= ENGINE["max_batch_tokens"]
    firsts = [r.token_times[0] for r in replay.requests if r.token_times]
    assert firsts == sorted(firsts)
    assert all(r.token_times == sorted(r.token_times) and len(r.token_times) <= r.output for r in replay.requests)


def test_one_model_is_not_enough(tmp_path: Path) -> None:
    store = Store(tmp_path, shipped=False)
    store.append("serving", [row_of(CASES[0], "a")])
    with pytest.raises(ForerunError, match="no serving runs of two models"):
        judge(store, known=MODELS)
