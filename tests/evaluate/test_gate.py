"""The gate on predictions: its frozen questions reach everywhere, and faults in the laws behind predictions stop it."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.api import questions
from forerun.device import load_device
from forerun.evaluate import stamp
from forerun.graph import cost
from forerun.graph.ir import Graph
from forerun.graph.memory import Memory
from forerun.predictors.laws import memory
from forerun.predictors.laws.host import HostCosts
from forerun.predictors.registry import saved_folder
from forerun.runtimes.registry import names, runtime
from forerun.workload import CALL_MODES, DTYPES

Run = Callable[..., Any]
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
gate = importlib.import_module("gate")
ROWS: list[dict[str, Any]] = gate.read_frozen()


def settings(name: str, usual: Any) -> set[Any]:
    return {row["settings"].get(name, usual) for row in ROWS}


def test_the_questions_reach_everywhere() -> None:
    assert len(ROWS) >= 400 and sum(bool(row["measured"]) for row in ROWS) >= 150
    assert settings("mode", "inference") == {*CALL_MODES, "generate"}
    # Serving engines are predicted and never started: they have no frozen answers.
    assert settings("runtime", "eager") == {name for name in names(measured=True) if not runtime(name).engine}
    assert settings("dtype", "fp32") >= set(DTYPES)
    assert settings("amp", None) == {None, "fp16", "bf16"} and settings("channels_last", False) == {False, True}
    devices = [load_device(name) for name in {row["device"] for row in ROWS}]
    assert {device.kind for device in devices} == {"gpu", "cpu", "soc", "tpu", "asic"}
    assert {device.vendor for device in devices if device.kind == "gpu"} >= {"NVIDIA", "AMD", "Intel"}
    assert len({device.architecture for device in devices if device.vendor == "NVIDIA"}) >= 6
    measured = {row["settings"].get("mode", "inference") for row in ROWS if row["measured"]}
    assert measured == {*CALL_MODES, "generate"}
    refused = [row for row in ROWS if row["answer"].get("refused")]
    assert 0 < len(refused) < len(ROWS) / 5
    assert gate.FROZEN.stat().st_size < 200_000


def test_answers_lie_near_what_was_measured() -> None:
    """Of rows that the weights were fitted to: far off here, they are nowhere near elsewhere."""
    known = [row for row in ROWS if "latency_ms" in row["measured"] and not row["answer"].get("refused")]
    inside = [row["answer"]["latency_ms"][1] <= row["measured"]["latency_ms"] <= row["answer"]["latency_ms"][2]
              for row in known]  # fmt: skip
    assert np.mean(inside) > 0.8
    found = gate.errors(ROWS, [row["answer"] for row in ROWS])
    times = {group: error for (group, name), error in found.items() if name in ("latency_ms", "device_ms")}
    assert len(times) >= 7 and all(error < 0.35 for error in times.values())
    assert all(error < 0.1 for (group, name), error in found.items() if name == "memory_mb" and "h200" in group)


#: Decode and prefill with attention, a network that the host paces, training: captured in seconds.
FEW = [
    row
    for row in ROWS
    if (row["model"] == "gpt2" and row["device"] in ("h200", "t4"))
    or (row["model"] == "cnn:depth=3,filters=32,classes=10" and row["device"] == "h200" and "predictor" not in row)
]  # fmt: skip


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, _own_folders: None) -> Any:
    return gate.Asking(tmp_path_factory.mktemp("gate"))


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    """Answers are remembered by question: those with a fault must not outlive their test."""
    caches = (questions._remembered, memory._simulated, memory._tight, memory._kept_reserves)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def problems(asking: Any) -> list[str]:
    return gate.check(FEW, [asking.answer(row) for row in FEW])


def test_what_is_not_changed_passes(asking: Any) -> None:
    assert len(FEW) >= 10
    assert problems(asking) == []


def lines_of(found: list[str], quantity: str) -> int:
    return sum(f"    {quantity}:" in line for line in found)


def attention_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    real = cost.LAWS["attention"]

    def doubled(op: Any, shapes: Any) -> cost.Cost:
        found = real(op, shapes)
        return dataclasses.replace(found, macs=2 * found.macs, flops=2 * found.flops)

    monkeypatch.setitem(cost.LAWS, "attention", doubled)


def launches_cost_a_fifth_more(monkeypatch: pytest.MonkeyPatch, share: float = 1.2) -> None:
    real = HostCosts.host_ms
    monkeypatch.setattr(HostCosts, "host_ms", lambda *given, **more: share * real(*given, **more))


def launches_cost_a_fifth_less(monkeypatch: pytest.MonkeyPatch) -> None:
    launches_cost_a_fifth_more(monkeypatch, 0.8)


def a_cache_counts_once_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    real = memory.simulate

    def twice(graph: Graph, *given: Any, **more: Any) -> Memory:
        kept = [storage for storage in graph.storages if storage.role == "cache"]
        return real(dataclasses.replace(graph, storages=[*graph.storages, *kept]), *given, **more)

    monkeypatch.setattr(memory, "simulate", twice)


FAULTS = (
    attention_counts_twice, launches_cost_a_fifth_more, launches_cost_a_fifth_less, a_cache_counts_once_too_often,
)  # fmt: skip


@pytest.mark.parametrize("fault", [None, *FAULTS], ids=lambda fault: fault.__name__ if fault else "no fault")
def test_the_command_fails_where_there_is_a_fault(
    fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make gate` over the few questions, in processes of its own as ever."""
    gate.write_frozen(FEW, tmp_path / "gate.json.gz")
    monkeypatch.setattr(gate, "FROZEN", tmp_path / "gate.json.gz")
    for name in ("CACHE", "STORE", "LIMIT_S"):  # the command sets its own
        monkeypatch.setenv(f"FORERUN_{name}", os.environ.get(f"FORERUN_{name}", "60"))
    monkeypatch.setattr(stamp, "is_current", lambda name: True)
    if fault:
        fault(monkeypatch)
    assert gate.main([]) == bool(fault)
    said = capsys.readouterr().out
    assert (f"{len(FEW)} of {len(FEW)} answers as frozen" in said) == (fault is None)
    if not fault:
        monkeypatch.setattr(stamp, "is_current", lambda name: name != "mlp")
        assert gate.old_notes() == [
            "the note on the held-out predictions of mlp is about other code or weights: make gate STAMP=1"
        ]


