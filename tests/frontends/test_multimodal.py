"""Models that read images or sounds: FLOPs and parameters against the real model on the CPU, or a count by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from multimodal import SMALL, config, really

from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.frontends.huggingface import tiles as hf_tiles
from forerun.frontends.huggingface.config import load_config
from forerun.frontends.huggingface.sizes import image_size
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.workload import Workload

#: Settings under which a type is asked, where they are not the usual ones.
SETTINGS: dict[str, dict[str, Any]] = {
    "qwen3_vl": {"image_size": 96, "images": 2}, "qwen2_5_vl": {"image_size": 112}, "llama4": {"image_size": 112},
}  # fmt: skip
ONCE = ("gemma3_text", "llama4_text", "smolvlm", "audioflamingo3", "qwen3_asr", "granite_speech")


def graph(kind: str, **settings: Any) -> Graph:
    return load_graph(Workload(config(kind), **settings))


def check(kind: str, mode: str, rel: float = 1e-6) -> None:
    settings = {"mode": mode, "seq_len": 16, **SETTINGS.get(kind, {})}
    flops, parameters = really(config(kind), **settings)
    g = graph(kind, **settings)
    assert 2 * totals(g).macs == pytest.approx(flops, rel=rel) and g.parameters == parameters


@pytest.mark.parametrize("kind", SMALL)
def test_prefill_is_what_the_real_model_computes(kind: str) -> None:
    check(kind, "prefill")


@pytest.mark.parametrize("kind", [k for k in SMALL if k not in ONCE])
def test_decode_is_what_the_real_model_computes(kind: str) -> None:
    check(kind, "decode")


@pytest.mark.parametrize("kind", ["gemma3", "llama4", "voxtral"])
def test_training_is_what_the_real_model_computes(kind: str) -> None:
    check(kind, "training", rel=0.02)  # fused attention computes its scores again on the way back


def test_gemma_3_4b_prefill_is_within_two_percent_of_a_hand_count() -> None:
    """One image of 896 x 896: 64 x 64 patches in the tower, 256 tokens in the sequence."""
    published = {
        "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 256,
        "image_token_index": 262144,
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                        "num_hidden_layers": 34, "sliding_window": 1024},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
                          "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896, "patch_size": 14,
                          "vision_use_head": False},
    }  # fmt: skip
    patches, length = 64 * 64, 64 + 256
    tower = 27 * (2 * patches * (4 * 1152**2 + 2 * 1152 * 4304) + 4 * patches**2 * 1152) + 2 * patches * 588 * 1152
    projector = 2 * 256 * 1152 * 2560
    block = 2560 * (8 + 4 + 4) * 256 + 8 * 256 * 2560 + 3 * 2560 * 10240  # q, k, v; o; gate, up, down
    text = 34 * (2 * length * block + 4 * length**2 * 8 * 256)
    by_hand = tower + projector + text + 2 * 2560 * 262208
    g = load_graph(Workload(published, mode="prefill", dtype="bf16", seq_len=64))
    assert totals(g).flops == pytest.approx(by_hand, rel=0.02) and g.parameters == 4_300_079_472
    assert g.facts["image_tokens"] == 256 and g.facts["seq_len"] == 320


def test_tiles_are_those_of_the_image_processors() -> None:
    idefics = load_config(config("idefics3"), False)
    # The longer edge becomes 4 tiles: 4 x 4 and the overview; 4 x 3; 4 x 1. No smaller image has fewer.
    assert [hf_tiles.tiles(idefics, size, None) for size in ((56, 56), (900, 600), (60, 600))] == [17, 13, 5]
    assert hf_tiles.tiles(idefics, (500, 500), {"do_image_splitting": False}) is None
    assert hf_tiles.tiles(idefics, (500, 500), {"size": {"longest_edge": 2 * 364}}) == 5
    llama = load_config(config("llama4"), False)
    assert [hf_tiles.tiles(llama, size, None) for size in ((56, 56), (112, 112), (168, 224), (9, 9))] == [1, 5, 13, 1]
    with pytest.raises(ForerunError, match="tiles: some size in its config or preprocessor is wrong"):
        hf_tiles.tiles(llama, (56, 56), {"max_patches": 10**9})
    assert hf_tiles.tiles(load_config(config("gemma3"), False), (500, 500), None) is None


def test_the_notes_say_what_becomes_of_an_image() -> None:
    tiled = graph("smolvlm", mode="prefill", seq_len=16)
    assert tiled.facts["image_tokens"] == 17 * 4
    assert any("made into 17 tiles of 56 x 56 by its preprocessor" in note for note in tiled.notes)
    fixed = graph("gemma3", mode="prefill", seq_len=16, image_size=100)
    assert any("1 image of 100 x 100 pixels (resized to 56 x 56" in note for note in fixed.notes)
    padded = graph("mllama", mode="prefill", seq_len=16)
    assert any("16 tokens beside 1 image of 56 x 56 pixels (padded to 4 tiles of 56 x 56)" in n for n in padded.notes)


@pytest.mark.parametrize("kind", ["gemma3", "llama4", "qwen2_audio"])
def test_a_batch_is_that_many_samples(kind: str) -> None:
    one, three = (graph(kind, mode="prefill", seq_len=16, batch=batch) for batch in (1, 3))
    assert totals(three).macs == pytest.approx(3 * totals(one).macs, rel=0.01)


@pytest.mark.parametrize("kind", ["gemma3", "idefics3", "mllama", "llama4", "qwen3_vl"])
def test_without_images_the_text_alone_is_answered(kind: str) -> None:
    g = graph(kind, mode="prefill", seq_len=16, images=0)
    assert not any("vision" in op.scope for op in g.ops) and "predicted for the text alone: images is 0" in g.notes


def test_a_sound_is_part_of_the_prompt() -> None:
    g = graph("voxtral", mode="prefill", seq_len=16)
    assert g.facts["audio_tokens"] == 48 // 4 and g.facts["seq_len"] == g.facts["tokens_per_sample"] == 16 + 12
    assert any("16 of text and 12 tokens of an audio clip of 16 x 96, its usual length" in note for note in g.notes)
    assert any("audio_tower" in op.scope for op in g.ops)
    decode = graph("voxtral", mode="decode", seq_len=16)
    assert not any("audio_tower" in op.scope for op in decode.ops)


def test_the_shape_of_a_sound_can_be_given_and_left_out() -> None:
    two = graph("voxtral", mode="prefill", seq_len=16, input_shape={"input_features": (2, 16, 96)})
    assert two.facts["audio_tokens"] == 24
    longer = graph("qwen3_asr", mode="prefill", seq_len=16, input_shape={"input_features": (16, 2000)})
    assert longer.facts["audio_tokens"] == 2 * 130  # 13 tokens a second
    none = graph("voxtral", mode="prefill", input_shape={"input_ids": (16,)})
    assert not any("audio_tower" in op.scope for op in none.ops)
    with pytest.raises(ForerunError, match="the audio tower of voxtral could not be run on input_features"):
        graph("voxtral", mode="prefill", seq_len=16, input_shape={"input_features": (16, 95)})


def test_a_tower_that_cannot_be_run_is_left_out_and_said() -> None:
    settings = {**config("qwen2_audio"), "audio_config": {**config("qwen2_audio")["audio_config"], "num_mel_bins": 0}}
    g = load_graph(Workload(settings, mode="prefill", seq_len=16))
    assert any("predicted for the text alone: its audio is not counted" in note for note in g.notes)


def test_one_stack_is_folded_where_another_is_read_at_certain_places() -> None:
    """Qwen3-VL hands what some layers of its tower make to the first layers of the text."""
    settings = config("qwen3_vl")
    settings["text_config"]["num_hidden_layers"] = 8
    settings["text_config"].pop("layer_types", None)
    settings["vision_config"].update(depth=8, deepstack_visual_indexes=[2, 5])
    asked = {"mode": "prefill", "seq_len": 16, "image_size": 64}
    g = load_graph(Workload(settings, **asked))
    assert {op.scope.split(".")[1] for op in g.ops if op.repeat > 1} == {"language_model"}
    assert 2 * totals(g).macs == pytest.approx(really(settings, **asked)[0], rel=1e-6)


def test_a_segmenter_keeps_its_head_and_its_usual_size() -> None:
    from transformers import Mask2FormerConfig, SwinConfig

    swin = SwinConfig(image_size=64, patch_size=4, embed_dim=12, depths=[1, 1, 1, 1], num_heads=[1, 2, 3, 4],
                      window_size=4, out_features=["stage1", "stage2", "stage3", "stage4"])  # fmt: skip
    sizes = {"feature_size": 32, "mask_feature_size": 32, "hidden_dim": 32, "encoder_feedforward_dim": 64,
             "dim_feedforward": 64, "encoder_layers": 1, "decoder_layers": 2, "num_attention_heads": 4,
             "num_queries": 10}  # fmt: skip
    settings = Mask2FormerConfig(backbone_config=swin, **sizes).to_dict()
    settings["architectures"] = ["Mask2FormerForUniversalSegmentation"]
    flops, parameters = really(settings, image_size=(64, 96))
    small = load_graph(Workload(settings, image_size=(64, 96)))
    assert 2 * totals(small).macs == pytest.approx(flops, rel=1e-6) and small.parameters == parameters
    assert any("class_predictor" in op.scope for op in small.ops)
    assert image_size(load_config(settings, False), Workload(settings), None, [], 224) == (800, 1088)
    own = {"size": {"height": 384, "width": 384}}  # a preprocessor beside the config
    assert image_size(load_config(settings, False), Workload(settings), own, [], 224) == (384, 384)


class Careful(torch.nn.Module):
    """Checks its input's values before it works."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (x > -1).all():
            raise ValueError("values below -1")
        assert torch.isfinite(x).all()
        return self.layer(x)


def test_a_check_of_values_is_taken_as_passed() -> None:
    g = load_graph(Workload(Careful(), input_shape=(8,)))
    assert totals(g).macs == 8 * 4 and any("are assumed to pass (test_multimodal.py:" in note for note in g.notes)


def test_one_query_for_many_samples_is_no_fused_kernel() -> None:
    class Asks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = torch.nn.Parameter(torch.zeros(1, 2, 3, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.scaled_dot_product_attention(self.query, x, x)

    g = load_graph(Workload(Asks(), input_shape=(2, 5, 4), batch=3))
    assert totals(g).macs == 3 * 2 * 3 * 5 * (4 + 4) and g.tensors[g.outputs[0]].shape == (3, 2, 3, 4)
