"""Training and intervals on cards whose models nobody measured: what changes there, and what stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

import forerun
from forerun.predictors.laws.other_cards import OtherCards, cache_share, tried

MODEL = "cnn:depth=4,filters=32"
LAW = OtherCards(memory=3.0, winograd=0.5, energy=0.5, intervals={"training": (0.7, 1.5), "inference": (0.7, 1.5)})


def ask(device: Any, law: OtherCards, **settings: Any) -> forerun.Prediction:
    with tried(law):
        return forerun.predict(MODEL, device, batch=256, **settings)


@pytest.mark.parametrize(("device", "longer"), [("quadro-rtx-6000", True), ("h200", False), ("h200/1g.18gb", False)])
def test_training_moves_on_cards_without_rows_alone(device: str, longer: bool) -> None:
    law = OtherCards(memory=3.0)
    before, after = (ask(device, one, mode="training") for one in (OtherCards(), law))
    assert (after.device_ms.value > 1.2 * before.device_ms.value) == longer
    assert longer or after.to_dict() == before.to_dict()
    same = [ask(device, one).device_ms.value for one in (OtherCards(), law)]
    assert same[0] == same[1]  # inference stays as it is
    if longer:  # a small cache counts less where numbers are half as large
        half = [ask(device, one, mode="training", amp="fp16").device_ms.value for one in (OtherCards(), law)]
        assert 1 < half[1] / half[0] < after.device_ms.value / before.device_ms.value


def test_plain_fp32_convolutions_alone_are_faster() -> None:
    law = OtherCards(winograd=0.5)
    faster = {
        (device, dtype): ask(device, law, mode="training", dtype=dtype).device_ms.value
        / ask(device, OtherCards(), mode="training", dtype=dtype).device_ms.value
        for device, dtype in (("quadro-rtx-6000", "fp32"), ("quadro-rtx-6000", "fp16"), ("rtx-a6000", "fp32"))
    }  # fmt: skip
    assert faster["quadro-rtx-6000", "fp32"] < 0.9
    assert faster["quadro-rtx-6000", "fp16"] == faster["rtx-a6000", "fp32"] == 1.0


def test_ops_add_up_to_the_device_time() -> None:
    with tried(LAW):
        shown = forerun.explain(MODEL, "quadro-rtx-6000", batch=256, mode="training")
        asked = forerun.predict(MODEL, "quadro-rtx-6000", batch=256, mode="training")
    assert sum(op.time_ms for op in shown.ops) == pytest.approx(asked.device_ms.value, rel=0.02)


def test_intervals_are_those_of_held_out_cards() -> None:
    found = ask("quadro-rtx-6000", LAW, mode="training").device_ms
    wide = ask("quadro-rtx-6000", OtherCards(), mode="training").device_ms
    assert found.high / found.value >= 1.5 - 1e-9
    assert (found.high - found.low) / found.value < (wide.high - wide.low) / wide.value * 2
    mine = [ask("h200", one, mode="training").device_ms for one in (LAW, OtherCards())]
    assert mine[0] == mine[1]


def test_energy_of_other_generations_alone() -> None:
    law = OtherCards(energy=0.5)
    for device, factor in (("quadro-rtx-6000", 0.5), ("h100-sxm", 1.0), ("h200", 1.0)):
        before, after = (ask(device, one, mode="training").energy_j for one in (OtherCards(), law))
        assert before is not None and after is not None
        assert after.value == pytest.approx(factor * before.value)


def test_a_cache_that_is_not_known_is_that_of_its_generation() -> None:
    from forerun.device import load_device

    assert load_device("quadro-rtx-8000").l2_cache_mb is None
    assert 0.5 < cache_share(load_device("quadro-rtx-8000")) <= 1.0
    assert cache_share(load_device("h200")) == cache_share(load_device("rtx4090")) == 0.0
