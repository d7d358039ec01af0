"""The iteration model of a real model on a real device: its time and energy over loads, its cache, its refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from forerun.errors import ForerunError
from forerun.serving.engine_model import EngineModel, engine_model
from forerun.serving.iteration import Load

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("llama")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return str(folder)


@pytest.fixture(scope="module")
def model(llama: str) -> EngineModel:
    return engine_model(llama, "h200", "vllm", dtype="bf16")


def test_more_of_anything_takes_longer(model: EngineModel) -> None:
    base = {"decode": 32.0, "context": 32e3, "prefill": 512.0, "pairs": 512 * 300.0, "finished": 1.0}
    before = float(model.latency_ms(Load(**base)))
    for name, value in base.items():
        assert float(model.latency_ms(Load(**{**base, name: 4 * value}))) > before, name


def test_arrays_of_loads_are_answered_as_each_alone(model: EngineModel) -> None:
    decode, context = np.array([1.0, 16.0, 0.0]), np.array([100.0, 9000.0, 0.0])
    together = model.latency_ms(Load(decode, context, np.array([0.0, 0.0, 700.0]), np.array([0.0, 0.0, 245e3])))
    each = (Load(1.0, 100.0), Load(16.0, 9000.0), Load(0, 0, 700, 245e3))
    alone = [float(model.latency_ms(one)) for one in each]
    assert together == pytest.approx(np.array(alone))


def test_a_token_takes_at_least_the_time_to_read_the_weights(model: EngineModel) -> None:
    least_ms = model.weights_bytes / 4.8e12 * 1e3
    assert float(model.latency_ms(Load(1.0, 16.0))) > least_ms * 0.8  # the embedding is not read


def test_energy_stays_within_the_power_limit(model: EngineModel) -> None:
    load = Load(np.array([1.0, 64.0, 256.0]), np.array([1e3, 64e3, 512e3]))
    watts = model.energy_j(load) / model.latency_ms(load) * 1e3
    assert (watts <= 700 * (1 + 1e-9)).all()
    assert (watts > 50).all()
    assert np.diff(model.energy_j(load)).min() > 0


def test_the_cache_holds_what_weights_leave(model: EngineModel) -> None:
    each = 16 * 2 * 8 * 64 * 2  # layers x (keys and values) x heads x width x bytes
    room = model.kv_tokens * each + model.weights_bytes
    assert 0.8 * 141e9 < room < 0.9 * 151e9


def test_two_devices_halve_weights_and_add_collectives(model: EngineModel, llama: str) -> None:
    two = engine_model(llama, "h200", "vllm", dtype="bf16", tp=2)
    assert two.devices == 2
    assert two.weights_bytes < 0.6 * model.weights_bytes
    load = Load(8.0, 8e3)
    assert float(two.parts_ms(load)["collectives"]) > 0
    assert float(model.parts_ms(load)["collectives"]) == pytest.approx(0, abs=1e-9)
    assert two.kv_tokens > 1.8 * model.kv_tokens


def test_draws_differ_and_surround_the_value(model: EngineModel) -> None:
    rng, load = np.random.default_rng(0), Load(8.0, 8e3)
    drawn = np.array([float(model.drawn(rng).latency_ms(load)) for _ in range(200)])
    assert drawn.min() < float(model.latency_ms(load)) < drawn.max()
    assert drawn.std() > 0


def test_what_does_not_serve_is_refused_in_a_sentence(llama: str) -> None:
    with pytest.raises(ForerunError, match="choose an engine from"):
        engine_model(llama, "h200", "eager")
    with pytest.raises(ForerunError, match="attention heads"):
        engine_model(llama, "h200", "vllm", dtype="bf16", tp=3)


def test_a_card_without_bf16_units_serves_in_fp16() -> None:
    old = engine_model("Qwen/Qwen2.5-0.5B", "t4")
    assert old.dtype == "fp16" and engine_model("Qwen/Qwen2.5-0.5B", "l4").dtype == "bf16"
    with pytest.raises(ForerunError, match="t4 has no bf16 units"):
        engine_model("Qwen/Qwen2.5-0.5B", "t4", dtype="bf16")
