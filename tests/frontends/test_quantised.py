"""Weights in fewer bits: by dtype, by a checkpoint's quantization_config; fp8 arithmetic where the device has it."""

from __future__ import annotations

from typing import Any

import pytest

import forerun
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.ir import Graph
from forerun.graph.quantise import without_patterns
from forerun.workload import Workload

LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100}  # fmt: skip
PUBLISHED: dict[str, Any] = {**LLAMA, "torch_dtype": "bfloat16"}  # in bf16, beside what its weights are stored in
LINEAR = 2 * (4 * 64 * 64 + 3 * 64 * 96)  # weights of both layers
HEAD = 64 * 100


def graph(config: dict[str, Any], **settings: Any) -> Graph:
    return load_graph(Workload(config, **{"mode": "decode", "seq_len": 8, "dtype": "bf16", **settings}))


def stored(g: Graph) -> dict[str, int]:
    """Elements of all parameters by the dtype they are stored in."""
    out: dict[str, int] = {}
    seen = set()
    for t in g.tensors:
        if g.storages[t.storage].role == "parameter" and t.storage not in seen:
            seen.add(t.storage)
            size = 1
            for d in t.shape:
                size *= d
            out[t.dtype] = out.get(t.dtype, 0) + size * g.storages[t.storage].repeat
    return out


def weights_bytes(g: Graph) -> int:
    return sum(s.bytes * s.repeat for s in g.storages if s.role == "parameter")


