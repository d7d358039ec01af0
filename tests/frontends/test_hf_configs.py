"""Configs from anywhere: what is wrong is one sentence, at once; what transformers itself saves is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.capture import torch_compat
from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.frontends.config_sizes import check_sizes
from forerun.workload import Workload

torch_compat.prepare()  # some tests import transformers themselves

LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "'num_hidden_layers' is 1000000000, and 512 is the most that forerun builds"),
        ({"num_hidden_layers": 1e9}, "'num_hidden_layers' is 1000000000.0"),
        ({"num_hidden_layers": 10**400}, "'num_hidden_layers' is 1000"),
        ({"hidden_size": 2**40}, "'hidden_size' is 1099511627776, and 2,147,483,647 is the most"),
        ({"hidden_size": 2**30, "intermediate_size": 2**30}, "parameters: some size in its config is wrong"),
        ({"num_hidden_layers": 500, "num_experts": 5000}, "500 layers of 5,000 experts"),
        ({"num_hidden_layers": "two"}, "the llama config is not valid"),
        ({"hidden_size": [64]}, "the llama config is not valid"),
        ({"hidden_size": {"a": 1}}, "the llama config is not valid"),
        ({"num_attention_heads": 0}, "llama"),
        ({"hidden_size": -64}, "llama"),
        ({"vocab_size": None}, "llama"),
        ({"model_type": ["a"]}, "model_type must be a name"),
        ({"model_type": {"a": 1}}, "model_type must be a name"),
        ({"model_type": None}, "model_type must be a name"),
        ({"model_type": "lama"}, "knows no model_type 'lama'. Did you mean"),
        ({"rope_parameters": "x"}, "llama"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_sentence_at_once(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ForerunError) as caught:
        load_graph(Workload({**LLAMA, **changes}, mode="prefill", seq_len=8))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"), ("{", "is not valid JSON"), ("[]", "has no model_type"),
        ("\x00\xff", "is not valid JSON"),
        ('{"model_type": "llama", "a": ' + '{"a": ' * 500 + "1" + "}" * 501, "nested"),
        ('{"model_type": "llava", "text_config": "x"}', "llava"),
        ('{"model_type": "llava", "vision_config": [1]}', "llava"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ForerunError) as caught:
        load_graph(Workload(str(tmp_path), seq_len=8))
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ForerunError):
        load_graph(Workload(str(tmp_path / "config.json")))


def test_a_mamba2_config_is_read_as_transformers_saves_it(tmp_path: Path) -> None:
    from transformers import Mamba2Config

    saved = Mamba2Config(hidden_size=64, num_heads=8, head_dim=16, num_hidden_layers=2, vocab_size=100, n_groups=1)
    saved.save_pretrained(tmp_path)
    assert "__float__" in (tmp_path / "config.json").read_text()
    assert load_graph(Workload(str(tmp_path), seq_len=16)).parameters > 0


def test_a_wave_model_trains() -> None:
    config = {"model_type": "wav2vec2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
              "intermediate_size": 64, "conv_dim": [32, 32], "conv_stride": [5, 2], "conv_kernel": [10, 3],
              "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}  # fmt: skip
    g = load_graph(Workload(config, mode="training", seq_len=16_000))
    assert {op.phase for op in g.ops} == {"forward", "backward", "optimizer"}


def test_a_saved_config_with_every_default_is_read(tmp_path: Path) -> None:
    from transformers import LlamaConfig

    text = LlamaConfig(**{k: v for k, v in LLAMA.items() if k != "model_type"}).to_json_string(use_diff=False)
    (tmp_path / "config.json").write_text(text)
    assert json.loads(text)["model_type"] == "llama"
    assert load_graph(Workload(str(tmp_path), seq_len=8)).parameters > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": float("nan")}, "llama"),
        ({"model_type": "mixtral", "num_local_experts": float("inf")}, "mixtral"),
        ({"rope_theta": {"__float__": []}}, "llama"),
    ],
)  # fmt: skip
def test_numbers_that_are_none_are_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ForerunError) as caught:
        load_graph(Workload({**LLAMA, **changes}, mode="prefill", seq_len=8))
    assert message in str(caught.value)


def test_a_class_may_be_called_as_a_count_is() -> None:
    check_sizes({"model_type": "vit", "label2id": {"stage": 819}, "id2label": {"819": "stage"}}, "config")


def test_a_preprocessor_that_is_nested_too_deeply_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    (tmp_path / "preprocessor_config.json").write_text("[" * 100_000)
    with pytest.raises(ForerunError, match="nested too deeply"):
        load_graph(Workload(str(tmp_path)))
