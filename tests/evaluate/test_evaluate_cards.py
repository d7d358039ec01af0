"""`forerun evaluate --cards` on rows whose law is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from forerun.cli import run as forerun
from forerun.evaluate import cards
from forerun.predictors.laws.other_cards import OtherCards

NAMES = [
    "a100-sxm4-40gb", "titan-v", "titan-xp", "rtx2080ti", "rtx3090", "gtx1080ti", "a40", "rtx4090", "v100-pcie-32gb",
    "p100-pcie-16gb",
]  # fmt: skip


@pytest.fixture(scope="module")
def found() -> cards.Judged:
    """Steps that take as long as a law says, each card a little off."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({
        "device": np.repeat(NAMES, 12), "dataset": "zeus_training_energy", "family": "resnet", "model": "resnet50",
        "mode": np.tile(["training", "training", "inference"], 40), "batch": 32, "dtype": "fp32",
        "of_memory": rng.uniform(0.1, 0.5, 120), "of_plain": rng.uniform(0.0, 0.5, 120),
        "cache": np.repeat(np.linspace(0.2, 1.0, 10), 12),
    })  # fmt: skip
    law = OtherCards(memory=1.8, winograd=0.7)
    true = -cards.Judged(rows.assign(log_error=0.0)).corrected(law)
    card = np.repeat(rng.normal(0, 0.08, 10), 12) + rng.normal(0, 0.03, 120)
    trains = rows["mode"] == "training"
    power = np.where(trains & (rows["device"].isin(NAMES[-4:])), np.log(0.8), np.nan)
    return cards.Judged(rows.assign(log_error=np.where(trains, true, 0.0) + card, log_power=power))


def test_the_law_is_found_and_held_out_cards_are_near(found: cards.Judged) -> None:
    law = cards.fitted(found)
    assert law.memory == pytest.approx(1.8, abs=0.25) and law.winograd == pytest.approx(0.7, abs=0.15)
    assert law.energy == pytest.approx(0.8, abs=1e-3)
    shown, energy = cards.sections(found)
    steps = shown.table[(shown.table["card"] == "all") & (shown.table["mode"] == "training")].iloc[0]
    assert steps["mape"] < 0.12 < steps["before"]
    assert 0.7 < steps["interval_coverage"] < 1.0
    assert float(steps["width over error"]) < 6
    assert energy.table.iloc[-1]["power"] < 0.01
    untouched = shown.table[shown.table["mode"] == "inference"]
    assert (untouched["mape"] == untouched["before"]).all()


def test_every_card_weighs_the_same() -> None:
    names = pd.Series(["one"] * 90 + ["two"] * 10)
    errors = np.concatenate([np.full(90, 0.1), np.full(10, 0.4)])
    low, high = cards.interval(errors, names, 0.9)
    assert (low, high) == pytest.approx((np.exp(-0.4), np.exp(0.4)), rel=1e-3)


def test_without_published_sets_it_says_what_is_missing(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    assert forerun(["evaluate", "--cards"]) == 2
    assert "forerun data import" in capsys.readouterr().err