@pytest.mark.parametrize(
    ("settings", "dtype"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, "int4"),
        ({"load_in_8bit": True}, "int8"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8"),
        ({"quant_method": "compressed-tensors", "ignore": ["lm_head"],
          "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}, "fp8"),
        ({"quant_method": "compressed-tensors",
          "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}, "int4"),
    ],
)  # fmt: skip
def test_a_quantised_checkpoint_is_read_as_it_is_stored(settings: dict[str, Any], dtype: str) -> None:
    g = graph({**PUBLISHED, "quantization_config": settings}, dtype=None)
    assert stored(g)[dtype] == LINEAR and stored(g)["bf16"] >= HEAD  # the output layer stays
    assert any(note.startswith("the config stores its linear weights by ") and dtype in note for note in g.notes)
    assert any(f"{dtype}: priced is" in note for note in g.notes)


def test_modules_that_are_left_out_stay() -> None:
    skip = {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["mlp", "lm_head"]}
    assert stored(graph({**PUBLISHED, "quantization_config": skip}, dtype=None))["int8"] == 2 * 4 * 64 * 64
    pattern = {"quant_method": "fp8", "ignore": ["re:.*layers.0.*"]}
    assert stored(graph({**PUBLISHED, "quantization_config": pattern}, dtype=None))["fp8"] == LINEAR // 2


def test_a_dtype_that_is_asked_for_wins_and_training_keeps_its_own() -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    assert stored(graph(config, dtype="int8"))["int8"] == LINEAR + HEAD
    trained = graph(config, mode="training", dtype="bf16")
    assert set(stored(trained)) == {"bf16"} and any("are dequantised to bf16" in n for n in trained.notes)


@pytest.mark.parametrize("settings", ["x", [1], {"quant_method": "nope"}, {"quant_method": "gptq", "bits": "many"}])
def test_an_unknown_format_is_one_sentence(settings: Any) -> None:
    with pytest.raises(ForerunError, match=r"quantization_config|config is not valid"):
        graph({**PUBLISHED, "quantization_config": settings}, dtype=None)


def test_4_bit_weights_are_priced_by_format_and_rows() -> None:
    """NF4 is unpacked before a matmul of many rows, multiplied in one kernel for few; other formats have their own."""
    prefill, decode = graph(LLAMA, mode="prefill", seq_len=320, dtype="int4"), graph(LLAMA, dtype="int4")
    assert any("weights are unpacked to half precision before an ordinary matmul" in n for n in prefill.notes)
    assert any("one kernel that takes as long as half precision does" in n for n in decode.notes)
    copies = [op for op in prefill.ops if op.kind == "copy" and prefill.tensors[op.inputs[0]].dtype == "int4"]
    assert copies and not [
        op for op in decode.ops if op.kind == "copy" and decode.tensors[op.inputs[0]].dtype == "int4"
    ]
    gptq = {**PUBLISHED, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    assert any("(Marlin and its kin)" in n for n in graph(gptq, mode="prefill", seq_len=320, dtype=None).notes)
    eight = {**PUBLISHED, "quantization_config": {"load_in_8bit": True, "quant_method": "bitsandbytes"}}
    found = graph(eight, dtype=None)
    assert any("LLM.int8()" in n for n in found.notes) and any(op.attrs.get("unit") == "int8" for op in found.ops)


@pytest.mark.parametrize(
    "settings", [{"load_in_8bit": True}, {"load_in_4bit": True}, {"quant_method": "gptq", "bits": 4}], ids=str
)
def test_a_quantised_checkpoint_grows_with_the_batch_and_names_one_kernel(settings: dict[str, Any]) -> None:
    config = {**PUBLISHED, "quantization_config": settings}
    small, large = (graph(config, mode="prefill", batch=b, dtype=None) for b in (8, 16))
    grown = small.at(16)
    assert [t.shape for t in grown.tensors] == [t.shape for t in large.tensors]
    assert [s.bytes for s in grown.storages] == [s.bytes for s in large.storages]
    assert sum(word in note for note in small.notes for word in ("priced is", "stands for")) == 1


def test_an_int4_prefill_takes_little_longer_than_half_precision() -> None:
    """It was predicted 14 times slower, as if a kernel for few rows ran it."""
    asked = {"mode": "prefill", "seq_len": 1024, "batch": 4, "measured": False}
    small = forerun.predict("meta-llama/Llama-3.2-1B", "h200", dtype="int4", **asked)
    half = forerun.predict("meta-llama/Llama-3.2-1B", "h200", dtype="bf16", **asked)
    assert half.device_ms.value < small.device_ms.value < 1.5 * half.device_ms.value


def test_fp8_halves_the_weights_and_casts_activations() -> None:
    half, eight = graph(LLAMA), graph(LLAMA, dtype="fp8")
    assert stored(eight)["fp8"] == LINEAR + HEAD
    assert weights_bytes(half) - weights_bytes(eight) == LINEAR + HEAD
    products = [op for op in eight.ops if op.kind == "matmul" and eight.tensors[op.inputs[1]].dtype == "fp8"]
    assert products and all(eight.tensors[op.inputs[0]].dtype == "fp8" for op in products)
    assert all(eight.tensors[op.outputs[0]].dtype == "bf16" for op in products)


def test_fp8_grows_with_the_batch_as_its_activations_do() -> None:
    one, four = (graph(LLAMA, mode="prefill", dtype="fp8", batch=b) for b in (1, 4))
    sizes = [sum(s.bytes for t in g.tensors if t.dtype == "fp8" and (s := g.storages[t.storage]).role == "activation")
             for g in (one, four)]  # fmt: skip
    assert sizes[1] == 4 * sizes[0]


def test_fp8_is_extrapolated_and_refused_where_the_device_has_none() -> None:
    settings: dict[str, Any] = {"mode": "decode", "seq_len": 8}
    with pytest.raises(ForerunError, match="a100-sxm4-40gb has no fp8 units"):
        forerun.predict(LLAMA, "a100-sxm4-40gb", dtype="fp8", **settings)
    half, eight = (forerun.predict(LLAMA, "h100-sxm", dtype=d, **settings) for d in ("bf16", "fp8"))
    width = [p.device_ms.high / p.device_ms.low for p in (half, eight)]
    assert width[1] > width[0]
    assert any("no model was measured in fp8" in note for note in eight.notes)
    with pytest.raises(ForerunError, match="fp8 weights cannot be trained"):
        Workload(LLAMA, dtype="fp8", mode="training")


def test_patterns_become_the_modules_that_they_mean() -> None:
    graph = load_graph(Workload("gpt2", mode="prefill", seq_len=8))
    words = without_patterns(["lm_head", "re:.*attn.*c_proj$", "re:(", "re:nothing"], graph)
    assert "lm_head" in words and len(words) > 1
    assert all(word == "lm_head" or word.endswith("c_proj") for word in words)