def test_it_fails_when_attention_counts_twice(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    attention_counts_twice(monkeypatch)
    found = problems(asking)
    with_attention = [row for row in FEW if row["model"] == "gpt2" and not row["answer"].get("refused")]
    assert lines_of(found, "flops") == len(with_attention) and not any(line.startswith("cnn") for line in found)


def test_it_fails_when_launches_cost_a_fifth_more(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launches_cost_a_fifth_more(monkeypatch)
    found = problems(asking)
    assert lines_of(found, "host_ms") == sum("host_ms" in row["answer"] for row in FEW)
    assert lines_of(found, "latency_ms") > 0


def test_it_fails_when_a_cache_counts_once_too_often(asking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a_cache_counts_once_too_often(monkeypatch)
    found = problems(asking)
    decoding = [row for row in FEW if row["settings"].get("mode") == "decode"]
    assert lines_of(found, "memory_allocated_mb") == lines_of(found, "memory_mb") == len(decoding) > 0


def test_errors_that_grow_are_found_and_errors_that_shrink_are_not() -> None:
    known = [row for row in ROWS if "latency_ms" in row["measured"] and not row["answer"].get("refused")]

    def nearer(row: dict[str, Any], share: float) -> dict[str, Any]:
        (was, *ends), real = row["answer"]["latency_ms"], row["measured"]["latency_ms"]
        return {**row["answer"], "latency_ms": [real + (1 - share) * (was - real), *ends]}

    assert gate.grown(known, [nearer(row, 0.5) for row in known]) == []
    farther = gate.grown(known, [nearer(row, -0.5) for row in known])
    assert len(farther) >= 7 and all("the mean error of latency_ms was" in line for line in farther)
    assert {line.split(" on ")[0] for line in farther} == {*CALL_MODES, "generate"}


def test_moves_are_of_the_devices_that_held_out_predictions_are_of() -> None:
    """A peak that was corrected on a device nobody measured says nothing of how well families were predicted."""
    first = next(row for row in ROWS if row["measured"] and row["device"] == "h200" and "predictor" not in row)
    then = {**first["answer"], "latency_ms": [first["answer"]["latency_ms"][0] / 1.25, 1.0, 2.0]}
    still = {**first, "then": first["answer"]}
    assert gate.moves([still], "default") == {}
    assert gate.moves([still, {**first, "then": then, "device": "mi300x", "measured": {}}], "default") == {}
    found = gate.moves([still, {**first, "then": then}], "default")
    assert found == {"latency_ms": {"mean": 0.125, "most": 0.25, "rows": 2}}
    assert gate.moves([{**first, "then": then}], "mlp") == {}


def test_a_batch_more_is_no_difference_and_a_refusal_is_one() -> None:
    was = {"fits": True, "largest_batch": 500, "flops": 10, "latency_ms": [1.0, 0.9, 1.2]}
    assert gate.moved(was, {**was, "largest_batch": 501, "latency_ms": [1.00001, 0.9, 1.2]}) == []
    assert gate.moved(was, {**was, "largest_batch": 503}) == ["largest_batch: 500 -> 503"]
    assert gate.moved(was, {**was, "latency_ms": [1.001, 0.9, 1.2]}) == [
        "latency_ms: [1.0, 0.9, 1.2] -> [1.001, 0.9, 1.2]"
    ]
    assert len(gate.moved(was, {"refused": True})) == 5


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The predictor mlp as `forerun train` left it, with the note that today's code made its held-out predictions."""
    folder = tmp_path / "own"
    shutil.copytree(str(saved_folder("mlp")), folder)
    stamp.write_stamp(str(folder))
    return folder


def test_evaluate_says_when_held_out_predictions_are_of_other_code(copied: Path, run_forerun: Run) -> None:
    def said() -> str:
        done = run_forerun("evaluate", str(copied), "--split", "random", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
        return done.stderr

    assert said() == ""
    stamp.write_stamp(str(copied), {"latency_ms": {"mean": 0.012, "most": 0.3, "rows": 9}})
    assert "its predictions moved: latency_ms 1.2% in the mean and 30.0% at most" in said()
    stamp.write_stamp(str(copied), {"intervals, refusals or fits": {"mean": 0.0, "most": 0.0, "rows": 9}})
    assert "its predictions moved: intervals, refusals or fits alone: forerun train" in said()
    description = json.loads((copied / "predictor.json").read_text())
    description["learned"]["losses_"] = [1.0]
    (copied / "predictor.json").write_text(json.dumps(description))  # the weights lie in another file
    found = said()
    assert "the weights of" in found and "nobody compared the two" in found and "forerun train mlp --out own" in found
    (copied / stamp.NAME).unlink()
    assert "nothing says which code made the held-out predictions of" in said()


def test_the_hash_follows_code_and_not_its_prose(copied: Path, tmp_path: Path) -> None:
    """A note outlives a comment; it does not outlive a change of a law."""
    from forerun._util.source_hash import source_hash

    first, second = tmp_path / "a.py", tmp_path / "b" / "a.py"
    second.parent.mkdir()

    def same(one: str, other: str) -> bool:
        first.write_text(one)
        second.write_text(other)
        return source_hash([first], first.parent) == source_hash([second], second.parent)

    law = "def law(x: float) -> float:\n    return 2 * x\n"
    assert same(law, 'def law(x: float)->float:\n    """Twice."""  # why\n\n    return (2*x)\n')
    assert not same(law, law.replace("2", "3"))
    assert not same(law, law.replace("law", "rule"))
    assert not same("x = 'a'", "x = b'a'") and not same("x = 1", "x = 1.0")
    behind = {path.name for path in stamp._modules_behind(type(stamp.load_predictor(str(copied))))}
    assert {"cost.py", "features.py", "mlp.py", "conformal.py", "memory.py", "onnxruntime.py", "kinds.py"} <= behind
    assert not {"encoder.py", "boosters.py"} & behind  # of other predictors


def test_shipped_predictors_note_what_made_their_held_out_predictions() -> None:
    assert gate.kept_predictors() == ["default", "dippm", "mlp", "regressors", "roofline", "trappm", "trees"]
    for name in gate.kept_predictors():
        assert stamp.made_by(name), name
