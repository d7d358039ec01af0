"""`forerun evaluate --generations` on rows whose law is known."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forerun.api.generation import GenerationAnswers, generation
from forerun.data.store import Store
from forerun.device import load_device
from forerun.evaluate import generations
from forerun.measure.cases import workload_of
from forerun.predictors.laws.generation import GenerationLaw
from forerun.predictors.registry import load_predictor

Run = Callable[..., subprocess.CompletedProcess[str]]
#: Microseconds on the host and of small kernels on the device, and bytes of a logit.
LAW = GenerationLaw(
    {"gpu": {"call": 2500.0, "token": 1500.0, "layer": 90.0, "sample": 700.0, "beam": 900.0, "padded": 400.0}},
    {"token": 60.0, "sample": 200.0, "beam layer": 9.0}, {"greedy": 10.0, "sample": 40.0, "beam": 30.0},
)  # fmt: skip
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 4000, "max_position_embeddings": 256}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {
        "model_type": "llama",
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        **SIZES,
    },
    "phi": {"model_type": "phi", "num_hidden_layers": 6, "num_key_value_heads": 4, "intermediate_size": 256, **SIZES},
    "gpt2": {"model_type": "gpt2", "n_layer": 9, "n_embd": 64, "n_head": 4, "vocab_size": 4000, "n_positions": 256},
}
SETTINGS: list[dict[str, Any]] = [
    {"batch": 1, "new_tokens": 8}, {"batch": 4, "new_tokens": 24, "prompt": "padded"},
    {"batch": 2, "new_tokens": 16, "decoding": "sample"}, {"batch": 2, "new_tokens": 8, "decoding": "beam"},
]  # fmt: skip


def cases() -> list[dict[str, Any]]:
    same = {"kind": "model", "source": "hf", "mode": "generate", "dtype": "bf16", "seq_len": 32, "overrides": {}}
    return [{**same, "family": name, "name": name, "config": config, **setting}
            for name, config in MODELS.items() for setting in SETTINGS]  # fmt: skip


def rows(device_name: str, law: GenerationLaw, chosen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Generations that take what a law says."""
    device, out = load_device(device_name), []
    for place, case in enumerate(chosen):
        answers = replace(generation(workload_of(case), law).ask(load_predictor("default"), [device]))
        assert isinstance(answers, GenerationAnswers)
        memory, first = answers.question.memories([device])[0], float(answers.first_token_ms[0, 0])
        whole, tokens = float(answers.times.latency_ms[0, 0]), case["new_tokens"]
        on_gpu = not device.traits.is_host
        out.append({
            "row_id": f"{device_name}{place}", "dataset": "own", "device": device_name, "device_reported": device.name,
            "protocol": "forerun/2", "status": "ok", "model": case["name"], "source": "hf", "family": case["family"],
            "case": case, "case_key": f"case{place}", "repeat": 0, "mode": "generate", "dtype": case["dtype"],
            "batch": case["batch"], "tokens_out": tokens, "latency_ms": whole, "ttft_ms": first,
            "tpot_ms": (whole - first) / (tokens - 1),
            "device_ms": float(answers.times.device_ms[0, 0]) if on_gpu else None,
            "energy_j": float(answers.times.energy_j[0, 0]) if on_gpu else None, "memory_mb": memory.needed_mb,
            "memory_allocated_mb": memory.allocated_mb if on_gpu else None, "runtime": "eager", "extra": {},
        })  # fmt: skip
    return out


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Generations on an H200 that take what LAW says, beside one of which nothing but the reason is known."""
    store = Store(tmp_path_factory.mktemp("generations"), shipped=False)
    made = rows("h200", LAW, cases())
    failed = {**made[0], "row_id": "failed", "status": "oom", "reason": "out of memory", "latency_ms": None}
    store.append("models", [*made, failed])
    return store


def test_a_cpu_has_costs_and_a_process_of_its_own(tmp_path: Path) -> None:
    store, one = Store(tmp_path, shipped=False), [{**case, "dtype": "fp32"} for case in cases()[:4]]
    law = GenerationLaw({"cpu": {"token": 4000.0, "sample": 900.0}}, process_mb={"cpu": 300.0})
    store.append("models", rows("xeon-emr-2vcpu", law, one))
    measured = generations.measured(store)
    found = generations.fitted(measured)
    assert found.process_mb["cpu"] == pytest.approx(300.0, rel=0.02)
    for each in measured:
        assert each.predicted(found)["latency_ms"][0] == pytest.approx(each.value("latency_ms"), rel=0.02)
    powers = generations.with_intervals(found, generations.held_out(measured)).spread
    assert set(powers) == {"cpu"} and "energy_j" not in powers["cpu"]


def test_the_costs_of_the_loop_come_back(store: Store) -> None:
    found = generations.measured(store)
    assert len(found) == len(MODELS) * len(SETTINGS)
    law = generations.fitted(found)
    for one in found:
        for target, (value, low, high) in one.predicted(law).items():
            assert value == pytest.approx(one.value(target), rel=0.02), target
            assert low <= value <= high, target
    assert law.host_us["gpu"]["layer"] == pytest.approx(90.0, rel=0.2)
    assert law.held["sample"] == pytest.approx(40.0, abs=4)
    again = GenerationLaw(**json.loads(json.dumps(law.to_json())))
    assert again == law


def test_a_held_out_family_is_predicted_by_the_others(store: Store, run_forerun: Run) -> None:
    done = run_forerun("evaluate", "--generations", "--json", FORERUN_STORE=str(store.folder))
    lines = {line["what"]: line for line in json.loads(done.stdout)}
    whole = lines["latency_ms, gpu"]
    assert whole["n"] >= len(MODELS) * len(SETTINGS)
    own = [line for name, line in lines.items() if name.startswith("latency_ms")]
    assert len(own) > 3 and all(line["host probed"] < 0.7 * line["without the loop"] for line in own)
    assert whole["host probed"] < 0.12 and lines["energy_j, gpu"]["host probed"] < 0.15
    assert lines["memory_mb, gpu"]["mape"] < 0.03 and 0.85 < whole["interval_coverage"] < 0.95


def test_without_rows_it_says_which_sweep_to_run(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"no whole generations: forerun sweep sweeps/h200_generate.yaml"):
        generations.measured(Store(tmp_path, shipped=False))
