"""gnn-llm: every stage for a few steps with a tiny random language model, what is kept, and hostile answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import forerun
from forerun.data.store import Store
from forerun.frontends import load_graph
from forerun.graph import description
from forerun.graph.profile import profile
from forerun.predictors.cases import TrainingCases
from forerun.predictors.published.gnn_llm import GnnLlmPredictor, language, nodes, prompts
from forerun.predictors.published.gnn_llm.mae import GraphEncoder, MaeSettings, pretrain
from forerun.training.gather import gather
from forerun.workload import Workload

WHERE = "device = 'h200' and model like 'cnn:depth=_,%' and dtype = 'fp32' and amp is null and batch in (1, 64)"
TINY = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "tie_word_embeddings": True,
}  # fmt: skip
SMALL = {"lm": "small", "small": TINY, "width": 32, "layers": 2, "soft_tokens": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def cases() -> TrainingCases:
    """Small networks in inference and training, as they were measured."""
    return gather(Store(), public=False, where=WHERE, operators_kept=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random language model with a tokenizer of its own, as transformers saves it."""
    found = language.small(["Device: h200. Latency in milliseconds 0123456789. FLOPs"] * 3, TINY)
    there = tmp_path_factory.mktemp("language") / "tiny"
    found.model.save_pretrained(there)
    found.tokenizer.save_pretrained(there)
    return there


def fitted(cases: TrainingCases, **settings: object) -> GnnLlmPredictor:
    given = {**SMALL, "mae_steps": 20, "text_steps": 12, "performance_steps": 160, "language_rate": 3e-3, **settings}
    return GnnLlmPredictor(**given).fit(cases)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def predictor(cases: TrainingCases) -> GnnLlmPredictor:
    return fitted(cases)


def test_every_stage_learns_and_what_is_kept_answers_the_same(
    predictor: GnnLlmPredictor, cases: TrainingCases, tmp_path: Path
) -> None:
    for stage, losses in predictor.losses_.items():
        few = max(1, len(losses) // 5)
        assert np.mean(losses[-few:]) < 0.95 * np.mean(losses[:few]), stage
    found = predictor.predict_cases(cases.models)
    assert found["predicted_latency_ms"].notna().mean() > 0.9  # the form of a number is what is learned first
    predictor.calibrate(cases.models.rows.assign(**found))
    predictor.save(tmp_path / "kept")
    again = GnnLlmPredictor.load(tmp_path / "kept")
    few = cases.models.take(np.arange(len(cases.models)) < 8)
    pd.testing.assert_frame_equal(again.predict_cases(few), predictor.predict_cases(few))

    answer = forerun.predict("cnn:depth=4,filters=16,classes=10", "h200", batch=64, predictor=again)
    assert answer.latency_ms.low <= answer.latency_ms.value <= answer.latency_ms.high
    with pytest.raises(forerun.ForerunError, match="knows h200 and no other device"):
        forerun.predict("cnn:depth=4,filters=16,classes=10", "a100", batch=64, predictor=again)
