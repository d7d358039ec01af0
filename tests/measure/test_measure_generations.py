"""Whole generations measured on a CPU: rows of the core, and the cases that they are made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forerun import ForerunError, Workload
from forerun.data.intake import tables_of
from forerun.measure.cases import case_of, workload_of
from forerun.measure.core import rows, specs
from forerun.measure.core.generation import CACHES, DECODINGS, PROMPTS
from forerun.measure.core.specs import USUAL_SETTINGS
from forerun.workload import BEAMS, GENERATION
from forerun.workload import CACHES as CACHE_NAMES
from forerun.workload import DECODINGS as DECODING_NAMES
from forerun.workload import PROMPTS as PROMPT_NAMES

ROOT = Path(__file__).parents[2]
LLAMA = {
    "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 200, "max_position_embeddings": 64,
}  # fmt: skip
T5 = {
    "model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 200,
    "decoder_start_token_id": 0,
}  # fmt: skip
#: No number of heads divides the width: building it fails.
BROKEN = {**LLAMA, "num_key_value_heads": 3}
SPEC = {
    "name": "tiny_generate",
    "blocks": [{
        "configs": {
            "small-llama": {"family": "llama", "config": LLAMA},
            "small-t5": {"family": "t5", "task": "seq2seq-lm", "config": T5},
            "broken": {"family": "broken", "config": BROKEN},
        },
        "settings": [
            {"mode": "generate", "batch": 2, "dtype": "fp32", "seq_len": 8, "new_tokens": 4,
             "decoding": ["greedy", "beam"], "prompt": "padded"},
            {"mode": "generate", "batch": 2, "dtype": "fp32", "seq_len": 8, "new_tokens": [1, 4], "cache": "static",
             "decoding": "sample"},
        ],
    }],
}  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("generations")
    spec, out = folder / "spec.json", folder / "rows.jsonl"
    spec.write_text(json.dumps(SPEC))
    command = ["--spec", str(spec), "--out", str(out), "--budget", "240", "--device", "cpu", "--no-host-probe"]
    subprocess.run(
        [sys.executable, "-m", "forerun.measure.core", *command, "--timing-share", "0.9"], check=True, timeout=400,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return rows.read(out)


def test_every_row_has_the_whole_its_first_token_and_each_further_one(measured: list[dict[str, Any]]) -> None:
    found = [row for row in measured if row["kind"] == "model" and row["case"]["name"] != "broken"]
    first_rows = [row for row in found if not row["repeat"]]
    assert len(first_rows) == 8 and {row["status"] for row in found} == {"ok"}
    for row in first_rows:
        tokens = row["case"]["new_tokens"]
        assert row["tokens"] == tokens and row["timed_calls"] >= 3 and row["warmup_calls"] == 2
        if tokens == 1:
            assert row["token_ms"] is None
        else:
            whole = pytest.approx(row["first_token_ms"] + (tokens - 1) * row["token_ms"], rel=1e-4)
            assert row["latency_ms"] == whole and row["latency_ms"] > row["first_token_ms"] > 0
        assert (row["memory"]["used_mb"] > 0 and row["energy_j"] is None) or row["power_w"] > 0
        alone = row["case"]["family"] == "llama"
        assert (row["bare_token_ms"] is not None) == alone and (alone or row["bare_token_reason"])


def test_a_model_that_fails_is_a_row_and_the_others_go_on(measured: list[dict[str, Any]]) -> None:
    broken = [row for row in measured if row["kind"] == "model" and row["case"]["name"] == "broken"]
    assert broken and all(row["status"] == "error" and row["reason"] for row in broken)


def test_rows_become_columns_of_the_store_and_workloads(measured: list[dict[str, Any]]) -> None:
    found = tables_of(measured, "own")["models"]
    row = next(row for row in found if row["case"]["name"] == "small-t5" and row["case"].get("decoding") == "beam")
    assert row["mode"] == "generate" and row["tokens_out"] == 4 and row["seq_len"] == 8
    assert row["latency_ms"] > row["ttft_ms"] > 0 and row["tpot_ms"] > 0
    again = workload_of(row["case"])
    assert (again.mode, again.new_tokens, again.decoding, again.prompt) == ("generate", 4, "beam", "padded")
    assert again.cache == "dynamic" and again.task == "seq2seq"


def test_the_words_of_the_core_are_those_of_a_workload() -> None:
    """The core runs where the rest of forerun is not installed, so it has lists of its own."""
    assert (tuple(DECODINGS), PROMPTS, tuple(CACHES)) == (DECODING_NAMES, PROMPT_NAMES, CACHE_NAMES)
    assert {name: usual for name, usual in GENERATION.items() if usual} == {
        name: usual for name, usual in USUAL_SETTINGS.items() if name != "runtime"
    }
    assert DECODINGS["beam"]["num_beams"] == BEAMS


@pytest.mark.parametrize("settings", [{}, {"decoding": "sample", "cache": "static"}, {"prompt": "padded", "batch": 4}])
def test_cases_and_workloads_are_two_ways(settings: dict[str, Any]) -> None:
    asked = Workload("gpt2", mode="generate", dtype="bf16", seq_len=32, new_tokens=8, **settings)
    case = case_of(asked)
    assert not any(case.get(name) == usual for name, usual in GENERATION.items())  # the usual ones are left out
    back = workload_of(case)
    assert {n: getattr(back, n) for n in GENERATION} == {n: getattr(asked, n) for n in GENERATION}
    assert back.seq_len == 32 and case_of(asked)["new_tokens"] == 8


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        ("resnet18", {}, "is not a language model: it has no generate mode"),
        ("bert-base-uncased", {}, "is an encoder and writes no tokens: it has no mode generate"),
        ("gpt2", {"amp": "bf16", "dtype": "fp32"}, "a generation under autocast cannot be measured yet"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(model: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ForerunError, match=words):
        case_of(Workload(model, mode="generate", new_tokens=4, **{"dtype": "bf16", **settings}))


@pytest.mark.parametrize(("name", "least"), [("h200_generate", 120), ("cpu_generate", 60)])
def test_the_sweeps_cover_families_settings_and_lengths(name: str, least: int) -> None:
    found = specs.cases(specs.load(str(ROOT / "sweeps" / f"{name}.yaml")))
    assert len(found) >= least and {case["mode"] for case in found} == {"generate"}
    assert len({case["family"] for case in found}) >= 12
    for setting, usual in (("decoding", "greedy"), ("prompt", "full"), ("cache", "dynamic")):
        words = {case.get(setting, usual) for case in found}
        assert words == set({"decoding": DECODINGS, "prompt": PROMPTS, "cache": CACHES}[setting])
    assert not any(case.get("prompt") == "padded" and case["batch"] == 1 for case in found)


def test_a_generation_is_measured_and_verified(run_forerun: Any, tmp_path: Path) -> None:
    words = ("gpt2", "--mode", "generate", "--seq-len", "4", "--new-tokens", "2", "--dtype", "fp32", "--json")
    environment = {"FORERUN_STORE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = run_forerun("verify", *words, **environment)
    found = json.loads(done.stdout)
    checks = {one["name"]: one for one in found["checks"]}
    for name in ("latency_ms", "first_token_ms", "token_ms"):
        assert checks[name]["measured"] > 0 and checks[name]["predicted"]["value"] > 0
    assert found["measurement"]["case"]["new_tokens"] == 2
