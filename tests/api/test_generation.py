"""Whole generations through the public functions: sums of their calls, settings, refusals."""

from __future__ import annotations

from typing import Any

import pytest

import forerun
from forerun import ForerunError, Prediction, Workload
from forerun.api.generation import generation
from forerun.predictors.laws import generation as law

GPT2: dict[str, Any] = {"device": "h200", "dtype": "bf16", "mode": "generate", "seq_len": 64}


def answer(model: str = "gpt2", **settings: Any) -> Prediction:
    return forerun.predict(model, **{**GPT2, "new_tokens": 32, **settings})


def test_a_generation_takes_longer_than_its_calls_one_by_one() -> None:
    """The loop's Python comes on top of the prefill and of every step."""
    p = answer()
    prefill = forerun.predict("gpt2", "h200", dtype="bf16", mode="prefill", seq_len=64, measured=False)
    step = forerun.predict("gpt2", "h200", dtype="bf16", mode="decode", seq_len=80, measured=False)
    calls = prefill.latency_ms.value + 31 * step.latency_ms.value
    assert 1.1 * calls < p.latency_ms.value < 5 * calls
    assert p.first_token_ms.value > prefill.latency_ms.value and p.token_ms.value > 1.1 * step.latency_ms.value
    busy = prefill.device_ms.value + 31 * step.device_ms.value  # and the small kernels that choose the tokens
    assert busy < p.device_ms.value < 1.3 * busy
    assert p.flops == pytest.approx(prefill.flops + 31 * step.flops, rel=0.01)


def test_the_parts_of_a_generation_add_up() -> None:
    for settings in ({}, {"batch": 4, "decoding": "beam"}, {"new_tokens": 2, "batch": 8, "prompt": "padded"}):
        p = answer(**settings)
        tokens = settings.get("new_tokens", 32)
        assert p.latency_ms.value == pytest.approx(p.first_token_ms.value + (tokens - 1) * p.token_ms.value)
        made = settings.get("batch", 1) * tokens
        assert p.throughput.value == pytest.approx(1e3 * made / p.latency_ms.value)
        assert p.throughput.unit == "tokens/s"
        for estimate in (p.latency_ms, p.first_token_ms, p.token_ms, p.energy_j, p.memory_mb, p.device_ms):
            assert 0 < estimate.low <= estimate.value <= estimate.high


def test_one_token_is_the_first_one() -> None:
    p = answer(new_tokens=1)
    assert p.first_token_ms.value == p.latency_ms.value and p.token_ms is None


@pytest.mark.parametrize("more", [{"new_tokens": 64}, {"decoding": "sample"}, {"decoding": "beam"}, {"seq_len": 512}])
def test_more_work_takes_no_less_time_and_memory(more: dict[str, Any]) -> None:
    least, most = answer(batch=8), answer(batch=8, **more)
    assert most.latency_ms.value > least.latency_ms.value * 0.999
    assert most.memory_allocated_mb.value > least.memory_allocated_mb.value * 0.999
    assert most.energy_j.value > least.energy_j.value * 0.999


def test_a_slower_host_makes_a_host_bound_generation_slower_in_proportion() -> None:
    fast, slow = answer(host=1.0), answer(host=2.0)
    assert slow.latency_ms.value == pytest.approx(2 * fast.latency_ms.value, rel=0.1)
    assert slow.device_ms.value == pytest.approx(fast.device_ms.value)


def test_the_memory_of_a_generation_holds_its_whole_cache() -> None:
    p = answer(batch=32, seq_len=512, new_tokens=256)
    cache_mb = 2 * 12 * 768 * 2 * 32 * (512 + 256) / 2**20  # keys and values of 12 layers of 768 in bf16
    weights_mb = 2 * 124.4e6 / 2**20
    assert weights_mb + cache_mb < p.memory_allocated_mb.value < 1.3 * (weights_mb + cache_mb)


def test_an_encoder_decoder_reads_its_prompt_once() -> None:
    p = answer("t5-small", new_tokens=8, dtype="fp32")
    loop = generation(Workload("t5-small", mode="generate", seq_len=64, new_tokens=8, dtype="fp32")).loop
    assert loop.encodes and loop.tokens == 8 and loop.vocabulary == 32128
    assert p.first_token_ms.value > p.token_ms.value


