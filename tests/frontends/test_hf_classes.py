"""Which class of transformers runs: the one that the config names, at the size that its preprocessor gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.ir import Graph
from forerun.workload import Workload

TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
CLIP = {"model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": 16,
        "text_config": {"model_type": "clip_text_model", **TOWER, "vocab_size": 100},
        "vision_config": {"model_type": "clip_vision_model", **TOWER, "image_size": 32, "patch_size": 8}}  # fmt: skip
WAVE = {"model_type": "wav2vec2", **TOWER, "conv_dim": [32, 32], "conv_stride": [5, 2], "conv_kernel": [10, 3],
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "vocab_size": 40}  # fmt: skip
RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
          "layer_type": "basic", "out_features": ["stage2"]}  # fmt: skip
DETR = {"model_type": "detr", "architectures": ["DetrForObjectDetection"], "use_timm_backbone": False,
        "use_pretrained_backbone": False, "backbone": None, "backbone_config": RESNET, "d_model": 32,
        "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_queries": 10}  # fmt: skip
VIT = {"model_type": "vit", **TOWER, "image_size": 32, "patch_size": 8}


def graph(model: Any, **settings: Any) -> Graph:
    return load_graph(Workload(model, **settings))


def shapes(g: Graph, role: str = "input") -> list[tuple[int, ...]]:
    return [t.shape for t in g.tensors if g.storages[t.storage].role == role]


def test_clip_trains_both_towers() -> None:
    g = graph(CLIP, mode="training", seq_len=8, batch=4)
    backward = {op.scope.split(".")[0] for op in g.ops if op.phase == "backward"}
    assert {"text_model", "vision_model"} <= backward


def test_a_detector_keeps_its_head_and_its_usual_size() -> None:
    g = graph(DETR)
    assert any("class_labels_classifier" in op.scope for op in g.ops)
    assert "runs DetrForObjectDetection, the class that the config names" in g.notes
    assert any("800 x 1067 pixels assumed" in note for note in g.notes)
    assert (1, 3, 800, 1067) in shapes(g)


def test_a_preprocessor_beside_the_config_gives_the_size(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DETR))
    sizes = {"size": {"height": 128, "width": 160}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(sizes))
    assert (1, 3, 128, 160) in shapes(graph(str(tmp_path)))
    assert (1, 3, 64, 96) in shapes(graph(str(tmp_path), image_size=(64, 96)))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": {"height": 96, "width": 96}}))
    assert (1, 3, 96, 96) in shapes(graph(str(tmp_path)))  # and is part of what a kept graph is known by


def test_a_speech_recogniser_keeps_its_head() -> None:
    named = graph({**WAVE, "architectures": ["Wav2Vec2ForCTC"]}, seq_len=4000)
    bare = graph({**WAVE, "architectures": ["Wav2Vec2ForPreTraining"]}, seq_len=4000)
    assert any(op.scope == "lm_head" for op in named.ops) and not any(op.scope == "lm_head" for op in bare.ops)


def test_a_classifier_runs_as_named_and_a_task_still_decides() -> None:
    named = graph({**VIT, "architectures": ["ViTForImageClassification"]})
    assert any(op.scope == "classifier" for op in named.ops)
    assert not any(op.scope == "classifier" for op in graph({**VIT, "architectures": ["NoSuchClass"]}).ops)
    base = graph({**VIT, "architectures": ["ViTForImageClassification"]}, task="base")
    assert not any(op.scope == "classifier" for op in base.ops)
    with pytest.raises(ForerunError, match="transformers has no AutoModelForCTC for vit"):
        graph(VIT, task="ctc")


def test_one_tower_of_a_larger_model_is_a_model() -> None:
    tower = {"model_type": "blip_vision_model", **TOWER, "image_size": 32, "patch_size": 8}
    assert graph(tower).parameters > 0


def test_text_models_run_as_before() -> None:
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], **TOWER, "vocab_size": 100}
    g = graph(config, seq_len=8)
    assert not any("cls" in op.scope for op in g.ops) and g.notes == []
