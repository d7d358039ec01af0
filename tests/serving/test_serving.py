"""forerun.serving on real models: the answer, its views, and one sentence for what cannot be."""

from __future__ import annotations

import argparse
import io
import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

import forerun
from forerun.cli import run
from forerun.errors import ForerunError
from forerun.frontends.huggingface import catalog
from forerun.prediction import Estimate
from forerun.serving.answer import ServingPrediction
from forerun.serving.engines import replica
from forerun.serving.launch import bench_line, checkpoint_note, launch_line
from forerun.serving.physics import held
from forerun.serving.requests import Lengths, drawn
from forerun.views.serving import serving_view

MODEL = "Qwen/Qwen2.5-0.5B"
TRACE = drawn(4, Lengths(64), Lengths(4), rate=1.0)
FEW: dict[str, Any] = {"requests": 60, "input": 128, "output": 16}


@pytest.fixture(scope="module")
def answer() -> ServingPrediction:
    return forerun.serving(MODEL, "h100-sxm", rate=20, max_ttft_ms=500, max_itl_ms=30, **FEW)


def test_an_answer_has_every_number_with_its_interval(answer) -> None:
    for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"):
        parts = getattr(answer, name)
        assert 0 < parts.p50.value <= parts.p90.value <= parts.p99.value
        assert all(0 < e.low <= e.value <= e.high for e in (parts.mean, parts.p50, parts.p90, parts.p99))
    assert answer.itl_ms.mean.low < answer.itl_ms.mean.value < answer.itl_ms.mean.high
    assert answer.throughput.value == pytest.approx(20 * 16, rel=0.15)
    assert answer.throughput_per_device == answer.throughput and answer.devices == 1
    assert 0 < answer.goodput.value <= answer.requests_per_s.value * 1.001
    assert answer.energy_per_request_j.value == pytest.approx(
        answer.power_w.value / answer.requests_per_s.value, rel=0.01
    )
    usd_per_s = answer.cost_per_million_usd.value * answer.throughput.value / 1e6
    assert f"{usd_per_s * 3600:.2f} USD" in answer.assumptions["cost_per_million_usd"]
    assert answer.capacity.value > 20 and answer.verdicts["itl_ms"] in ("meets", "probably")
    assert answer.e2e_ms.mean.value > answer.ttft_ms.mean.value + 14 * answer.itl_ms.p50.value
    assert answer.launch == (
        "vllm serve Qwen/Qwen2.5-0.5B --dtype bfloat16 --max-num-batched-tokens "
        f"{answer.budgets['max_tokens']} --max-num-seqs {answer.budgets['max_sequences']}"
    )


