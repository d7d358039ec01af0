"""Relatives: families whose blocks are alike are held out together, in our rows and in published ones."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forerun.data import splits
from forerun.evaluate import full
from forerun.evaluate.held_out import groups_of
from forerun.evaluate.stored import stored_predictions
from forerun.frontends import load_graph
from forerun.graph.blocks import alike, block_of
from forerun.predictors.saved import SHIPPED
from forerun.training.published import other_families
from forerun.workload import Workload

Run = Callable[..., subprocess.CompletedProcess[str]]
ENCODER = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128,
           "vocab_size": 500}  # fmt: skip
DECODER = {**ENCODER, "num_key_value_heads": 4, "max_position_embeddings": 256}
BERT, VIT = "attention 1, elementwise 3, matmul 6, norm 2", "attention 1, elementwise 3, matmul 4, norm 2"


def block(model: Any, mode: str = "inference") -> str:
    return block_of(load_graph(Workload(model, batch=2, mode=mode, seq_len=None if isinstance(model, str) else 32)))


@pytest.mark.parametrize("other", ["roberta", "electra", "camembert", "xlm-roberta"])
def test_the_encoders_that_descend_from_bert_are_relatives(other: str) -> None:
    assert block({**ENCODER, "model_type": "bert"}) == BERT
    assert alike(BERT, block({**ENCODER, "model_type": other}))


@pytest.mark.parametrize("other", ["mistral", "qwen2", "olmo"])
def test_the_decoders_that_descend_from_llama_are_relatives(other: str) -> None:
    llama = block({**DECODER, "model_type": "llama"}, "prefill")
    assert alike(llama, block({**DECODER, "model_type": other}, "prefill"))
    assert not alike(llama, block({**ENCODER, "model_type": "bert"}))


def test_image_networks_are_not_all_of_one_kin() -> None:
    blocks = {
        name: block(f"timm/{name}") for name in ("resnet18", "resnet34", "vgg11", "mobilenetv2_100", "convnext_atto")
    }
    assert blocks["resnet18"] == blocks["resnet34"] == "conv 2, elementwise 3, norm 2"  # whatever its depth
    kin = {(a, b) for a in blocks for b in blocks if a < b and alike(blocks[a], blocks[b])}
    assert kin == {("resnet18", "resnet34")}


def test_a_block_does_not_depend_on_sizes_or_depth() -> None:
    small = block({**ENCODER, "model_type": "bert"})
    large = {**ENCODER, "model_type": "bert", "hidden_size": 256, "num_hidden_layers": 12, "intermediate_size": 999}
    assert block(large) == small


def rows(*lines: tuple[str, str, str, str]) -> pd.DataFrame:
    found = pd.DataFrame(lines, columns=["family", "model", "mode", "block"])
    return found.assign(runtime="eager", graph_hash=[f"{n:03}" for n in range(len(found))])


def test_families_are_joined_by_the_block_of_most_of_their_networks() -> None:
    table = rows(
        ("bert", "a", "inference", BERT), ("roberta", "b", "inference", BERT), ("vit", "c", "inference", VIT),
        ("mixed", "d", "inference", "conv 4"), ("mixed", "e", "inference", "conv 4"), ("mixed", "f", "inference", VIT),
        ("later", "g", "training", BERT),
    )  # fmt: skip
    assert splits.independent(table).tolist() == ["bert", "bert", "vit", "mixed", "mixed", "mixed", "later"]
    assert splits.by_name(table).tolist() == table["family"].tolist()
    # Without blocks, families are parted by their graphs alone.
    bare = table.drop(columns="block").assign(graph_hash=["1", "2", "1", "3", "4", "5", "6"])
    assert splits.independent(bare).tolist() == ["bert", "roberta", "bert", *["mixed"] * 3, "later"]


def test_relatives_among_published_rows_are_held_out_too() -> None:
    class Published:
        def __init__(self, table: pd.DataFrame) -> None:
            self.rows = table

        def take(self, chosen: np.ndarray) -> Published:
            return Published(self.rows[chosen])

    known: Any = Published(rows(("roberta", "roberta_base", "inference", BERT), ("vit", "vit_b", "inference", VIT)))
    asked = rows(("bert", "bert_base", "inference", BERT))
    assert other_families(known, asked).rows["family"].tolist() == ["vit"]
    assert other_families(known, asked, by_name=True).rows["family"].tolist() == ["roberta", "vit"]


def test_kept_predictions_are_of_joined_families_or_say_that_they_are_not(run_forerun: Run) -> None:
    kept = stored_predictions(SHIPPED / "default")
    if "block" not in kept:
        done = run_forerun("evaluate", "--groups")
        assert done.returncode == 2 and "tell no blocks" in done.stderr
        assert full.OLDER in full.notes(kept)
        return
    groups, named = (groups_of(kept, split) for split in ("family", "name"))
    assert 60 < groups.nunique() < 0.8 * named.nunique()
    together = kept.groupby(groups)["family"].agg(set)
    for family, kin in (("bert", {"roberta", "electra", "camembert", "xlm-roberta", "distilbert"}),
                        ("llama", {"mistral", "qwen2", "olmo"}), ("vit", {"deit"})):  # fmt: skip
        assert kin <= next(found for found in together if family in found)
    assert groups.value_counts(normalize=True).max() < 0.25  # no group is most of what there is
    done = run_forerun("evaluate", "--groups", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert len(shown) == groups.nunique() and sum(line["rows"] for line in shown) == len(kept)
    assert any("bert" in line["families"].split(", ") and "roberta" in line["families"] for line in shown)
