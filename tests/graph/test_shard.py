"""Sharding: the graphs of the devices add up to the whole, and exchange what Megatron-LM exchanges."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from forerun.errors import ForerunError
from forerun.frontends import load_graph
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.graph.kinds import COLLECTIVES
from forerun.graph.layout import Layout
from forerun.graph.memory import simulate
from forerun.graph.pipeline import stages
from forerun.graph.shard import shard
from forerun.graph.validate import validate
from forerun.workload import Workload

#: Small models of the families whose layers differ: grouped heads, fused projections, experts, an encoder, MLA.
MODELS = {
    "llama": ("meta-llama/Llama-3.2-1B", "decode"),
    "llama-prefill": ("meta-llama/Llama-3.2-1B", "prefill"),
    "gpt2": ("gpt2", "decode"),
    "bert": ("bert-base-uncased", "inference"),
    "qwen2-moe": ("Qwen/Qwen1.5-MoE-A2.7B", "decode"),
    "mixtral": ("mistralai/Mixtral-8x7B-v0.1", "decode"),
    "deepseek": ("deepseek-ai/DeepSeek-V2-Lite", "decode"),
}


@functools.cache
def graph(name: str, mode: str, **settings: Any) -> Graph:
    return load_graph(Workload(name, batch=2, dtype="bf16", mode=mode, seq_len=64, **settings))


def weights(one: Graph) -> float:
    return sum(s.bytes * s.repeat for s in one.storages if s.role == "parameter")


def exchanged(one: Graph) -> dict[str, int]:
    """How many collectives of each kind a call makes."""
    counts: dict[str, int] = {}
    for op in one.ops:
        if op.kind in COLLECTIVES:
            counts[op.kind] = counts.get(op.kind, 0) + op.repeat
    return counts


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_ranks_add_up_to_the_whole(name: str, tp: int) -> None:
    whole = graph(*MODELS[name])
    rank = shard(whole, Layout(tp=tp))
    validate(rank)
    # Norms and positions are on every device, routers and the latent keys of DeepSeek, too.
    held = {"gpt2": 0.03, "bert": 0.03, "deepseek": 0.015 * (tp - 1)}.get(name, 0.01)
    done = 0.035 * (tp - 1) if name == "deepseek" else 0.01
    assert totals(rank).flops * tp == pytest.approx(totals(whole).flops, rel=done)
    assert weights(rank) * tp == pytest.approx(weights(whole), rel=held)
    assert simulate(rank).allocated_mb < simulate(whole).allocated_mb / tp * 1.25


@pytest.mark.parametrize("name", MODELS)
def test_two_all_reduces_a_layer(name: str) -> None:
    """After attention and after the feed-forward part, and one for the divided table of words."""
    layers = {"llama": 16, "llama-prefill": 16, "gpt2": 12, "bert": 12, "qwen2-moe": 24, "mixtral": 32, "deepseek": 27}
    found = exchanged(shard(graph(*MODELS[name]), Layout(tp=2)))
    assert found["all_reduce"] == 2 * layers[name] + 1
    assert found.get("all_gather", 0) == (0 if name == "bert" else 1)  # logits


def test_training_exchanges_gradients_of_activations_too() -> None:
    whole = graph("meta-llama/Llama-3.2-1B", "training", optimizer="adamw")
    rank = shard(whole, Layout(tp=2))
    validate(rank)
    assert totals(rank).flops * 2 == pytest.approx(totals(whole).flops, rel=0.01)
    assert simulate(rank).allocated_mb == pytest.approx(simulate(whole).allocated_mb / 2, rel=0.05)
    found = [op for op in rank.ops if op.kind == "all_reduce" and len(rank.tensors[op.inputs[0]].shape) > 1]
    wide = sum(op.repeat for op in found if rank.tensors[op.inputs[0]].shape[-1] == 2048)
    assert wide == 2 * (2 * 16 + 1)  # forward and backward; beside them, those of the divided loss


def test_key_heads_are_held_by_several_devices_where_there_are_fewer() -> None:
    whole = graph("meta-llama/Llama-3.2-1B", "decode")  # 32 heads, 8 of keys and values
    rank = shard(whole, Layout(tp=16))
    attention = next(op for op in rank.ops if op.kind == "attention")
    queries, keys = (rank.tensors[t].shape[1] for t in attention.inputs[:2])
    assert (queries, keys) == (2, 1)
    caches = {s.bytes for s in rank.storages if s.role == "cache"}
    assert caches == {s.bytes // 8 for s in whole.storages if s.role == "cache"}


def test_experts_are_divided_whole() -> None:
    whole = graph("Qwen/Qwen1.5-MoE-A2.7B", "decode")
    rank = shard(whole, Layout(tp=2, dp=2, ep=4))
    expert = next(op for op in rank.ops if op.kind == "moe_matmul")
    assert expert.attrs["experts"] == 15 and rank.tensors[expert.inputs[1]].shape[0] == 15
    assert exchanged(rank)["all_to_all"] == 2 * 24  # to the experts and back, in every layer
    alone = shard(whole, Layout(tp=4, ep=4))  # tokens are on every device already
    assert "all_to_all" not in exchanged(alone)


def test_stages_share_the_layers() -> None:
    whole = graph("meta-llama/Llama-3.2-1B", "decode")
    parts = stages(whole, 4)
    for part in parts:
        validate(part)
    assert sum(op.repeat for part in parts for op in part.ops if op.kind == "attention") == 16
    assert sum(totals(part).flops for part in parts) == pytest.approx(totals(whole).flops, rel=0.01)
    assert [exchanged(part).get("send_recv", 0) for part in parts] == [0, 1, 1, 1]
    assert max(simulate(part).allocated_mb for part in parts) < 0.5 * simulate(whole).allocated_mb


def test_a_rank_scales_with_the_batch() -> None:
    whole = graph("meta-llama/Llama-3.2-1B", "decode")
    assert totals(shard(whole, Layout(tp=4)).at(32)) == totals(shard(whole.at(32), Layout(tp=4)))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tp": 3}, "tp=3 does not divide the 32 attention heads"),
        ({"pp": 17}, "pp=17 cuts .* of which it has 16"),
        ({"tp": 2, "ep": 2}, "has none"),
        ({"zero": 4}, "0 to 3"),
        ({"tp": 0}, "tp must be a whole number"),
        ({"tp": 4, "ep": 2}, "ep=2 must be a multiple of tp=4"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ForerunError, match=sentence):
        shard(graph("meta-llama/Llama-3.2-1B", "decode"), Layout(**settings))
