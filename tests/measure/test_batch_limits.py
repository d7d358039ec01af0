"""The largest batch that runs: found by real processes that run out of memory, respected by predictions, scored."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forerun
from forerun.data.intake import take_in
from forerun.data.store import Store
from forerun.evaluate import fits, margin
from forerun.evaluate.stored import stored_predictions
from forerun.measure.core.batch_limit_phase import CLOSE, find_limit
from forerun.measure.core.meters import meter_for
from forerun.measure.core.protocol import Call, measure
from forerun.measure.core.worker import why
from forerun.predictors.saved import SHIPPED

DATA_BYTES = 1_500_000_000
SPEC = {
    "name": "limit", "kind": "batch_limit",
    "blocks": [{
        "variants": [{"family": "cnn", "source": "cnn", "draw": {"depth": [2], "filters": [16]}}],
        "settings": [{"mode": "inference", "batch": 2700, "dtype": "fp32"}],
    }],
}  # fmt: skip


@given(st.integers(1, 100_000), st.integers(1, 200_000))
def test_the_search_brackets_every_limit(limit: int, start: int) -> None:
    def trial(batch: int) -> dict[str, object]:
        return {"status": "ran" if batch <= limit else "oom", "used_mb": batch, "total_mb": limit}

    result = find_limit(trial, start, most=60)
    assert result["oom_batch"] > limit >= (result["ran_batch"] or 0)
    assert result["oom_batch"] - (result["ran_batch"] or 0) <= max(1, (CLOSE - 1) * (result["ran_batch"] or 0) + 1)


def test_a_trial_that_fails_otherwise_ends_the_search() -> None:
    result = find_limit(lambda batch: {"status": "error", "reason": "no such operator"}, 8)
    assert result["ran_batch"] is result["oom_batch"] is None and len(result["trials"]) == 1


def test_processes_that_really_run_out_of_memory(tmp_path: Path) -> None:
    """On this machine's CPU, with a limit on the memory of every process."""
    spec, out = tmp_path / "limit.json", tmp_path / "rows.jsonl"
    spec.write_text(json.dumps(SPEC))
    words = ["--spec", str(spec), "--out", str(out), "--budget", "400", "--device", "cpu", "--case-limit", "60"]

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "forerun.measure.core", *words]
    ran = subprocess.run(command, preexec_fn=small, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    store = Store(tmp_path / "store", shipped=False)
    assert take_in([out], store)["batch_limits"] == 1
    row = store.read("batch_limits").iloc[0]
    assert 0 < row["ran_batch"] < row["oom_batch"] <= CLOSE * row["ran_batch"] + 1
    activations = 16 * 32 * 32 * 4 * row["oom_batch"]  # of one layer: 16 filters over 32 x 32 numbers of 4 bytes
    assert 0.2 * DATA_BYTES < activations < DATA_BYTES


def test_predictions_respect_a_measured_limit() -> None:
    """Llama-3.1-8B's decode step with 2,048 tokens on an H200: batch 480 ran, 484 ran out of memory."""
    request = {"mode": "decode", "seq_len": 2048, "dtype": "bf16"}
    ran = forerun.predict("meta-llama/Llama-3.1-8B", "h200", batch=480, **request)
    out = forerun.predict("meta-llama/Llama-3.1-8B", "h200", batch=484, **request)
    assert ran.fit.fits and ran.fit.sure and ran.fit.largest_batch == 480
    assert not out.fit.fits and out.fit.largest_batch == 480 and out.check is None
    assert any("batch 480 ran on this device, batch 484 ran out of memory" in note for note in out.notes)
    alone = forerun.predict("meta-llama/Llama-3.1-8B", "h200", batch=484, measured=False, **request)
    assert alone.fit.largest_batch < 480 and not any("ran out of memory" in note for note in alone.notes)


def test_a_case_of_a_sweep_that_ran_out_of_memory_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path))
    name = "cnn:depth=2,filters=8"
    case = {"kind": "model", "source": "cnn", "name": name, "mode": "inference", "batch": 3, "dtype": "fp32"}
    about = {"session": "s", "protocol": 2}
    lines = [
        {"kind": "session", **about, "device": {"name": "NVIDIA H200"}, "host": {}, "software": {}},
        {"kind": "model", **about, "key": "k", "repeat": 0, "status": "oom", "reason": "CUDA out of memory",
         "time": "2026-11-18T12:00:00+00:00", "case": case},
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = forerun.predict(name, "h200", batch=3)
    assert before.fit.fits
    take_in([tmp_path / "rows.jsonl"], Store())
    result = forerun.predict(name, "h200", batch=3)
    assert not result.fit.fits and result.fit.largest_batch == 2
    assert "measured on 2026-11-18: batch 3 ran out of memory on this device" in result.notes


def test_a_cache_that_timing_holds_twice_is_no_limit_of_the_call() -> None:
    """The call ran; only putting its cache back did not fit."""

    def hold() -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 1.00 GiB.")

    with pytest.raises(Exception, match="holds the KV cache twice") as raised:
        measure(Call(lambda: None, hold=hold), meter_for("cpu"))
    assert why(raised.value)[0] == "error"


def test_fits_on_the_h200() -> None:
    """At least 95 of 100 batches that ran out of memory are said not to fit, at most 3 of 100 that ran are refused."""
    result = fits.limits(Store())
    assert len(result) >= 40 and {one.mode for one in result} == {"inference", "training", "prefill", "decode"}
    out = [batch > one.predicted for one in result for batch, ran in one.trials if not ran]
    ran = [batch > one.predicted for one in result for batch, did in one.trials if did]
    refused, rows = fits.refused_rows(stored_predictions(SHIPPED / "default"))
    assert sum(out) >= 0.95 * len(out)
    assert sum(ran) + refused <= 0.03 * (len(ran) + rows)


def test_the_margin_is_judged_on_families_that_it_was_not_chosen_on() -> None:
    """What runs out of memory in family a needs 5 %, in b 9 %, in c, a relative of a, nothing; all of b's runs fit."""
    result = [
        *[margin.Trial("a", False, 4)] * 10, margin.Trial("c", False, -1), *[margin.Trial("b", False, 8)] * 10,
        margin.Trial("a", True, 7), margin.Trial("b", True, 12),
    ]  # fmt: skip
    rows = pd.DataFrame({
        "family": ["a", "c", "b"], "device": "h200", "mode": "inference", "model": ["a", "c", "b"],
        "graph_hash": ["same", "same", "other"], "predicted_memory_mb": [1.0, 1.0, 1e9],
    })  # fmt: skip
    sides = margin.halves(result, rows)
    assert sorted(map(sorted, sides)) == [["a", "c"], ["b"]]
    lines = {line["chosen on"]: line for line in margin.section(result, rows).table.to_dict("records")}
    on_a, on_b = lines["a, c"], lines["b"]
    assert (on_a["margin"], on_a["recall"], on_a["ran"], on_a["of these refused"]) == ("5 %", "0.0%", 2, 1)
    assert (on_b["margin"], on_b["recall"], on_b["ran"], on_b["of these refused"]) == ("9 %", "100.0%", 3, 1)
