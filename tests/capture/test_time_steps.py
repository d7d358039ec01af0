"""Models that loop over their tokens: a long sequence is answered from short ones, exactly."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.frontends import load_graph
from forerun.frontends.huggingface import graphs as huggingface
from forerun.frontends.huggingface.frontend import HuggingFaceFrontend
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.graph.memory import simulate
from forerun.workload import Workload

MAMBA = {"model_type": "mamba", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 100, "state_size": 8}
RWKV = {"model_type": "rwkv", "hidden_size": 32, "attention_hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 1, "vocab_size": 100, "context_length": 4096}  # fmt: skip


def graph(config: dict[str, Any], **settings: Any) -> Graph:
    return load_graph(Workload(config, **settings))


@pytest.mark.parametrize(("config", "mode"), [(MAMBA, "prefill"), (RWKV, "inference")])
def test_a_long_sequence_from_short_ones_is_the_captured_one(
    config: dict[str, Any], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"mode": mode, "seq_len": 45, "batch": 2}
    whole = graph({**config, "bos_token_id": 1}, **settings)
    monkeypatch.setattr(huggingface, "MOST_CALLS", 50)
    extended = graph({**config, "bos_token_id": 2}, **settings)  # another config, so that no kept graph is read
    assert len(extended.ops) < len(whole.ops) / 1.5
    assert totals(extended) == totals(whole)
    assert sum(op.repeat for op in extended.ops) == sum(op.repeat for op in whole.ops)
    assert extended.facts["host_calls"] == whole.facts["host_calls"]
    assert extended.facts["python_calls"] == whole.facts["python_calls"]
    assert simulate(extended).allocated_mb == pytest.approx(simulate(whole).allocated_mb, rel=0.05)
    assert any("loops over its tokens one by one" in note for note in extended.notes)


def test_a_thousand_tokens_cost_no_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface, "MOST_CALLS", 50)
    g = graph(MAMBA, mode="prefill", seq_len=4000)
    assert len(g.ops) < 300 and sum(op.repeat for op in g.ops) > 4000


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_a_model_without_a_loop_is_captured_as_it_is(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
              "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 100}  # fmt: skip
    whole = graph({**config, "bos_token_id": 1}, mode=mode, seq_len=45)
    monkeypatch.setattr(huggingface, "MOST_CALLS", 10)
    again = graph({**config, "bos_token_id": 2}, mode=mode, seq_len=45)
    assert again.content_hash() == whole.content_hash() and again.notes == whole.notes


SWITCH = {"model_type": "switch_transformers", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": 14,
          "num_sparse_encoder_layers": 7, "num_decoder_layers": 1, "num_sparse_decoder_layers": 0, "num_experts": 2,
          "vocab_size": 100}  # fmt: skip


def test_a_loop_over_experts_is_none_over_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with many launches that are the same at every length is captured as it is, and counted once for that."""
    builds: list[Any] = []
    builder = huggingface.builder

    def counting(*args: Any) -> Any:
        build = builder(*args)

        def counted() -> Any:
            builds.append(args)
            return build()

        return counted

    monkeypatch.setattr(huggingface, "builder", counting)
    frontend, workload = HuggingFaceFrontend(), Workload(SWITCH, seq_len=45)
    whole = frontend.load(SWITCH, workload)
    directly = len(builds)
    # Less than the whole model launches, more than the folded one does.
    limit = sum(op.repeat for op in whole[0].ops) + whole[0].facts["host_calls"]["views"] // 2
    monkeypatch.setattr(huggingface, "MOST_CALLS", limit)
    again = frontend.load(SWITCH, workload)
    assert [g.content_hash() for g in again] == [g.content_hash() for g in whole]
    assert again[0].notes == whole[0].notes and any(op.repeat > 1 for op in again[0].ops)
    assert len(builds) == 2 * directly + 1  # one more, to find that a pass over few tokens launches as much