def test_a_prediction_is_the_same_as_json_and_in_a_table() -> None:
    p = answer(batch=2)
    again = Prediction.from_json(p.to_json())
    assert again.first_token_ms == p.first_token_ms and again.token_ms == p.token_ms and again == p
    workload = Workload("gpt2", batch=2, dtype="bf16", mode="generate", seq_len=64, new_tokens=32)
    (row,) = forerun.predict_many([workload], ["h200"]).to_dict("records")
    alone = answer(batch=2, measured=False, host="reference")
    assert row["latency_ms"] == pytest.approx(alone.latency_ms.value) and row["error"] is None
    assert row["memory_mb"] == pytest.approx(alone.memory_mb.value)
    assert row["throughput"] == pytest.approx(alone.throughput.value)
    frame = forerun.compare("gpt2", ["t4", "h100-sxm"], mode="generate", seq_len=64, new_tokens=8, dtype="fp16")
    assert list(frame["device"]) == ["h100-sxm", "t4"] and (frame["throughput_unit"] == "tokens/s").all()


def test_it_is_shown_with_the_first_token_and_the_settings() -> None:
    text = str(answer(decoding="sample", batch=2, prompt="padded", cache="static"))
    assert "to the first token" in text and "each further token" in text
    assert answer(batch=2).check == (
        "forerun measure gpt2 --batch 2 --dtype bf16 --mode generate --seq-len 64 --new-tokens 32"
    )
    html = answer(decoding="beam")._repr_html_()
    assert "32 new" in html and "beam" in html


def test_other_modes_have_neither_the_fields_nor_the_settings() -> None:
    p = forerun.predict("gpt2", "h200", mode="decode", seq_len=64)
    assert not {"first_token_ms", "token_ms"} & set(p.to_dict())
    assert not {"new_tokens", "decoding", "prompt", "cache"} & set(p.workload)


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        ("resnet18", {}, "resnet18 is a vision model: it has no prefill mode"),
        ("bert-base-uncased", {}, "has no cache, so it has no decode mode"),
        ("gpt2", {"runtime": "cudagraph"}, "transformers' own loop, which runs eagerly: runtime cudagraph is of one"),
        ("gpt2", {"runtime": "compile"}, "transformers' own loop, which runs eagerly"),
        ("gpt2", {"tp": 2}, "transformers' own loop on one device: leave out tp and pp"),
        ("gpt2", {"new_tokens": 0}, "new_tokens must be a whole number of 1 or more"),
        ("gpt2", {"new_tokens": None}, "mode generate needs new_tokens"),
        ("gpt2", {"new_tokens": 1000}, "a prompt of 64 and 1,000 new tokens need 1,064 positions; gpt2 has 1,024"),
        ("gpt2", {"mode": "decode"}, "new_tokens is a setting of mode generate, not of decode"),
        ("gpt2", {"decoding": "greedly"}, "decoding 'greedly' is not known. Did you mean greedy?"),
        ("gpt2", {"prompt": "padded"}, "a single prompt has no padding"),
        ("gpt2", {"input_shape": {"input_ids": (8,)}}, "mode generate takes a prompt of seq_len tokens"),
        ("gpt2", {"optimizer": "sgd"}, "an optimizer belongs to mode training, not generate"),
    ],
)
def test_what_cannot_be_is_one_sentence(model: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ForerunError) as refused:
        answer(model, **settings)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_questions_about_one_call_refuse_a_generation() -> None:
    with pytest.raises(ForerunError, match="a whole generation is many calls"):
        forerun.explain("gpt2", "h200", mode="generate", new_tokens=4)


def test_a_device_is_recommended_for_whole_generations() -> None:
    found = forerun.recommend(
        "gpt2", goal="latency", devices=["t4", "h100-sxm"], mode="generate", seq_len=32, new_tokens=4, batches=[1, 2],
        dtypes=["fp16"],
    )  # fmt: skip
    assert found.items == "tokens" and found.rows[0].runtime == "eager"


def test_costs_of_the_loop_are_not_below_zero() -> None:
    fitted = law.shipped()
    for costs in (*fitted.host_us.values(), fitted.device_us):
        assert all(us >= 0 for us in costs.values()) and costs["token"] > 0 and set(costs) <= set(law.COUNTED)
    size: dict[str, Any] = {"tokens": 8, "layers": 12, "sequences": 4, "vocabulary": 50257, "cache_bytes": 1e8}
    loop, beams = law.Loop(**size), law.Loop(**size, decoding="beam")
    assert beams.moved_bytes() > loop.moved_bytes() > 0
    assert (beams.counts() >= loop.counts()).all() and loop.counts()[0] == 1
