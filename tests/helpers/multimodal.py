"""Small configs of models that read images or sounds, as transformers itself writes them, and their real FLOPs."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from forerun.capture import torch_compat
from forerun.frontends.huggingface.config import load_config
from forerun.frontends.huggingface.graphs import builder
from forerun.frontends.huggingface.inputs import InputMaker
from forerun.frontends.huggingface.model_class import choose
from forerun.workload import Workload

torch_compat.prepare()

TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 300}  # fmt: skip
TOWER = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
SIGHT = {**TOWER, "image_size": 56, "patch_size": 14}
HEARING = {**TOWER, "intermediate_size": 192, "num_mel_bins": 16, "max_source_positions": 48}
QWEN_SIGHT = {"depth": 3, "hidden_size": 48, "intermediate_size": 96, "num_heads": 4, "out_hidden_size": 64}
QWEN_IDS = {"image_token_id": 290, "video_token_id": 291, "vision_start_token_id": 292, "vision_end_token_id": 293}
MROPE = {"rope_type": "default", "mrope_section": [2, 3, 3]}
CHUNKED = {**TEXT, "head_dim": 16, "intermediate_size": 64, "intermediate_size_mlp": 128, "num_local_experts": 4,
           "num_hidden_layers": 4, "interleave_moe_layer_step": 2, "attention_chunk_size": 32}  # fmt: skip

#: model_type -> the class that its config names, and the settings of its config.
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": ("Gemma3ForConditionalGeneration", {
        "text_config": {**TEXT, "head_dim": 16, "sliding_window": 32}, "image_token_index": 290,
        "vision_config": {**SIGHT, "model_type": "siglip_vision_model"}, "mm_tokens_per_image": 4}),
    "gemma3_text": ("Gemma3ForCausalLM", {**TEXT, "head_dim": 16, "sliding_window": 32}),
    "idefics3": ("Idefics3ForConditionalGeneration", {
        "text_config": {**TEXT, "model_type": "llama"}, "vision_config": SIGHT, "image_token_id": 290}),
    "smolvlm": ("SmolVLMForConditionalGeneration", {
        "text_config": {**TEXT, "model_type": "llama"}, "vision_config": SIGHT, "image_token_id": 290}),
    "mllama": ("MllamaForConditionalGeneration", {
        "text_config": {**TEXT, "num_hidden_layers": 5, "cross_attention_layers": [1, 3], "pad_token_id": 0,
                        "rope_scaling": {"rope_type": "default"}}, "image_token_index": 299,
        "vision_config": {**SIGHT, "attention_heads": 4, "num_hidden_layers": 3, "num_global_layers": 2,
                          "intermediate_layers_indices": [0, 1, 2], "vision_output_dim": 4 * 48}}),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", {
        "text_config": {**TEXT, "head_dim": 16, "rope_scaling": {**MROPE, "mrope_interleaved": True}},
        "vision_config": {**QWEN_SIGHT, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]},
        **QWEN_IDS}),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", {
        "text_config": {**TEXT, "rope_scaling": MROPE},
        "vision_config": {**QWEN_SIGHT, "window_size": 56, "fullatt_block_indexes": [1]}, **QWEN_IDS}),
    "llama4": ("Llama4ForConditionalGeneration", {
        "text_config": CHUNKED, "image_token_index": 290, "boi_token_index": 291, "eoi_token_index": 292,
        "vision_config": {**SIGHT, "intermediate_size": 192, "vision_output_dim": 64, "projector_input_dim": 64,
                          "projector_output_dim": 64}}),
    "llama4_text": ("Llama4ForCausalLM", CHUNKED),
    "qwen2_audio": ("Qwen2AudioForConditionalGeneration", {
        "audio_config": {"d_model": 48, "encoder_ffn_dim": 96, "encoder_layers": 2, "encoder_attention_heads": 4,
                         "num_mel_bins": 16, "max_source_positions": 50},
        "text_config": {**TEXT, "model_type": "qwen2"}, "audio_token_index": 290}),
    "voxtral": ("VoxtralForConditionalGeneration", {
        "audio_config": HEARING, "text_config": {**TEXT, "model_type": "llama"}, "audio_token_id": 290}),
    "audioflamingo3": ("AudioFlamingo3ForConditionalGeneration", {
        "audio_config": HEARING, "text_config": {**TEXT, "model_type": "qwen2"}, "audio_token_id": 290}),
    "qwen3_asr": ("Qwen3ASRForConditionalGeneration", {
        "audio_config": {"d_model": 48, "encoder_ffn_dim": 96, "encoder_layers": 2, "encoder_attention_heads": 4,
                         "num_mel_bins": 16, "downsample_hidden_size": 8, "output_dim": 64},
        "text_config": {**TEXT, "model_type": "qwen3", "head_dim": 16}, "audio_token_id": 290}),
    "granite_speech": ("GraniteSpeechForConditionalGeneration", {
        "text_config": {**TEXT, "model_type": "granite"}, "audio_token_index": 290, "has_lora_adapter": False,
        "encoder_config": {"feedforward_mult": 2, "hidden_dim": 32, "num_heads": 2, "dim_head": 16, "num_layers": 2,
                           "input_dim": 32, "context_size": 40, "output_dim": 20, "conv_kernel_size": 3},
        "projector_config": {"model_type": "blip_2_qformer", "hidden_size": 32, "encoder_hidden_size": 32,
                             "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}}),
    "prophetnet": ("ProphetNetForConditionalGeneration", {
        "vocab_size": 300, "hidden_size": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_encoder_layers": 2,
        "num_decoder_layers": 2, "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4}),
}  # fmt: skip


def config(kind: str) -> dict[str, Any]:
    """A small config, with every field that transformers writes."""
    from transformers import AutoConfig

    name, settings = SMALL[kind]
    return {**AutoConfig.for_model(kind, **settings).to_dict(), "architectures": [name]}


def really(settings: dict[str, Any], **workload: Any) -> tuple[int, int]:
    """FLOPs that PyTorch counts when the real model runs on the CPU, and its parameters."""
    from torch.utils.flop_counter import FlopCounterMode

    asked = Workload(settings, **workload)
    whole = load_config(settings, False)
    chosen = choose(whole, asked, "", [])
    arguments = InputMaker(whole, chosen, asked, "", None).arguments(builder(whole, chosen, asked))
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = chosen.model_class._from_config(load_config(settings, False), dtype=torch.float32, **eager).eval()
    call = {name: _tensor(argument) for name, argument in arguments.items()}
    extra: dict[str, Any] = {"use_cache": True} if asked.mode in ("prefill", "decode") else {}
    if extra and "logits_to_keep" in inspect.signature(model.forward).parameters:
        extra["logits_to_keep"] = 1
    with torch.set_grad_enabled(asked.mode == "training"):
        if asked.mode == "decode":
            call = _one_token(model(**call, **extra))
        with FlopCounterMode(display=False) as counted:
            out = model(**call, **extra)
            if asked.mode == "training":
                out.loss.backward()
    return counted.get_total_flops(), sum(p.numel() for p in model.parameters())


def _tensor(argument: Any) -> torch.Tensor:
    dtype = torch.int64 if argument.kind == "token" else torch.float32
    if argument.values is None:
        one = torch.ones(argument.shape, dtype=dtype) if argument.kind == "token" else torch.randn(argument.shape)
    else:
        one = torch.tensor(argument.values, dtype=dtype)
        one = one.expand(argument.shape) if one.dim() == 0 else one.reshape(argument.shape)
    return one if argument.joined else one[None]


def _one_token(prefilled: Any) -> dict[str, Any]:
    """The call that makes one token after a prompt."""
    from transformers.modeling_outputs import BaseModelOutput

    token = torch.ones(1, 1, dtype=torch.int64)
    encoded = getattr(prefilled, "encoder_last_hidden_state", None)
    if encoded is None:
        return {"input_ids": token, "past_key_values": prefilled.past_key_values}
    heard = BaseModelOutput(last_hidden_state=encoded)
    return {"decoder_input_ids": token, "encoder_outputs": heard, "past_key_values": prefilled.past_key_values}
