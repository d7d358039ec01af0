"""Vision-language models: images in the prompt, the vision tower, the merged sequence."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.errors import ForerunError
from forerun.frontends import find_frontend, load_graph
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.workload import Workload

LLAVA = "llava-hf/llava-1.5-7b-hf"
CLIP = {"model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4, "image_size": 56, "patch_size": 14, "projection_dim": 32}  # fmt: skip
TEXT = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 200}  # fmt: skip
SMALL = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": 150,
         "vision_config": CLIP, "text_config": TEXT, "vision_feature_layer": -2}  # fmt: skip
QWEN = {
    "model_type": "qwen2_vl", "image_token_id": 150, "video_token_id": 151, "vision_start_token_id": 152,
    "vision_end_token_id": 153,
    "text_config": {**TEXT, "model_type": "qwen2_vl_text",
                    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
    "vision_config": {"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 2,
                      "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
}  # fmt: skip


def graph(model: Any, **settings: Any) -> Graph:
    return load_graph(Workload(model, **settings))


def hand_count(text_tokens: int) -> float:
    """FLOPs of a prefill of LLaVA-1.5-7B with one image of 336 x 336: two per multiply-add, norms left out.

    The image is 24 x 24 = 576 patches of 14 x 14 pixels; the tower sees them and a class token.
    """
    tokens = 576 + 1
    width, wide, depth = 1024, 4096, 24
    patches = 2 * 576 * 3 * 14 * 14 * width
    tower = depth * (2 * tokens * (4 * width * width + 2 * width * wide) + 4 * tokens * tokens * width)
    projector = 2 * 576 * (width * 4096 + 4096 * 4096)
    length = text_tokens + 576
    block = 4 * 4096 * 4096 + 3 * 4096 * 11008  # q, k, v, o; gate, up, down
    attention = 4 * length * length * 4096 / 2  # causal: half of all pairs
    text = 32 * (2 * length * block + attention)
    head = 2 * 4096 * 32064  # the last token alone
    return patches + tower + projector + text + head


def test_llava_prefill_is_within_two_percent_of_a_hand_count() -> None:
    g = graph(LLAVA, mode="prefill", dtype="fp16", seq_len=64)
    assert g.facts["image_tokens"] == 576 and g.facts["seq_len"] == g.facts["tokens_per_sample"] == 640
    assert totals(g).flops == pytest.approx(hand_count(64), rel=0.02)
    assert any("640 tokens: 64 of text and 576 tokens of 1 image of 336 x 336" in note for note in g.notes)


def test_at_decode_the_images_are_in_the_cache_and_the_tower_does_not_run() -> None:
    g = graph(SMALL, mode="decode", seq_len=10)
    cache = sum(s.bytes * s.repeat for s in g.storages if s.role == "cache")
    assert g.facts["image_tokens"] == 16 and cache == 2 * 2 * (10 + 16) * 64 * 4  # layers, keys and values, tokens
    assert not any("vision" in op.scope for op in g.ops)
    assert any("vision" in op.scope for op in graph(SMALL, mode="prefill", seq_len=10).ops)


def test_images_and_their_size_change_the_sequence() -> None:
    one = graph(QWEN, mode="prefill", seq_len=12, image_size=56)
    assert one.facts["image_tokens"] == (56 // 28) ** 2
    two = graph(QWEN, mode="prefill", seq_len=12, image_size="56x84", images=2)
    assert two.facts["image_tokens"] == 2 * 2 * 3 and two.facts["seq_len"] == 24
    none = graph(SMALL, mode="prefill", seq_len=10, images=0)
    assert "image_tokens" not in none.facts and not any("vision" in op.scope for op in none.ops)
    assert "predicted for the text alone: images is 0" in none.notes


def test_batches_of_images_agree_with_a_capture_at_that_batch() -> None:
    three = graph(SMALL, mode="prefill", seq_len=10, batch=3)
    one = graph(SMALL, mode="prefill", seq_len=10)
    assert totals(three).flops == pytest.approx(3 * totals(one).flops, rel=1e-3)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_every_mode_runs_both_parts(mode: str) -> None:
    g = graph(SMALL, mode=mode, seq_len=10)
    assert any("vision" in op.scope for op in g.ops) and any("language" in op.scope for op in g.ops)
    assert "runs LlavaForConditionalGeneration, the class that the config names" in g.notes


def test_a_prompt_longer_than_the_context_is_refused() -> None:
    config = {**SMALL, "text_config": {**TEXT, "max_position_embeddings": 24}}
    with pytest.raises(ForerunError, match="takes at most 24 tokens; 26 were requested"):
        graph(config, mode="prefill", seq_len=10)


def test_image_settings_elsewhere_are_refused() -> None:
    with pytest.raises(ForerunError, match="give the input_shape"):
        graph("cnn:depth=1,filters=4", image_size=64)
    with pytest.raises(ForerunError, match="takes input_ids and no images"):
        graph({**TEXT}, image_size=64)
    with pytest.raises(ForerunError, match="image_size must be"):
        Workload("gpt2", image_size="1x2x3")


def test_text_models_keep_their_key() -> None:
    config = hf_catalog.architecture("gpt2").config  # type: ignore[union-attr]
    key = find_frontend("gpt2")[1].key("gpt2", Workload("gpt2"))
    assert key is not None and set(key) == {"config", "transformers", "torch"} and key["config"] == config
    assert "preprocessor" in (find_frontend(SMALL)[1].key(SMALL, Workload(SMALL)) or {})
