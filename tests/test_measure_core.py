"""The measuring core on a CPU: rows are valid, and a killed run goes on without losing or repeating a row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forerun.measure.core import operator_cases, plan, rows, specs
from forerun.measure.core.kernels import kernel_class
from forerun.measure.core.meters import Meter
from forerun.measure.core.protocol import PROTOCOL_VERSION, Call, measure, summary

ROOT = Path(__file__).parent.parent
TINY = {
    "name": "tiny",
    "seed": 3,
    "blocks": [
        {
            "variants": [{"family": "cnn", "source": "cnn", "draw": {"depth": [2, 3, 4], "filters": [4]}}],
            "settings": [{"mode": "inference", "batch": [1, 2], "dtype": "fp32"}],
        },
        {
            "variants": [{"family": "cnn", "source": "cnn", "draw": {"depth": [2], "filters": [4]}}],
            "settings": [{"mode": "training", "batch": 4, "dtype": "fp32", "optimizer": "sgd"}],
        },
    ],
}


def command(spec: Path, out: Path) -> list[str]:
    said = ["--spec", str(spec), "--out", str(out), "--budget", "240", "--device", "cpu", "--no-host-probe"]
    return [sys.executable, "-m", "forerun.measure.core", *said]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def names(found: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    return Counter((row["key"], row["repeat"]) for row in found)


def test_killed_and_resumed(tmp_path: Path) -> None:
    spec, out = tmp_path / "tiny.json", tmp_path / "rows.jsonl"
    spec.write_text(json.dumps(TINY))
    wanted = {(specs.key_of(case), unit.repeat) for unit in plan.lane(TINY, 1.0, 0, set()).units for case in unit.cases}
    child = subprocess.Popen(command(spec, out), env=environment(), stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while len(rows.read(out)) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    before = rows.read(out)
    assert 2 <= len(before) < len(wanted)
    with out.open("ab") as file:  # as if the kill had hit in the middle of a write
        file.write(b'{"kind": "model", "key": "half a r')
    done = subprocess.run(command(spec, out), env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = rows.read(out)
    counted = names(found)
    assert set(counted) == wanted
    assert set(counted.values()) == {1}
    assert found[: len(before)] == before
    assert all(json.loads(line) for line in out.read_text().splitlines())
    for row in found:
        check_row(row)


def check_row(row: dict[str, Any]) -> None:
    assert row["status"] == "ok", row.get("reason")
    assert row["protocol"] == PROTOCOL_VERSION
    assert row["key"] == specs.key_of({**row["case"], "input_shape": None})
    assert row["latency_ms"] == row["wall_ms"]["mean"] > 0
    assert row["wall_ms"]["min"] <= row["wall_ms"]["median"] <= row["wall_ms"]["p99"]
    assert row["loop_ms"] > 0
    assert row["loop_s"] >= 0.5
    assert row["memory"]["used_mb"] > 10
    assert row["kernel_ms"] is None
    assert row["kernel_ms_reason"]
    assert (row["energy_j"] is None) == bool(row.get("energy_reason"))
    assert row["case"]["input_shape"] == [3, 32, 32]
    assert row["software"]["torch"]
    assert row["host"]["cores"]
    assert row["device"]["kind"] == "cpu"


def test_failures_are_rows(tmp_path: Path) -> None:
    spec, out = tmp_path / "bad.json", tmp_path / "rows.jsonl"
    block = {"families": {"none": ["no_such_model_anywhere"]}, "settings": [{**setting(), "batch": [1, 2]}]}
    spec.write_text(json.dumps({"name": "bad", "blocks": [block]}))
    done = subprocess.run(command(spec, out), env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = rows.read(out)
    assert {row["status"] for row in found} == {"error"}
    assert all("no_such_model_anywhere" in row["reason"] for row in found)
    assert set(names(found).values()) == {1}


def setting() -> dict[str, Any]:
    return {"mode": "inference", "batch": 1, "dtype": "fp32"}


class FakeMeter(Meter):
    """A device at 200 W whose energy counter moves every 20 ms."""

    def energy_mj(self) -> float:
        return float(int(time.perf_counter() / 0.02) * 0.02 * 200e3)


def test_energy_between_counter_steps() -> None:
    results = measure(Call(lambda: time.sleep(0.004)), FakeMeter())
    assert results["power_w"] == pytest.approx(200, rel=0.05)
    assert results["energy_j"] == pytest.approx(200 * results["loop_ms"] / 1e3, rel=0.05)
    assert results["timed_calls"] == 30


def test_slow_calls_are_timed_less() -> None:
    results = measure(Call(lambda: time.sleep(0.15)), Meter())
    assert results["timed_calls"] == 5
    assert results["warmup_calls"] == 5
    assert results["energy_j"] is None
    assert results["energy_reason"]


def test_summary() -> None:
    spread = summary([float(i) for i in range(100, 0, -1)])
    assert spread == {"mean": 50.5, "median": 50.5, "min": 1.0, "p90": 91.0, "p99": 100.0}


def test_expansion_is_the_same_every_time() -> None:
    for path in sorted((ROOT / "sweeps").glob("h200_*.json")):
        spec = specs.load(str(path))
        once, again = plan.lane(spec, 1.0, 5, set()), plan.lane(spec, 1.0, 5, set())
        assert once == again
        total = sum(len(unit.cases) for unit in once.units)
        repeated = sum(len(unit.cases) for unit in once.units if unit.repeat)
        assert repeated >= 0.08 * total
        keys = Counter((specs.key_of(case), unit.repeat) for unit in once.units for case in unit.cases)
        assert set(keys.values()) == {1}


def test_products_and_limits() -> None:
    draw = {"num_attention_heads": [2, 4], "_head": [64]}
    variant = {"source": "hf", "family": "x", "config": {"model_type": "bert"}, "draw": draw}
    variant["product"] = {"hidden_size": ["num_attention_heads", "_head"]}
    block = {"variants": [variant], "settings": [{**setting(), "batch": [1, 8], "seq_len": [16, 512]}]}
    found = specs.cases({"name": "x", "blocks": [{**block, "max_tokens": 1000}]})
    assert {case["overrides"]["hidden_size"] for case in found} == {128, 256}
    assert all("_head" not in case["overrides"] for case in found)
    assert all(case["batch"] * case["seq_len"] <= 1000 for case in found)
    assert len(found) == 6


def test_operator_cases() -> None:
    spec = {"name": "ops", "kind": "op", "n": 300, "seed": 1}
    found = operator_cases.cases(spec)
    assert len(found) == 300
    assert found == operator_cases.cases(spec)
    assert {"conv2d", "linear", "sdpa"} <= {case["op"] for case in found}
    assert {case["direction"] for case in found} == {"forward", "backward"}


def test_kernel_classes() -> None:
    assert kernel_class("sm90_xmma_gemm_bf16bf16_tilesize128") == "gemm"
    assert kernel_class("void at::native::vectorized_elementwise_kernel<4>") == "elementwise"
    assert kernel_class("flash_fwd_kernel") == "attention"
    assert kernel_class("sm80_xmma_fprop_implicit_gemm_tf32f32") == "conv"
