"""Without a dtype a checkpoint is answered as it is published: its dtype, its quantised weights, and a note."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_quantised import HEAD, LINEAR, LLAMA, stored
from web_server import Served

import forerun
from forerun.errors import ForerunError
from forerun.frontends import frontends, load_graph
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.measure.cases import case_of
from forerun.workload import Workload

DECODE: dict[str, Any] = {"mode": "decode", "seq_len": 8}
BF16 = {**LLAMA, "torch_dtype": "bfloat16"}
GPTQ = {**BF16, "quantization_config": {"quant_method": "gptq", "bits": 4}}


def saved(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    ("model", "dtype", "weights"),
    [
        ("meta-llama/Llama-3.1-8B", "bf16", None), ("facebook/opt-125m", "fp16", None), ("gpt2", "fp32", None),
        ("openai/gpt-oss-120b", "bf16", "mxfp4"), ("unsloth/gpt-oss-120b-BF16", "bf16", None),
        ("deepseek-ai/DeepSeek-V3", "bf16", "fp8"), ("deepseek-ai/DeepSeek-R1", "bf16", "fp8"),
        ("deepseek-ai/DeepSeek-V4-Flash", "bf16", "fp8+mxfp4"), ("moonshotai/Kimi-K2-Instruct", "bf16", "fp8"),
        ("Qwen/Qwen3-32B", "bf16", None), ("Qwen3-32B-FP8", "bf16", "fp8"), ("google/gemma-2-9b", "fp32", None),
        ("google/gemma-2-9b-it", "bf16", None), ("bert-base-uncased", "fp32", None), ("resnet50", "fp32", None),
        ("no/such-model", "fp32", None), (BF16, "bf16", None), (LLAMA, "fp32", None), (GPTQ, "bf16", "gptq"),
        ({**LLAMA, "dtype": "torch.float16"}, "fp16", None), ({**LLAMA, "torch_dtype": "evil"}, "fp32", None),
        ({**LLAMA, "torch_dtype": ["bfloat16"]}, "fp32", None),
        ({"model_type": "llava", "text_config": {"dtype": "bfloat16"}}, "bf16", None),
        ({**LLAMA, "quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}, "fp16", "nf4"),
        ({**LLAMA, "quantization_config": {"load_in_8bit": True}}, "fp16", "int8"),
        ({**BF16, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "bf16", "nvfp4"),
    ],
)  # fmt: skip
def test_the_default_is_what_the_checkpoint_is_published_in(model: Any, dtype: str, weights: str | None) -> None:
    for asked in (Workload(model), Workload(model, dtype="published"), Workload(model, 1, None)):  # type: ignore[arg-type]
        assert (asked.dtype, asked.weight_format) == (dtype, weights)


def test_every_name_of_the_catalogue_says_what_it_is_published_in() -> None:
    frontend = frontends()["huggingface"]
    for name in hf_catalog.known_names():
        found = (frontend.published(name) or "").split()
        assert found and found[0] in ("fp32", "fp16", "bf16") and found[1:] != ["unknown"], name


def test_a_dtype_that_is_given_is_as_it_was() -> None:
    asked = Workload("openai/gpt-oss-20b", dtype="bf16")
    assert asked.published is None and "published" not in asked.to_dict() and "published" not in asked.graph_settings
    frontend = frontends()["huggingface"]
    key = frontend.key(asked.model, asked)
    assert key is not None and "quantization_config" not in key["config"] and "reader" not in key
    assert "quantization_config" not in case_of(replace(asked, **DECODE))["config"]


def test_where_weights_stay_in_fp32_and_where_they_are_dequantised() -> None:
    assert Workload(BF16, amp="bf16").dtype == Workload(BF16, runtime="onnxruntime").dtype == "fp32"
    assert Workload(BF16, mode="training").dtype == "bf16"
    trained = Workload(GPTQ, mode="training")
    assert (trained.dtype, trained.weight_format) == ("bf16", None)


def test_settings_can_be_changed_and_written_down() -> None:
    asked = Workload(GPTQ, **DECODE)
    assert replace(asked, batch=4).weight_format == "gptq"
    assert replace(asked, dtype="fp16").published is None and replace(asked, mode="training").weight_format is None
    again = Workload(**{**json.loads(json.dumps(asked.to_dict())), "model": GPTQ})
    assert (again.dtype, again.weight_format) == ("bf16", "gptq")


def test_the_answer_says_so() -> None:
    found = forerun.predict(BF16, "l4", **DECODE)
    given = forerun.predict(BF16, "l4", dtype="bf16", **DECODE)
    assert found.latency_ms == given.latency_ms and found.memory_mb == given.memory_mb
    assert "dtype bf16: as the checkpoint is published; --dtype sets another" in found.notes
    assert not any("as the checkpoint is published" in note for note in given.notes)
    assert not any("published" in note for note in forerun.predict(LLAMA, "l4", **DECODE).notes)
    trained = forerun.predict(GPTQ, "l4", mode="training", seq_len=8)
    assert "the checkpoint's gptq weights are dequantised to bf16, as training needs them" in trained.notes


def test_quantised_weights_are_kept_and_a_given_dtype_dequantises_them() -> None:
    kept = load_graph(Workload(GPTQ, **DECODE))
    assert stored(kept)["int4"] == LINEAR and stored(kept)["bf16"] >= HEAD
    assert kept.facts["weight_format"]["format"] == "gptq"
    given = load_graph(Workload(GPTQ, dtype="bf16", **DECODE))
    assert set(stored(given)) == {"bf16"}
    assert "the checkpoint's gptq weights are dequantised: dtype bf16 was asked for" in given.notes


def test_experts_may_have_a_format_of_their_own() -> None:
    moe = {"model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
           "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
           "vocab_size": 100, "num_experts": 8, "num_experts_per_tok": 2, "torch_dtype": "bfloat16"}  # fmt: skip
    experts = 2 * 8 * 3 * 64 * 32
    fp4 = {"quant_method": "fp8", "expert_dtype": "fp4", "modules_to_not_convert": ["model.layers.*.mlp.gate"]}
    assert stored(load_graph(Workload({**moe, "quantization_config": fp4}, **DECODE)))["int4"] == experts
    mxfp4 = {"quant_method": "mxfp4",
             "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.gate", "lm_head"]}  # fmt: skip
    found = stored(load_graph(Workload({**moe, "quantization_config": mxfp4}, **DECODE)))
    assert found["int4"] == experts and set(found) == {"int4", "bf16"}


def test_recommend_tries_what_is_published(tmp_path: Path) -> None:
    model = saved(tmp_path, GPTQ)
    found = forerun.recommend(model, devices=["l4"], batches=[1], goal="latency", **DECODE)
    assert {c.dtype for c in found.rows} <= {"published", "fp32", "tf32", "fp16", "bf16"}
    assert found.considered >= 5
    assert any(note.startswith("dtype published: bf16 with linear weights in gptq") for note in found.notes)
    only = forerun.recommend(model, devices=["l4"], batches=[1], goal="latency", dtypes=["published"], **DECODE)
    assert {c.dtype for c in only.rows} == {"published"}
    frame = forerun.compare(model, ["l4"], **DECODE)
    assert list(frame["dtype"]) == ["published"]


def test_what_is_published_in_few_bits_is_not_measured() -> None:
    with pytest.raises(ForerunError, match=r"mxfp4 weights, which are not measured yet; choose a dtype: bf16"):
        case_of(Workload("openai/gpt-oss-20b", **DECODE))


def test_the_commands_say_so(tmp_path: Path, run_forerun: Any) -> None:
    model = saved(tmp_path, BF16)
    done = run_forerun("predict", model, "--device", "l4", "--mode", "decode", "--seq-len", "8")
    assert done.returncode == 0, done.stderr
    assert "batch 1, bf16" in done.stdout and "as the checkpoint is published" in done.stdout
    done = run_forerun("compare", model, "--devices", "l4,t4", "--mode", "decode", "--seq-len", "8")
    assert done.returncode == 0 and "bf16, 8 tokens, dtype as published" in done.stdout
    assert "t4 has no bf16 units; it can run fp32, fp16" in done.stdout


def test_the_server_says_so(served: Served) -> None:
    upload = served.ask("/v1/uploads", raw=json.dumps(BF16).encode(), X_File_Name="config.json").body["model"]
    for more in ({}, {"dtype": "published"}, {"dtype": None}):
        found = served.ask("/v1/predict", {"model": upload, "device": "l4", **DECODE, **more})
        assert found.status == 200 and found.body["workload"]["dtype"] == "bf16"
        assert any("as the checkpoint is published" in note for note in found.body["notes"])
    assert served.ask("/v1/predict", {"model": upload, "device": "l4", "dtype": "mxfp4"}).status == 422
