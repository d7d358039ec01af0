"""measure, verify, sweep and data, end to end on this machine's CPU, through the command line."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import warm

from forerun import predict
from forerun._util.quantities import DURATION, quantity
from forerun.data.intake import to_core
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.measure import sweep
from forerun.measure.cases import case_of, workload_of
from forerun.measure.core import rows, specs
from forerun.measure.core.models import Built, optimizer_of
from forerun.measure.machine import this_device
from forerun.predictors.default.fit_host import probe_us
from forerun.workload import OPTIMIZERS, Workload

MODEL = "cnn:depth=2,filters=4,classes=10"
SPEC = """
name: tiny
seed: 3
blocks:
  - variants:
      - {family: cnn, source: cnn, draw: {depth: [2, 3, 4, 5], filters: [4]}}
    settings:
      - {mode: inference, batch: [1, 2], dtype: fp32}
  - variants:
      - {family: cnn, source: cnn, draw: {depth: [2], filters: [4]}}
    settings:
      - {mode: training, batch: 4, dtype: fp32, optimizer: sgd}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the test's own."""
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def forerun(*words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(["-m", "forerun", *words])


def commands_now() -> Iterator[bytes]:
    """The command lines of all processes of this machine."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield place.read_bytes()


def test_measure_stores_a_row_and_predict_answers_with_it(home: Path) -> None:
    done = forerun("measure", MODEL, "--batch", "4")
    assert done.returncode == 0, done.stderr
    assert "Latency" in done.stdout
    rows = Store(shipped=False).read("models")
    assert len(rows) == 1
    row = rows.iloc[0]
    assert row["model"] == MODEL
    assert row["latency_ms"] > 0
    assert row["memory_mb"] > 50
    assert row["graph_hash"]
    assert row["protocol"] == "forerun/2"
    extra = json.loads(row["extra"])
    assert extra["host_probe_before"]["launch_us"] > 0 and extra["host_probe_after"]["python_us"] > 0
    for column in ("energy_j", "graph_ms"):
        assert pd.isna(row[column]) == bool(extra.get(f"{column.removesuffix('_j')}_reason")), (column, extra)
    assert pd.isna(row["device_ms"])  # kernels are profiled by sweeps only
    answer = predict(MODEL, this_device(), batch=4)
    assert answer.basis == "measured"
    assert answer.latency_ms is not None
    assert answer.latency_ms.value == pytest.approx(row["latency_ms"])
    assert answer.latency_ms.low < answer.latency_ms.value < answer.latency_ms.high
    assert any("measured once on 20" in note for note in answer.notes)
    assert predict(MODEL, this_device(), batch=5).basis != "measured"
    assert predict(MODEL, this_device(), batch=4, predictor="roofline").basis == "roofline"
    assert predict("cnn:depth=2,filters=5,classes=10", this_device(), batch=4).basis != "measured"


@pytest.mark.parametrize("optimizer", [None, "adam"])
def test_the_default_optimizer_and_adam_are_measured(home: Path, optimizer: str | None) -> None:
    named = () if optimizer is None else ("--optimizer", optimizer)
    done = forerun("measure", MODEL, "--batch", "4", "--mode", "training", *named)
    assert done.returncode == 0, done.stderr
    assert Store(shipped=False).read("models")["optimizer"].tolist() == [optimizer or "sgd"]
    assert predict(MODEL, this_device(), batch=4, mode="training", optimizer=optimizer).basis == "measured"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_is_offered_for_measuring_and_keeps_what_is_predicted(name: str) -> None:
    command = predict(MODEL, "h200", batch=4, mode="training", optimizer=name).check
    assert command is not None and command.endswith(f"--mode training --optimizer {name}")
    case = case_of(Workload(MODEL, batch=4, mode="training", optimizer=name))
    built = Built(case, "cpu")
    used = optimizer_of(case, built.model, 1e-3)
    sum(p.sum() for p in built.model.parameters()).backward()
    used.step()
    stored = sum(t.numel() for state in used.state.values() for t in state.values() if t is not None and t.dim())
    weights = sum(p.numel() for p in built.model.parameters())
    assert stored == {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}[name] * weights


def test_a_busy_machine_is_named_and_its_row_does_not_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_BUSY_SHARE", "0")  # whatever others take is too much
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        shown = forerun("verify", MODEL, "--batch", "3")
        request = forerun("measure", MODEL, "--batch", "3", "--json")
    finally:
        other.kill()
        other.wait()
    assert shown.returncode == request.returncode == 0, shown.stderr + request.stderr
    assert "the machine was busy: other programs took" in " ".join(shown.stdout.split())
    row = json.loads(request.stdout)
    assert row["status"] == "busy" and 0 < row["others_share"] <= 1 and "the machine was busy" in row["reason"]
    stored = Store(shipped=False).read("models")
    assert stored["status"].tolist() == ["busy", "busy"] and stored["reason"].str.contains("other programs").all()
    assert predict(MODEL, this_device(), batch=3).basis != "measured"
    monkeypatch.setenv("FORERUN_BUSY_SHARE", "1")
    calm = forerun("verify", MODEL, "--batch", "3")
    assert calm.returncode == 0 and "busy" not in calm.stdout
    assert predict(MODEL, this_device(), batch=3).basis == "measured"


def test_verify_shows_both_and_the_error(home: Path) -> None:
    done = forerun("verify", MODEL, "--batch", "2", "--json")
    assert done.returncode == 0, done.stderr
    verified = json.loads(done.stdout)
    checks = {check["name"]: check for check in verified["checks"]}
    latency = checks["latency_ms"]
    assert latency["error"] == pytest.approx(latency["predicted"]["value"] / latency["measured"] - 1)
    assert latency["inside"] == (latency["predicted"]["low"] <= latency["measured"] <= latency["predicted"]["high"])
    assert (checks["energy_j"]["measured"] is None) == bool(checks["energy_j"]["reason"])
    assert verified["prediction"]["basis"] != "measured"
    shown = forerun("verify", MODEL, "--batch", "2", "--no-keep")
    assert "predicted" in shown.stdout
    assert "interval" in shown.stdout
    assert len(Store(shipped=False).read("models")) == 1


def test_a_killed_sweep_goes_on_without_loss_or_repeat(home: Path) -> None:
    spec, out = home / "tiny.yaml", home / "rows.jsonl"
    spec.write_text(SPEC)
    wanted = sweep.wanted(sweep.load(spec), 0)
    command = ["sweep", str(spec), "--out", str(out), "--device", "cpu", "--json"]
    with open(os.devnull, "w") as nowhere:
        child = warm.start(["-m", "forerun", *command], nowhere.fileno(), nowhere.fileno())
    until = time.monotonic() + 120
    while sum(row["kind"] == "model" for row in rows.read(out)) < 3 and time.monotonic() < until:
        time.sleep(0.1)
    child.kill()
    child.wait()
    while any(str(out).encode() in result for result in commands_now()):  # its processes die with it
        assert time.monotonic() < until
        time.sleep(0.02)
    before = [row for row in rows.read(out) if row["kind"] == "model"]
    assert 3 <= len(before) < len(wanted)
    done = forerun(*command)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["done"], summary["wanted"]) == (len(wanted), len(wanted))
    after = [row for row in rows.read(out) if row["kind"] == "model"]
    assert after[: len(before)] == before
    assert sorted((row["key"], row["repeat"]) for row in after) == sorted(wanted)
    store = Store(shipped=False)
    stored = store.read("models")
    assert sorted(zip(stored["case_key"], stored["repeat"], strict=True)) == sorted(wanted)
    assert stored["graph_hash"].notna().all()
    assert (stored["status"] == "ok").all()
    again = json.loads(forerun(*command).stdout)
    assert again["stored"].get("models", 0) == 0
    assert len(store.read("models")) == len(wanted)
    # What the store has needs no measuring elsewhere.
    done = to_core(store)
    assert {(row["key"], row["repeat"]) for row in done if row["kind"] == "model"} == wanted
    sessions = {row["session"] for row in done if row["kind"] == "session"}
    assert {row["session"] for row in done if row["kind"] != "session"} <= sessions  # and each has its device


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- a list", "not a sweep spec"),
        ("kind: opera", "kind must be model, op, curve, serving or tabular"),
        ("name: x", "needs blocks"),
        ("blocks: [{settings: []}]", "names no models"),
        ("blocks: [{families: {resnet: [resnet18]}}]", "has no settings"),
        ("blocks: [", "not a sweep spec"),
    ],
)
def test_a_bad_spec_is_one_sentence(tmp_path: Path, text: str, problem: str) -> None:
    spec = tmp_path / "bad.yaml"
    spec.write_text(text)
    with pytest.raises(ForerunError, match=problem):
        sweep.load(spec)


def test_times_are_read() -> None:
    assert [quantity(t, DURATION) for t in ("90", "90s", "20m", "1.5h")] == [90, 90, 1200, 5400]
    for wrong in ("", "soon", "-3m", "3 days"):
        with pytest.raises(ForerunError, match=r"is not a time such as 90s, 20m or 1\.5h"):
            quantity(wrong, DURATION)
    with pytest.raises(ForerunError, match="a time must be larger than 0"):
        quantity("0s", DURATION, positive=True)


@pytest.mark.parametrize(
    "workload",
    [
        Workload(MODEL, batch=3),
        Workload("unet:base=8,levels=2", batch=2, mode="training", optimizer="adamw", amp="bf16"),
        Workload("timm/resnet18", batch=8, dtype="fp16", input_shape=(3, 160, 160)),
        Workload("timm/resnet50?layers=[1,1,1,1]", mode="training", optimizer="momentum"),
        Workload("timm/repvgg_a0?reparam=true", amp="fp16"),
        *(Workload(MODEL, batch=4, mode="training", optimizer=name) for name in OPTIMIZERS),
    ],
)
def test_cases_and_workloads_are_two_ways(workload: Workload) -> None:
    assert workload_of(case_of(workload)) == workload


def test_catalogued_ids_are_measured_by_their_config() -> None:
    compiled = Workload(MODEL, runtime="compile")
    assert workload_of(case_of(compiled)) == compiled
    case = case_of(Workload("gpt2", mode="decode", seq_len=64, dtype="int8"))
    again = workload_of(case)
    assert (again.mode, again.seq_len, again.dtype, again.model["model_type"]) == ("decode", 64, "int8", "gpt2")
    assert specs.key_of(case) == specs.key_of(case_of(Workload("gpt2", mode="decode", seq_len=64, dtype="int8")))


def test_training_without_a_task_is_that_of_a_causal_language_model() -> None:
    """An encoder, too: the core trains it with a word at every place."""
    config = {"model_type": "roberta", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
              "intermediate_size": 64, "vocab_size": 1000, "max_position_embeddings": 34}  # fmt: skip
    case = {"kind": "model", "source": "hf", "name": "small", "config": config, "mode": "training", "batch": 2,
            "seq_len": 16, "dtype": "fp32", "optimizer": "adamw"}  # fmt: skip

    def words(case: dict[str, Any]) -> bool:
        g = load_graph(workload_of(case))
        return any(g.tensors[t].shape == (2 * 16, 1000) for op in g.ops if op.kind == "matmul" for t in op.outputs)

    assert words(case) and not words(case | {"task": "sequence-classification"})


def test_data_commands(home: Path) -> None:
    assert forerun("measure", MODEL, "--batch", "1").returncode == 0
    listed = forerun("data", "ls", "--json")
    assert {row["dataset"]: row["rows"] for row in json.loads(listed.stdout) if row["table"] == "models"}["own"] == 1
    request = forerun("data", "query", "select model, batch from models where dataset = 'own'", "--json")
    assert json.loads(request.stdout) == [{"model": MODEL, "batch": 1}]
    for name in ("out.parquet", "out.csv", "out.jsonl"):
        done = forerun("data", "export", str(home / name), "--where", "dataset = 'own'")
        assert done.returncode == 0, done.stderr
    assert len(pd.read_parquet(home / "out.parquet")) == len(pd.read_csv(home / "out.csv")) == 1
    lines: list[dict[str, Any]] = [json.loads(line) for line in (home / "out.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines if line["kind"] == "model"] == [
        specs.key_of(case_of(Workload(MODEL, batch=1)))
    ]
    wrong = {
        ("data", "query", "selec"): "the query failed",
        ("data", "export", str(home / "out.xlsx")): ".parquet, .csv or .jsonl",
        ("data", "export", str(home / "no" / "out.csv")): "there is no folder",
        ("data", "import", "tim", str(home)): "Did you mean timm",
        ("data", "import", "timm", str(home)): "does not contain the timm data",
        ("data", "import", "rows", str(home / "none.jsonl")): "there is no file",
        ("data", "import", "rows", str(home / "out.csv")): "contains no rows",
        ("sweep", str(home / "none.yaml")): "there is no sweep spec",
    }
    for words, problem in wrong.items():
        done = forerun(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert problem in done.stderr


def test_what_cannot_be_measured_is_refused_before_it_is_timed(tmp_path: Path) -> None:
    for work, problem in (
        (Workload("resnet18", mode="decode", seq_len=8), "not a language model"),
        (Workload(MODEL, input_shape=(3, 64, 64)), "gives the input"),
        (Workload(MODEL, runtime="cudagraph"), "every eager row has it"),
        (Workload(MODEL, runtime="tensorrt"), "choose from eager, compile"),
        (Workload("gpt2", mode="decode", seq_len=8, runtime="compile"), "decode step with runtime compile"),
        (Workload("gpt2", input_shape=(8,)), "takes a seq_len"),
        (Workload("resnet18", dtype="int8"), "language models only"),
    ):
        with pytest.raises(ForerunError, match=problem):
            case_of(work)
    spec = tmp_path / "odd.yaml"
    spec.write_text(SPEC.replace("optimizer: sgd", "optimizer: lion"))
    with pytest.raises(ForerunError, match="no optimizer 'lion'"):
        sweep.wanted(sweep.load(spec), 0)
    spec.write_text("blocks: [{families: [resnet18], settings: [{mode: inference, batch: 1, dtype: fp32}]}]")
    with pytest.raises(ForerunError, match="cannot be expanded"):
        sweep.wanted(sweep.load(spec), 0)


def test_an_encoder_is_trained_as_what_predict_takes_it_for() -> None:
    work = Workload("bert-base-uncased", mode="training", optimizer="adamw", seq_len=32)
    assert workload_of(case_of(work)).task == "text-classification"


def test_rows_of_another_device_do_not_count_as_done() -> None:
    from forerun.measure.core.worker import other_devices

    sessions = [
        {"kind": "session", "session": "a", "device": {"name": "NVIDIA H200"}},
        {"kind": "session", "session": "b", "device": {"name": "NVIDIA A100"}},
        {"kind": "session", "session": "c", "device": {"name": "NVIDIA H200, and more"}},
    ]
    assert other_devices(sessions, "NVIDIA H200") == {"b"}


def test_kernels_are_joined_within_a_device_only() -> None:
    sessions = [
        {"kind": "session", "session": s, "device": {"name": d}} for s, d in (("g", "GPU"), ("p", "GPU"), ("c", "CPU"))
    ]
    models = [{"kind": "model", "key": "k", "repeat": 0, "session": s, "status": "ok"} for s in ("g", "c")]
    lines = [
        {"kind": "kernels", "key": "k", "repeat": 0, "session": "p", "kernel_ms": 2.0},
        {"kind": "kernels", "key": "k", "repeat": 0, "session": "c", "kernel_ms": None, "kernel_ms_reason": "a CPU"},
    ]
    gpu, cpu = rows.merge([*sessions, *models, *lines])
    assert gpu["kernel_ms"] == 2.0
    assert cpu["kernel_ms"] is None


def test_rows_wait_for_their_kernels(tmp_path: Path) -> None:
    from forerun.data.intake import take_in

    case = {**case_of(Workload(MODEL)), "input_shape": [3, 32, 32]}
    lines = [
        {"kind": "session", "session": "t", "device": {"kind": "cuda", "name": "NVIDIA H200"}, "host": {}},
        {"kind": "model", "key": specs.key_of(case), "repeat": 0, "session": "t", "status": "ok", "case": case,
         "latency_ms": 1.0, "protocol": 2, "time": "2026-11-15"},
    ]  # fmt: skip
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    store = Store(tmp_path / "store", shipped=False)
    assert take_in([file], store, graphs=False) == {}
    line = {"kind": "kernels", "key": lines[1]["key"], "repeat": 0, "session": "t", "kernel_ms": 0.5, "protocol": 2}
    with file.open("a") as more:
        more.write(json.dumps(line) + "\n")
    assert take_in([file, file], store, graphs=False) == {"models": 1}
    assert list(store.read("models")["device_ms"]) == [0.5]


def test_a_case_that_is_measured_again_counts_as_its_repeat(tmp_path: Path) -> None:
    from forerun.data.intake import take_in

    case = {**case_of(Workload(MODEL)), "input_shape": [3, 32, 32]}
    files = []
    for session, ms in (("a", 1.0), ("b", 2.0)):
        lines = [
            {"kind": "session", "session": session, "device": {"kind": "cpu", "name": "some CPU"}, "host": {}},
            {"kind": "model", "key": specs.key_of(case), "repeat": 0, "session": session, "status": "ok", "case": case,
             "latency_ms": ms, "protocol": 2, "time": f"2026-11-15T0{ms:.0f}", "kernel_ms": None},
        ]  # fmt: skip
        files.append(tmp_path / f"{session}.jsonl")
        files[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    store = Store(tmp_path / "store", shipped=False)
    assert take_in([files[0]], store, graphs=False) == {"models": 1}
    assert take_in(files, store, graphs=False) == {"models": 1}
    assert take_in(files, store, graphs=False) == {"models": 0}
    assert store.read("models").set_index("latency_ms")["repeat"].to_dict() == {1.0: 0, 2.0: 1}


def test_host_probes_of_newer_and_older_rows_are_read() -> None:
    probes = [{"host_probe_before": {"launch_us": 8.0}}, {"pulse_before": {"launch_us": 9.0}}, {}]
    result = probe_us(pd.DataFrame({"extra": [*map(json.dumps, probes), None]}))
    np.testing.assert_array_equal(result, [8.0, 9.0, np.nan, np.nan])
