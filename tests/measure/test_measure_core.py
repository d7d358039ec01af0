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

from forerun.data.intake import model_row
from forerun.measure.core import (
    kernel_phase,
    operator_cases,
    operator_profile,
    plan,
    rows,
    serving_cases,
    specs,
    supervisor,
)
from forerun.measure.core.__main__ import arguments
from forerun.measure.core.kernels import kernel_class
from forerun.measure.core.meters import Meter
from forerun.measure.core.operator_draws import RARE
from forerun.measure.core.protocol import PROTOCOL_VERSION, Call, measure, summary

ROOT = Path(__file__).parents[2]
SWEEPS = sorted((ROOT / "sweeps").glob("h200_*.yaml"))
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
    words = ["--spec", str(spec), "--out", str(out), "--budget", "240", "--device", "cpu", "--no-host-probe"]
    return [sys.executable, "-m", "forerun.measure.core", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def names(found: list[dict[str, Any]], kind: str = "model") -> Counter[tuple[str, int]]:
    return Counter((row["key"], row["repeat"]) for row in found if row["kind"] == kind)


def test_killed_and_resumed(tmp_path: Path) -> None:
    spec, out = tmp_path / "tiny.json", tmp_path / "rows.jsonl"
    spec.write_text(json.dumps(TINY))
    wanted = {(specs.key_of(case), unit.repeat) for unit in plan.lane(TINY, 1.0, 0, set()).units for case in unit.cases}
    child = subprocess.Popen(command(spec, out), env=environment(), stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while len(names(rows.read(out))) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    before = rows.read(out)
    assert 2 <= len(names(before)) < len(wanted)
    with out.open("ab") as file:  # as if the kill had hit in the middle of a write
        file.write(b'{"kind": "model", "key": "half a r')
    run(spec, out)
    result = rows.read(out)
    for kind in ("model", "kernels"):
        assert set(names(result, kind)) == wanted
        assert set(names(result, kind).values()) == {1}
    assert result[: len(before)] == before
    assert all(json.loads(line) for line in out.read_text().splitlines())
    assert all("device" not in row and "software" not in row for row in result if row["kind"] != "session")
    merged = rows.merge(result)
    assert len(merged) == len(wanted)
    for row in merged:
        check_row(row)
    phases = [row["phase"] for row in result if row["kind"] == "session"]
    assert phases == ["timing", "timing", "kernels"]
    # A lost kernels line is made again, and nothing is timed a second time.
    stored = [row for row in result if row["kind"] != "kernels" or row != result[-1]]
    out.write_text("".join(json.dumps(row) + "\n" for row in stored))
    run(spec, out)
    again = rows.read(out)
    assert names(again) == names(result)
    assert names(again, "kernels") == names(result, "kernels")


def run(spec: Path, out: Path) -> None:
    done = subprocess.run(command(spec, out), env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


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
    assert row["kernel_ms_reason"] == "a CPU launches no kernels"
    assert row["kernels_session"] != row["session"]
    assert (row["energy_j"] is None) == bool(row.get("energy_reason"))
    assert row["case"]["input_shape"] == [3, 32, 32]
    assert row["software"]["torch"]
    assert row["host"]["cores"]
    assert row["device"]["kind"] == "cpu"


def test_merge() -> None:
    session = {"kind": "session", "session": "s", "device": {"name": "d"}, "host": {}, "software": {"torch": "2"}}
    model = {"kind": "model", "key": "k", "repeat": 0, "session": "s", "status": "ok", "latency_ms": 3.0, "time": "t"}
    line = {"kind": "kernels", "key": "k", "repeat": 0, "session": "p", "kernel_ms": 1.0, "kernels": 4, "time": "u"}
    failed = {**model, "key": "f", "status": "oom"}
    old = {"kind": "model", "key": "o", "repeat": 0, "status": "ok", "kernel_ms": 9.0, "device": {"name": "old"}}
    merged = rows.merge([line, model, session, {**model, "repeat": 1}, {**line, "kernel_ms": 2.0}, failed, old])
    assert [(row["key"], row["repeat"], row.get("kernel_ms")) for row in merged] == [
        ("k", 0, 2.0),
        ("k", 1, None),
        ("f", 0, None),
        ("o", 0, 9.0),
    ]
    assert merged[0]["time"] == "t"
    assert merged[0]["kernels"] == 4
    assert merged[0]["kernels_session"] == "p"
    assert merged[1]["kernel_ms_reason"] == "not profiled yet"
    assert "kernel_ms_reason" not in merged[2]
    assert merged[0]["device"] == {"name": "d"}
    assert merged[3]["device"] == {"name": "old"}


def test_waiting_for_the_profiler() -> None:
    def timed(key: str, name: str, repeat: int = 0, status: str = "ok") -> dict[str, Any]:
        case = {"kind": "model", "source": "timm", "name": name, "mode": "inference", "batch": 1, "dtype": "fp32"}
        return {"kind": "model", "key": key, "repeat": repeat, "status": status, "case": case}

    earlier = [timed("a", "x"), timed("b", "x"), timed("c", "y", status="oom"), timed("d", "y"), timed("a", "x", 1)]
    units = kernel_phase.waiting([*earlier, {"kind": "kernels", "key": "b", "repeat": 0}])
    assert [[(row["key"], row["repeat"]) for row in unit] for unit in units] == [[("a", 0)], [("d", 0)], [("a", 1)]]


def test_phases_share_the_budget(tmp_path: Path) -> None:
    model, ops = tmp_path / "m.json", tmp_path / "o.json"
    model.write_text(json.dumps(TINY))
    ops.write_text(json.dumps({"name": "o", "kind": "op", "n": 3}))

    def phases(*words: str) -> list[tuple[str, float]]:
        return [(name, round(until, 6)) for name, until in supervisor.phases(arguments([*words, "--out", "x"]))]

    assert phases("--spec", str(model)) == [("timing", 0.76), ("kernels", 1.0)]
    assert phases("--spec", str(ops)) == [("operators", 1.0)]
    both = ["--spec", str(model), "--spec", str(ops)]
    assert phases(*both) == [("timing", 0.64), ("kernels", 0.84), ("operators", 1.0), ("kernels", 1.0)]
    assert phases(*both, "--timing-share", "0")[0] == ("kernels", 0.84)


def test_operators_on_a_cpu(tmp_path: Path) -> None:
    spec, out = tmp_path / "ops.json", tmp_path / "rows.jsonl"
    spec.write_text(json.dumps({"name": "ops", "kind": "op", "n": 12, "max_flops": 1e7, "max_numbers": 1e5}))
    run(spec, out)
    result = [row for row in rows.merge(rows.read(out)) if row["kind"] == "op"]
    assert len(result) == len(names(result, "op")) >= 12
    assert {row["status"] for row in result} == {"ok"}, result
    assert all(row["device_ms"] > 0 and row["method"] == "wall" for row in result)


def test_markers_part_the_records() -> None:
    def record(name: str, start: int, ns: int) -> operator_profile.Record:
        return (name, start, ns)

    marks = [record("at::cuda::(anonymous namespace)::spin_kernel(long)", at, 900) for at in (100, 200, 300)]
    first = [record("gemm", 110, 2_000_000), record("gemm", 120, 4_000_000)]
    second = [record("Memset (Device)", 210, 1000), record("relu", 220, 3000), record("relu", 230, 3000)]
    parts = operator_profile.split([*second, *marks, record("stray", 50, 1), *first], 2, "spin_kernel")
    assert parts == [first, second]
    row = operator_profile.summarise(first, 2)
    assert (row["device_ms"], row["device_min_ms"], row["device_max_ms"], row["kernels"]) == (3.0, 2.0, 4.0, 1.0)
    uneven = operator_profile.summarise(second, 2)
    assert uneven["device_min_ms"] is None
    assert uneven["kernels"] == 1.0
    assert uneven["copies"] == 0.5
    assert operator_profile.split(marks[:2], 2, "spin_kernel") is None


def test_failures_are_rows(tmp_path: Path) -> None:
    spec, out = tmp_path / "bad.json", tmp_path / "rows.jsonl"
    block = {"families": {"none": ["no_such_model_anywhere"]}, "settings": [{**setting(), "batch": [1, 2]}]}
    spec.write_text(json.dumps({"name": "bad", "blocks": [block]}))
    done = subprocess.run(command(spec, out), env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    result = [row for row in rows.read(out) if row["kind"] != "session"]
    assert {row["status"] for row in result} == {"error"}
    assert all("no_such_model_anywhere" in row["reason"] for row in result)
    assert set(names(result).values()) == {1}


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
    assert results["warmup_calls"] == 4
    assert results["energy_j"] is None
    assert results["energy_reason"] == "no energy counter on this machine"
    assert results["graph_ms_reason"] == "the device has no graph capture"
    assert results["event_ms"] is None


def test_summary() -> None:
    spread = summary([float(i) for i in range(100, 0, -1)])
    assert spread == {"mean": 50.5, "median": 50.5, "min": 1.0, "p90": 91.0, "p99": 100.0}


def test_there_are_sweeps_to_expand() -> None:
    assert len(SWEEPS) >= 12


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_expansion_is_the_same_every_time(path: Path) -> None:
    spec = specs.load(str(path))
    serves = spec.get("kind") == serving_cases.KIND
    once, again = (
        serving_cases.units(spec, 5, set()) if serves else plan.lane(spec, 1.0, 5, set()).units for _ in range(2)
    )
    assert once == again
    total = sum(len(unit.cases) for unit in once)
    repeated = sum(len(unit.cases) for unit in once if unit.repeat)
    assert repeated >= 0.08 * (total - repeated)
    keys = Counter((specs.key_of(case), unit.repeat) for unit in once for case in unit.cases)
    assert set(keys.values()) == {1}


def test_products_and_limits() -> None:
    draw = {"num_attention_heads": [2, 4], "_head": [64]}
    variant = {"source": "hf", "family": "x", "config": {"model_type": "bert"}, "draw": draw}
    variant["product"] = {"hidden_size": ["num_attention_heads", "_head"]}
    block = {"variants": [variant], "settings": [{**setting(), "batch": [1, 8], "seq_len": [16, 512]}]}
    result = specs.cases({"name": "x", "blocks": [{**block, "max_tokens": 1000}]})
    assert {case["overrides"]["hidden_size"] for case in result} == {128, 256}
    assert all("_head" not in case["overrides"] for case in result)
    assert all(case["batch"] * case["seq_len"] <= 1000 for case in result)
    assert len(result) == 6


def test_operator_cases() -> None:
    spec = {"name": "ops", "kind": "op", "n": 300, "seed": 1}
    result = operator_cases.cases(spec)
    assert len(result) == 300
    assert result == operator_cases.cases(spec)
    assert {"conv2d", "linear", "sdpa"} <= {case["op"] for case in result}
    assert {case["direction"] for case in result} == {"forward", "backward"}


def test_rare_operators_are_drawn_and_run_where_a_spec_asks_for_them(tmp_path: Path) -> None:
    spec, out = tmp_path / "ops.json", tmp_path / "rows.jsonl"
    labels = {*RARE, "conv_wide_last", "conv_dense_last", "upsample_last"}
    request = {"name": "rare", "kind": "op", "n": 24, "seed": 3, "only": dict.fromkeys(sorted(labels), 1)}
    spec.write_text(json.dumps(request | {"dtypes": ["fp32", "bf16"], "max_flops": 1e8, "max_numbers": 1e6}))
    run(spec, out)
    result = [row for row in rows.merge(rows.read(out)) if row["kind"] == "op"]
    assert {row["status"] for row in result} == {"ok"}, result
    drawn = operator_cases.cases(request | {"n": 400})
    assert {case["family"] for case in drawn} == labels
    assert all(("last" in case["shape"]) == case["family"].endswith("_last") for case in drawn)
    for label in ("matmul_last", "convolve"):
        with pytest.raises(ValueError, match=label):
            operator_cases.cases(request | {"only": {label: 1}})
    assert all((case["dtype"] == "int4") == (case["family"] == "matmul_int4") for case in drawn)


def test_kernel_classes() -> None:
    assert kernel_class("sm90_xmma_gemm_bf16bf16_tilesize128") == "gemm"
    assert kernel_class("void at::native::vectorized_elementwise_kernel<4>") == "elementwise"
    assert kernel_class("flash_fwd_kernel") == "attention"
    assert kernel_class("sm80_xmma_fprop_implicit_gemm_tf32f32") == "conv"


def test_compiled_call(tmp_path: Path) -> None:
    """A compiled case is a row of its own, with the time that compiling took; an unknown runtime is a failed row."""
    spec = {
        "name": "compiled",
        "blocks": [
            {
                "variants": [{"family": "cnn", "source": "cnn", "draw": {"depth": [2], "filters": [4]}}],
                "settings": [
                    {"mode": "inference", "batch": 1, "dtype": "fp32", "runtime": ["eager", "compile", "jit"]}
                ],
            }
        ],
    }
    key = {case.get("runtime"): specs.key_of(case) for case in specs.cases(spec)}
    assert set(key) == {None, "compile", "jit"} and len(set(key.values())) == 3
    path, out = tmp_path / "compiled.json", tmp_path / "rows.jsonl"
    path.write_text(json.dumps(spec))
    subprocess.run([*command(path, out), "--case-limit", "200"], env=environment(), check=True, capture_output=True)
    result = {row["key"]: row for row in rows.merge(rows.read(out)) if row["repeat"] == 0}
    assert result[key["compile"]]["compile_s"] > 0 and "compile_s" not in result[key[None]]
    assert model_row(result[key["compile"]], "own")["runtime"] == "compile"
    assert "unknown runtime 'jit'" in result[key["jit"]]["reason"]


def test_like_another_spec() -> None:
    """`like` draws further members of another sweep's blocks, `times` as many."""
    base = specs.load(str(ROOT / "sweeps" / "h200_kinds_vision.yaml"))
    more = specs.load(str(ROOT / "sweeps" / "h200_kinds_vision_more.yaml"))
    assert more["name"] == "h200_kinds_vision_more" and len(more["blocks"]) == len(base["blocks"])
    keys = [{specs.key_of(case) for case in specs.cases(spec)} for spec in (base, more)]
    assert len(keys[1]) > 1.5 * len(keys[0]) and len(keys[1] - keys[0]) > len(keys[0])
