"""Runtimes of serving engines: what they make of a graph, whom they refuse, and what is predicted under them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import forerun
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.graph.validate import validate
from forerun.runtimes.registry import as_run
from forerun.workload import Workload

ENGINES = ("vllm", "sglang", "tensorrt-llm")
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 4000,
}  # fmt: skip


@pytest.fixture
def llama(tmp_path: Path) -> str:
    return _model(tmp_path)


def _model(folder: Path, **settings: Any) -> str:
    (folder / "config.json").write_text(json.dumps({**LLAMA, **settings}))
    return str(folder)


def _graph(model: str, mode: str, dtype: str = "bf16") -> Graph:
    return load_graph(Workload(model, batch=4, dtype=dtype, mode=mode, seq_len=300, runtime="vllm"))


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_a_layer_is_four_matmuls_attention_and_a_kernel_between_two_of_them(mode: str, llama: str) -> None:
    made = as_run(_graph(llama, mode), "vllm")
    validate(made)
    layer = [op for op in made.ops if op.repeat > 1]
    kinds = [op.kind for op in layer]
    assert kinds.count("matmul") == 4
    assert kinds.count("attention") == 1
    assert len(layer) <= 10
    assert all(a in ("matmul", "attention") or b in ("matmul", "attention") for a, b in itertools.pairwise(kinds))


def test_fusing_keeps_the_arithmetic_of_matmuls_and_moves_fewer_bytes(llama: str) -> None:
    captured = _graph(llama, "prefill")
    made = as_run(captured, "vllm")
    assert totals(made).macs == pytest.approx(totals(captured).macs)
    assert totals(made).bytes < totals(captured).bytes


def test_the_cache_is_read_once_where_it_lies(llama: str) -> None:
    """Eager PyTorch copies the whole cache for the sake of one token."""
    made = as_run(_graph(llama, "decode"), "vllm")
    attention = next(op for op in made.ops if op.kind == "attention" and op.repeat > 1)
    keys = made.tensors[attention.inputs[1]]
    assert made.storages[keys.storage].role == "cache"
    assert keys.shape == (4, 2, 301, 64)
    assert not any(op.kind == "copy" and op.name.endswith("cat") and op.repeat > 1 for op in made.ops)


def test_keys_are_not_copied_for_every_head_where_a_window_makes_eager_code_do_so(tmp_path: Path) -> None:
    mistral = _model(tmp_path, model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=128)
    made = as_run(_graph(mistral, "decode"), "sglang")
    attention = next(op for op in made.ops if op.kind == "attention")
    assert made.tensors[attention.inputs[1]].shape[1] == 2


def test_fp8_leaves_the_output_layer_and_casts_inputs_in_the_kernel_before(llama: str) -> None:
    made = as_run(_graph(llama, "decode", "fp8"), "vllm")
    weights = {op.scope: made.tensors[op.inputs[1]].dtype for op in made.ops if op.kind == "matmul"}
    assert weights.pop("lm_head") == "bf16"
    assert set(weights.values()) == {"fp8"}
    units = {op.attrs["unit"] for op in made.ops if op.kind == "matmul" and op.scope != "lm_head"}
    assert units == {"fp8"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_decode_step_is_faster_than_eager_and_slower_than_the_roofline(engine: str, llama: str) -> None:
    asked = {"batch": 16, "seq_len": 300, "mode": "decode", "dtype": "bf16"}
    found = forerun.predict(llama, "h200", runtime=engine, **asked)
    eager = forerun.predict(llama, "h200", **asked)
    assert 0 < found.latency_ms.value < eager.latency_ms.value
    assert found.latency_ms.low < found.latency_ms.value < found.latency_ms.high


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "training", "device": "h200"}, "modes prefill and decode"),
        ({"mode": "inference", "device": "h200"}, "modes prefill and decode"),
        ({"mode": "decode", "device": "xeon-8480c"}, "answered on GPUs"),
    ],
)
def test_what_an_engine_does_not_do_is_one_sentence(settings: dict[str, str], words: str, llama: str) -> None:
    device = settings["device"] if settings["device"] == "h200" else _cpu()
    with pytest.raises(ForerunError, match=words) as refused:
        forerun.predict(llama, device, mode=settings["mode"], runtime="vllm")
    assert "\n" not in str(refused.value)


def _cpu() -> str:
    from forerun.device import all_devices

    return next(one.id for one in all_devices() if one.kind == "cpu" and one.bandwidth_gbs and one.peak_tflops)


def test_engines_are_hinted_at_by_their_other_names() -> None:
    with pytest.raises(ForerunError, match="Did you mean tensorrt-llm"):
        forerun.predict("gpt2", "h200", mode="decode", runtime="trtllm")
