"""Encoder-decoders: prefill is the encoder and the first step, decode a step against both caches."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.frontends import load_graph
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.workload import Workload

SMALL = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
         "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 100}  # fmt: skip


def graph(model: Any, **settings: Any) -> Graph:
    return load_graph(Workload(model, **settings))


def test_t5_decode_is_within_two_percent_of_a_hand_count() -> None:
    """t5-base: 12 decoder layers of width 768, inner width 3072, a vocabulary of 32128, tied; 200 past tokens."""
    width, inner, past = 768, 3072, 200
    itself = 4 * width * width  # q, k, v, o
    cross = 2 * width * width  # q, o: keys and values of the encoder are in the cache
    layer = 2 * (itself + cross + 2 * width * inner) + 4 * (past + 1) * width + 4 * past * width
    by_hand = 12 * layer + 2 * width * 32128
    g = graph("t5-base", mode="decode", seq_len=past)
    assert totals(g).flops == pytest.approx(by_hand, rel=0.02)
    assert not any("encoder." in op.scope.replace("decoder.", "") for op in g.ops)


def test_whisper_decode_is_within_two_percent_of_a_hand_count() -> None:
    """whisper-small: 12 layers of width 768; the encoder's 1500 frames are in the cross-attention cache."""
    width, past, frames = 768, 100, 1500
    layer = 2 * (4 + 2 + 8) * width * width + 4 * (past + 1) * width + 4 * frames * width
    by_hand = 12 * layer + 2 * width * 51865
    g = graph("openai/whisper-small", mode="decode", seq_len=past)
    assert totals(g).flops == pytest.approx(by_hand, rel=0.02)
    cached = sum(s.bytes * s.repeat for s in g.storages if s.role == "cache")
    assert cached == 4 * width * (12 * 2 * (past + frames) + frames)  # keys and values; what the encoder put out


def test_whisper_prefill_runs_the_encoder_and_one_step() -> None:
    width, frames = 768, 1500
    stem = 2 * 3 * (3000 * 80 * width + frames * width * width)
    encoder = 12 * (2 * frames * 12 * width * width + 4 * frames * frames * width)
    decoder = 12 * (2 * 14 * width * width + 2 * frames * 2 * width * width + 4 * frames * width) + 2 * width * 51865
    g = graph("openai/whisper-small", mode="prefill")
    assert totals(g).flops == pytest.approx(stem + encoder + decoder, rel=0.02)
    assert g.facts["tokens_per_sample"] is None and not any("seq_len" in note for note in g.notes)


@pytest.mark.parametrize("kind", ["bart", "mbart", "pegasus", "marian", "m2m_100"])
def test_prefill_and_decode_of_the_bart_family(kind: str) -> None:
    config = {"model_type": kind, **SMALL, "decoder_vocab_size": 100, "pad_token_id": 0, "decoder_start_token_id": 1}
    prefill, decode = (graph(config, mode=mode, seq_len=16) for mode in ("prefill", "decode"))
    assert any(".encoder" in op.scope for op in prefill.ops) and not any(".encoder." in op.scope for op in decode.ops)
    assert prefill.facts["tokens_per_sample"] == 16 and decode.facts["tokens_per_sample"] == 1
    assert any("the encoder reads 16 tokens once" in note for note in prefill.notes)
    assert any("one step of the decoder after 16 tokens" in note for note in decode.notes)
    cached = sum(s.bytes * s.repeat for s in decode.storages if s.role == "cache")
    assert cached == 4 * 32 * (2 * 2 * (16 + 16) + 16)


def test_the_cache_grows_with_the_batch() -> None:
    config = {"model_type": "bart", **SMALL}
    one, three = (graph(config, mode="decode", seq_len=16, batch=b) for b in (1, 3))
    sizes = [sum(s.bytes for s in g.storages if s.role == "cache") for g in (one, three)]
    assert sizes[1] == 3 * sizes[0]