def test_no_end_of_an_interval_is_beyond_physics() -> None:
    device = forerun.load_device("h100-sxm")
    one = replica(MODEL, device, "vllm", None)
    wide = Estimate(1.0, 1e-9, 1e9, "")
    names = [f"{name}.{part}" for name in ("ttft_ms", "itl_ms", "e2e_ms") for part in ("mean", "p50", "p90", "p99")]
    asked = drawn(20, Lengths(128), Lengths(16), rate=5.0)
    held_ = held(dict.fromkeys([*names, "power_w", "goodput", "requests_per_s"], wide), one, 2, asked)
    read_ms = 494e6 * 2 / 3.35e12 * 1e3  # 494 M weights of two bytes at 3.35 TB/s
    assert held_["itl_ms.p99"].low == pytest.approx(read_ms, rel=0.05)
    assert held_["ttft_ms.mean"].low == pytest.approx(2 * 494e6 * 128 / 989e12 * 1e3, rel=0.05)
    assert held_["power_w"].high == 2 * device.tdp_w
    assert held_["goodput"].high == held_["requests_per_s"].high == 5.0  # no more is answered than asked


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_the_verdict_first_and_every_interval(answer, width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    for block in serving_view(answer, width):
        console.print(block)
    lines = console.export_text().splitlines()
    verdict = next(
        at for at, line in enumerate(lines) if "TTFT of 500 ms for 90 % of the requests: p90 of TTFT" in line
    )
    table = next(at for at, line in enumerate(lines) if {"mean", "p50", "p90", "p99"} <= set(line.split()))
    assert verdict < table and "Under each number its 90 % interval" in lines[table - 1]
    below = next(line for line in lines[table:] if "…" in line)
    assert below.count("…") == 4  # mean and three quantiles
    shown = " ".join(" ".join(lines).split())
    assert "published runs of engines" in shown and "docs/SERVING.md" in shown
    assert "vllm bench serve --model Qwen/Qwen2.5-0.5B" in shown and "--request-rate 20" in shown


def test_checkpoints_with_quantised_weights_are_served() -> None:
    """Their dtype is what is published, of which no device has a peak."""
    own = catalog.architecture(MODEL)
    assert own is not None
    config = {**own.config, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    found = forerun.serving(config, "h200", rate=5, max_ttft_ms=500, **FEW)
    assert found.dtype == "published" and found.ttft_ms.mean.value > 0
    assert "weights as published" in str(found)


def test_json_and_back(answer) -> None:
    assert ServingPrediction.from_json(answer.to_json()) == answer


def test_it_shows_itself(answer) -> None:
    assert str(answer).startswith("Qwen/Qwen2.5-0.5B on 1 x h100-sxm, vllm: tp 1, bf16") and "TTFT" in str(answer)
    page = answer._repr_html_()
    assert "time to first token: arrival to first token" in page and page.count("<polyline") == 3
    assert "KV cache in use" in page and "waiting" in page


def test_more_than_it_can_answer_is_said() -> None:
    over = forerun.serving(MODEL, "l4", rate=2000, requests=200, input=512, output=128)
    assert any("more than" in note and "queue grows" in note for note in over.notes)
    assert over.requests_per_s.value < 2000


def test_replicas_engines_and_disaggregation_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["serving", MODEL, "--device", "h100-sxm", "--requests", "40", "--input", "256", "--output", "8", "--json"]
    for more, layout in (
        (["--rate", "30", "--count", "2", "--router", "least-loaded"], {"tp": 1, "replicas": 2}),
        (["--concurrency", "8", "--engine", "sglang", "--tp", "2"], {"tp": 2, "replicas": 1}),
        (["--rate", "30", "--disaggregate", "2:1"], {"tp": 1, "replicas": 1, "prefill_replicas": 2}),
        (["--concurrency", "4", "--pp", "2"], {"tp": 1, "pp": 2, "replicas": 1}),
        (["--concurrency", "8", "--static", "--engine", "tensorrt-llm"], {"tp": 1, "replicas": 1}),
    ):
        assert run([*common, *more]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["layout"] == layout and found["throughput"]["value"] > 0


def test_a_trace_from_a_file(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "requests.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{n / 10},{100 + n},5\n" for n in range(30)))
    command = ["serving", MODEL, "--device", "h100-sxm", "--trace", str(trace)]
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "trace requests.csv" in shown and "30 requests simulated" in shown and "Serve it: vllm serve" in shown
    trace.write_text("-3,10,10\n")
    assert run(command) == 2
    assert "line 1: a request cannot arrive at a negative time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "how much is asked of the engine"),
        ({"rate": 1, "concurrency": 2}, "give rate or concurrency, not both"),
        ({"rate": 0}, "rate must be a number above 0"),
        ({"rate": 1e-310}, "rate must be at least 1e-09 requests per second"),
        ({"rate": 1, "seed": -1}, "seed must be a whole number of 0 or more, got -1"),
        ({"rate": 1, "seed": 1.5}, "seed must be a whole number of 0 or more, got 1.5"),
        (
            {"rate": 1, "max_itl_ms": 0.01},
            "max_itl of 0.01 ms is below the bound of physics for .* reading the weights",
        ),
        ({"rate": 1, "max_ttft_ms": 1e-4}, "max_ttft of 0.0001 ms is below the bound of physics"),
        ({"rate": 1, "tp": 4, "count": 6}, "count must be a multiple of the 4 devices of a replica"),
        ({"rate": 1, "tp": 5}, "tp=5 does not divide the 14 attention heads"),
        ({"rate": 1, "engine": "vlm"}, "engine 'vlm' is not known. Did you mean vllm"),
        ({"rate": 1, "disaggregate": "2"}, "such as 2:1"),
        ({"rate": 1, "input": 10_000_000, "output": 10}, "takes 32,768 tokens at most, and one request has 10,000,010"),
        ({"rate": 1, "router": "any"}, "router 'any' is not known"),
        ({"rate": 1, "engine": "transformers"}, "engine 'transformers' is not known. Choose from vllm, sglang, tens"),
        ({"rate": 1, "engine": ["vllm"]}, "engine .* is not known"),
        ({"rate": 1, "dtype": []}, "dtype is a name, such as bf16 or fp8, got"),
        ({"rate": 1, "dtype": ""}, "dtype is a name"),
        ({"rate": 1, "prefix": ""}, "prefix must be a whole number"),
        ({"rate": 1, "confidence": "0.9"}, "confidence must be from 0.5 to 0.99"),
        ({"rate": 1, "disaggregate": 2}, "such as 2:1, got 2"),
        ({"rate": 1, "count": 10**9}, "count must be at most 4,096"),
        ({"trace": TRACE, "requests": -1}, "requests must be a whole number"),
        ({"trace": TRACE, "requests": "x"}, "requests must be a whole number"),
    ],
)
def test_what_cannot_be_is_one_sentence(settings, sentence) -> None:
    with pytest.raises(ForerunError, match=sentence) as found:
        forerun.serving(MODEL, "h100-sxm", **settings)
    assert "\n" not in str(found.value)


