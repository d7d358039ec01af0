"""Predictions for several devices that run a model together (tp, pp)."""

from __future__ import annotations

from typing import Any

import pytest

import forerun
from forerun import ForerunError, Prediction, Workload

MODEL = "meta-llama/Llama-3.2-1B"
CASE: dict[str, Any] = {"mode": "decode", "batch": 8, "seq_len": 64, "dtype": "bf16", "runtime": "cudagraph"}


def test_devices_share_memory_and_add_up_in_cost_and_power() -> None:
    one, two = (forerun.predict(MODEL, "h200", tp=tp, measured=False, **CASE) for tp in (1, 2))
    assert two.devices == 2 and two.workload["tp"] == 2
    assert two.memory_parts_mb["parameter"] == pytest.approx(one.memory_parts_mb["parameter"] / 2, rel=0.01)
    assert two.parameters == one.parameters and two.flops == pytest.approx(one.flops)
    assert 0 < two.exchange_ms.low <= two.exchange_ms.value <= two.exchange_ms.high < two.device_ms.value
    assert two.device_ms.value - two.exchange_ms.value < one.device_ms.value
    assert two.cost_usd.value / two.latency_ms.value == pytest.approx(2 * one.cost_usd.value / one.latency_ms.value)
    assert two.power_w.value < 2 * 700 and two.energy_j.value > one.energy_j.value / 2
    assert two.check is None and not two.mig_options and any("tp=2" in note for note in two.notes)
    assert Prediction.from_json(two.to_json()) == two


def test_stages_of_one_call_follow_each_other() -> None:
    one, two = (forerun.predict(MODEL, "h200", pp=pp, measured=False, **CASE) for pp in (1, 2))
    assert two.latency_ms.value > one.latency_ms.value
    assert two.latency_ms.value < 1.1 * one.latency_ms.value + two.exchange_ms.value
    assert two.memory_mb.value < 0.75 * one.memory_mb.value
    assert two.energy_j.value > one.energy_j.value  # one stage waits while the other works


def test_one_device_says_nothing_of_several() -> None:
    answer = forerun.predict(MODEL, "h200", measured=False, **CASE).to_dict()
    assert "devices" not in answer and "exchange_ms" not in answer and "tp" not in answer["workload"]


def test_equal_numbers_of_devices_in_other_layouts_are_told_apart() -> None:
    tp, pp = (forerun.predict(MODEL, "h200", measured=False, **{name: 2}, **CASE) for name in ("tp", "pp"))
    assert tp.latency_ms.value < pp.latency_ms.value


def test_a_table_has_the_same_numbers_and_the_reason_where_there_is_no_link() -> None:
    frame = forerun.predict_many([Workload(MODEL, tp=16, **CASE)], ["h200", "l4"])
    alone = forerun.predict(MODEL, "h200", tp=16, measured=False, host="reference", **CASE)
    for name in ("latency_ms", "energy_j", "cost_usd", "memory_mb", "power_w"):
        assert frame.loc[0, name] == pytest.approx(getattr(alone, name).value), name
    assert "need a network between machines" in frame.loc[1, "error"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"tp": 3}, "does not divide the 32 attention heads"), ({"pp": 0}, "pp must be a whole number of 1 or more")],
)
def test_what_cannot_be_is_refused_in_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ForerunError, match=sentence):
        forerun.predict(MODEL, "h200", **settings, **CASE)


def test_ops_are_explained_for_one_device() -> None:
    with pytest.raises(ForerunError, match="leave out tp and pp"):
        forerun.explain(MODEL, "h200", tp=2, **CASE)


@pytest.mark.parametrize(
    ("model", "device", "settings", "fits"),
    [
        ("meta-llama/Llama-3.1-405B", "h100-sxm", {"tp": 8}, False),
        ("meta-llama/Llama-3.1-405B", "h100-sxm", {"tp": 16}, True),
        ("meta-llama/Llama-3.1-405B", "h100-sxm", {"tp": 8, "pp": 2}, True),
        ("meta-llama/Llama-3.1-405B", "h200", {"tp": 4}, False),
        ("meta-llama/Llama-3.1-405B", "h200", {"tp": 8}, True),
        ("deepseek-ai/DeepSeek-V3", "h200", {"tp": 8, "dtype": "fp8"}, True),
    ],
)
def test_what_fits_in_practice_fits(model: str, device: str, settings: dict[str, Any], fits: bool) -> None:
    for batch in (1, 32):
        asked: dict[str, Any] = {"mode": "decode", "seq_len": 4096, "batch": batch, "dtype": "bf16", **settings}
        answer = forerun.predict(model, device, measured=False, **asked)
        assert answer.fit.fits is fits
