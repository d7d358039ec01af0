"""The law of pre-training is fitted to rows, judged without a model or a GPU, and says how wide its errors are."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pandas as pd
import pytest

from forerun.data.store import Store
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate import pretraining
from forerun.graph.layout import Layout
from forerun.predictors.laws.pretraining import Framework, Run, framework, step, work

TRUE = Framework({"bf16": 0.75}, 0.4, 0.5, 150.0, 5.0, 0.5, 1.0)


def made_rows() -> pd.DataFrame:
    """Steps as a framework with known constants would take them, with 3 % of noise."""
    lines, random = [], np.random.default_rng(0)
    for device in ("a100-sxm4-80gb", "h100-sxm", "h200"):
        for size in ("125m", "1b", "7b", "30b"):
            model = pretraining._mpt(size, 1e9)
            assert model is not None
            for seq_len in (1024, 8192, 32768):
                done = work(model, load_device(device), Run(Layout(dp=8, zero=3), 4, 4, seq_len))
                seconds = step(done, "bf16", TRUE).seconds * np.exp(random.normal(0, 0.03))
                known = dict(zip(pretraining._WORK, astuple(done), strict=True))
                lines.append({"framework": "llm-foundry", "device": device, "model": size, "precision": "bf16",
                              "seconds": seconds, "fits": True, **known})  # fmt: skip
    return pd.DataFrame(lines)


def test_a_fit_finds_the_constants_that_made_the_rows() -> None:
    found = pretraining.fitted(made_rows())
    assert found.efficiency["bf16"] == pytest.approx(0.75, rel=0.15)
    assert found.attention == pytest.approx(0.4, rel=0.15) and found.passes == pytest.approx(150, rel=0.3)


@pytest.mark.parametrize("part", ["model", "device"])
def test_what_is_held_out_is_predicted_better_than_by_one_ratio(part: str) -> None:
    judged = pretraining.held_out(made_rows(), part)
    law, ratio = ((judged["seconds"] / judged[name] - 1).abs().mean() for name in ("law", "one_ratio"))
    assert len(judged) == 36 and law < 0.06 < ratio
    table = pretraining.section(made_rows()).table
    assert set(table["held out"]) == {"model", "GPU"} and table["interval_coverage"].between(0, 1).all()


def test_shipped_constants_are_physical() -> None:
    for name in pretraining.SETS.values():
        by = framework(name)
        assert all(0 < one <= 1 for one in (*by.efficiency.values(), by.attention, by.experts, by.exposed))
        assert by.errors[0] < 1 < by.errors[1]


def test_an_empty_store_says_what_to_import(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(ForerunError, match="forerun data import llmfoundry_mfu"):
        pretraining.measured(Store(tmp_path_factory.mktemp("empty")))