def test_more_devices_than_a_machine_without_a_network_are_refused() -> None:
    with pytest.raises(ForerunError, match="need a network between machines"):
        forerun.serving(MODEL, "l40s", rate=1, tp=16)


#: Options of each engine's server and benchmark, as its own documentation lists them (vLLM 0.11, SGLang 0.5,
#: TensorRT-LLM 1.0), of those that forerun may write.
_OPTIONS = {
    "vllm serve": "tensor-parallel-size pipeline-parallel-size data-parallel-size enable-expert-parallel quantization "
    "dtype max-num-batched-tokens max-num-seqs max-model-len",
    "python -m sglang.launch_server": "model-path tp-size pp-size ep-size quantization dtype chunked-prefill-size "
    "max-running-requests",
    "trtllm-serve": "backend tp_size pp_size ep_size max_num_tokens max_batch_size",
    "vllm bench serve": "model dataset-name ignore-eos random-input-len random-output-len num-prompts request-rate "
    "max-concurrency",
    "python -m sglang.bench_serving": "backend model dataset-name random-range-ratio random-input-len "
    "random-output-len num-prompts request-rate max-concurrency",
    "python -m tensorrt_llm.serve.scripts.benchmark_serving": "model backend dataset-name random-ids ignore-eos "
    "random-input-len random-output-len num-prompts request-rate max-concurrency",
}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("load", [{"rate": 2.5}, {"concurrency": 8}])
def test_commands_have_only_documented_options(engine: str, load: dict[str, float]) -> None:
    one = replica(MODEL, forerun.load_device("h100-sxm"), "vllm", "fp8", 2)
    asked = replace(one, one_stage=replace(one.one_stage, engine=engine), pp=2, ep=2).with_budgets(512, 64)
    bench = bench_line(asked, {"input": 100.0, "output": 10.0, **load}, 50)
    assert bench is not None and bench_line(asked, {"input": 1, "output": 1, "cv": 3, **load}, 5) is None
    for line in (launch_line(asked, {"replicas": 3}), bench):
        start = next(words for words in _OPTIONS if line.startswith(words + " "))
        parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
        for name in _OPTIONS[start].split():
            alone = name in ("enable-expert-parallel", "ignore-eos", "random-ids")
            parser.add_argument(f"--{name}", **({"action": "store_true"} if alone else {}))
        parser.add_argument("given", nargs="?")
        known = parser.parse_args(shlex.split(line.removeprefix(start)))
        assert MODEL in (known.given, getattr(known, "model", None), getattr(known, "model_path", None))


def test_a_short_cache_bounds_the_context_and_what_no_engine_runs_has_no_command() -> None:
    one = replica(MODEL, forerun.load_device("h100-sxm"), "vllm", None)
    small = replace(one, one_stage=replace(one.one_stage, kv_tokens=5003), model=replace(one.one_stage, kv_tokens=5003))
    assert launch_line(small, {}).endswith(" --max-model-len 4992") and "--max-model-len" not in launch_line(one, {})
    static = forerun.serving(MODEL, "h100-sxm", concurrency=4, static=True, **FEW)
    assert static.launch is None and static.check is None and "no engine runs it" in static.notes[-1]
    assert checkpoint_note("tensorrt-llm", "fp8") and checkpoint_note("vllm", "fp8") is None


def test_launch_lines_have_the_options_that_the_engines_document() -> None:
    one = replica(MODEL, forerun.load_device("h100-sxm"), "vllm", "fp8", 2)
    for engine, words in {
        "vllm": "vllm serve Qwen/Qwen2.5-0.5B --tensor-parallel-size 2 --pipeline-parallel-size 2 "
        "--data-parallel-size 3 --quantization fp8 --max-num-batched-tokens 512 --max-num-seqs 64",
        "sglang": "python -m sglang.launch_server --model-path Qwen/Qwen2.5-0.5B --tp-size 2 --pp-size 2 "
        "--quantization fp8 --chunked-prefill-size 512 --max-running-requests 64",
        "tensorrt-llm": "trtllm-serve Qwen/Qwen2.5-0.5B --backend pytorch --tp_size 2 --pp_size 2 "
        "--max_num_tokens 512 --max_batch_size 64",
    }.items():
        named = replace(one.one_stage, engine=engine)
        asked = replace(one, one_stage=named, model=named, pp=2).with_budgets(512, 64)
        assert launch_line(asked, {"replicas": 3}) == words
