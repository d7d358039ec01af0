"""forerun.predict and its companions, through the public functions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import Transformer
from torch import nn

import forerun
from forerun import ForerunError, Prediction, Workload
from forerun.device import all_devices, load_device
from forerun.device.carbon import load_grid
from forerun.device.cloud import instances_for
from forerun.frontends import load_graph
from forerun.frontends.huggingface import catalog as hf_catalog
from forerun.predictors.laws.energy import SYNCHRONISED_US


def test_a_full_answer() -> None:
    p = forerun.predict("resnet18", "a100-sxm4-40gb", batch=8, region="DEU")
    for name in ("latency_ms", "device_ms", "throughput", "memory_mb", "memory_allocated_mb", "energy_j", "power_w",
                 "carbon_g", "cost_usd", "cost_per_million_usd"):  # fmt: skip
        e = getattr(p, name)
        assert 0 < e.low <= e.value <= e.high, name
    assert p.basis == "learned" and p.device == "a100-sxm4-40gb" and not p.unknown
    assert p.throughput.value == pytest.approx(8e3 / p.latency_ms.value)
    # Power is over a loop of calls, in which each takes a little less than by itself.
    alone = p.latency_ms.value - max(p.device_ms.value, p.latency_ms.value - SYNCHRONISED_US / 1e3)
    assert alone > 0 and p.power_w.value == pytest.approx(1e3 * p.energy_j.value / (p.latency_ms.value - alone))
    assert p.fit.fits and p.fit.largest_batch > 8
    assert p.mig == "1g.5gb"


def test_cost_and_carbon_are_the_price_and_the_grid_that_are_named() -> None:
    p = forerun.predict("resnet18", "a100-sxm4-40gb", batch=8, region="DEU")
    cheapest, grid = instances_for("a100-sxm4-40gb")[0], load_grid("DEU")
    assert p.cost_usd.value == pytest.approx(p.latency_ms.value / 3.6e6 * cheapest.usd_per_device_hour)
    assert p.cost_per_million_usd.value == pytest.approx(p.cost_usd.value / 8 * 1e6)
    for part in (cheapest.cloud, cheapest.id, f"{cheapest.usd_per_device_hour:.2f} USD", cheapest.date):
        assert part in p.assumptions["cost_usd"]
    assert p.carbon_g.value == pytest.approx(p.energy_j.value / 3.6e6 * grid.g_per_kwh)
    assert "Germany" in p.assumptions["carbon_g"] and grid.year in p.assumptions["carbon_g"]


def test_slices_are_slower_the_smaller_they_are() -> None:
    p = forerun.predict("resnet50", "h200", batch=64, dtype="fp16")
    latency = [o.latency_ms for o in p.mig_options]
    assert latency == sorted(latency, reverse=True) and latency[0] > 3 * latency[-1]
    assert p.mig_options[-1].latency_ms == pytest.approx(p.latency_ms.value, rel=0.1)


def test_a_case_that_does_not_fit_says_by_how_much() -> None:
    p = forerun.predict("meta-llama/Llama-3.1-8B", "t4", dtype="fp16", mode="decode", seq_len=512)
    assert not p.fit.fits and p.fit.free_mb < 0 and p.fit.largest_batch == 0
    assert "does not fit" in str(p)


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    settings = {"mode": "training", "optimizer": "adamw"}
    answers = [forerun.predict("resnet50", "t4", batch=b, **settings).fit for b in (1, 16, 64)]
    (largest,) = {f.largest_batch for f in answers}  # whatever batch was asked for
    assert forerun.predict("resnet50", "t4", batch=largest, **settings).fit.fits
    assert not forerun.predict("resnet50", "t4", batch=largest + 1, **settings).fit.fits


def test_decode_gives_cached_memory_back_before_it_runs_out() -> None:
    """A growing cache leaves freed blocks behind; PyTorch returns them to the device before it fails."""
    case = {"model": "meta-llama/Llama-3.1-8B", "dtype": "bf16", "mode": "decode", "seq_len": 1024, "batch": 342}
    tight, roomy = (forerun.predict(device=d, **case) for d in ("h100-sxm", "b200"))
    assert tight.fit.fits and tight.memory_mb.value <= 80 * 1024
    assert roomy.memory_mb.value > 1.2 * tight.memory_mb.value


def test_decode_reads_every_weight_and_the_cache() -> None:
    p = forerun.predict("meta-llama/Llama-3.1-8B", "h100-sxm", dtype="bf16", mode="decode", batch=16, seq_len=2048)
    weights = 2 * 8.03e9
    cache = 16 * 2048 * 32 * 2 * 8 * 128 * 2  # batch * tokens * layers * (k, v) * heads * width * bytes
    assert p.bytes > weights + cache - 2 * 128256 * 4096  # the embedding table is not read whole
    assert p.throughput.unit == "tokens/s"
    assert p.memory_allocated_mb.value > (weights + cache) / 2**20


@pytest.mark.parametrize(("dtype", "share"), [("int8", 0.5), ("int4", 0.27)])
def test_quantised_weights_take_less_memory_and_time(dtype: str, share: float) -> None:
    """Time only where the cast of 8-bit weights is part of the matmul: eager PyTorch casts them at every call. The
    4-bit kernel of bitsandbytes takes as long for one row as half precision does."""
    settings = {"mode": "decode", "seq_len": 128, "runtime": "compile"}
    half = forerun.predict("meta-llama/Llama-2-7b-hf", "l4", dtype="fp16", **settings)
    small = forerun.predict("meta-llama/Llama-2-7b-hf", "l4", dtype=dtype, **settings)
    assert small.memory_parts_mb["parameter"] / half.memory_parts_mb["parameter"] == pytest.approx(share, abs=0.04)
    assert small.device_ms.value < (1.0 if dtype == "int8" else 1.1) * half.device_ms.value
    assert any(dtype in note for note in small.notes)


def test_a_model_that_does_nothing_gets_an_answer() -> None:
    p = forerun.predict(torch.nn.Identity(), "h200", input_shape=(3, 4, 4))
    assert p.device_ms.value == 0.0 < p.latency_ms.value and p.flops == 0
    with pytest.raises(forerun.ForerunError, match="no time to predict"):
        forerun.predict(torch.nn.Identity(), "xeon-emr-2vcpu", input_shape=(3, 4, 4))


def test_tf32_only_helps_where_the_chip_has_it() -> None:
    def device_ms(device: str, dtype: str) -> float:
        return forerun.predict("vit_tiny_patch16_224", device, batch=64, dtype=dtype).device_ms.value

    assert device_ms("a100", "tf32") < device_ms("a100", "fp32") <= 1.01 * device_ms("a100", "fp32-ieee")
    assert device_ms("v100", "fp32") == device_ms("v100", "fp32-ieee")


def test_cuda_graphs_take_the_launch_overhead_away() -> None:
    eager = forerun.predict("resnet18", "h200")
    replayed = forerun.predict("resnet18", "h200", runtime="cudagraph")
    assert eager.bound == "host" and replayed.latency_ms.value < eager.latency_ms.value / 2


def test_every_device_with_a_bandwidth_and_a_peak_answers() -> None:
    usable = [d for d in all_devices() if d.bandwidth_gbs and d.peak_tflops]
    frame = forerun.predict_many([Workload("resnet18", batch=4)], usable)
    assert list(frame["device"]) == [d.id for d in usable]  # how many that are is in the README (test_docs)
    assert frame["error"].isna().all()
    # Every weight is read: 11.7 million of 4 bytes, in ms at so many GB/s.
    least = 11.7e6 * 4 / 1e6 / np.array([d.bandwidth_gbs for d in usable])
    assert (frame["latency_ms"] > least).all()


def test_what_a_device_lacks_is_named() -> None:
    chip = {"name": "plain", "fp32_tflops": 10, "memory_gb": 8, "bandwidth_gbs": 200}
    p = forerun.predict("resnet18", chip, dtype="fp16")
    assert p.energy_j is None and "tdp_w" in p.unknown["energy_j"]
    assert p.cost_usd is None and "price" in p.unknown["cost_usd"]
    assert any("fp16 peak of" in n for n in p.notes)


def test_predict_many_agrees_with_predict() -> None:
    cases = [Workload("resnet18", batch=b, dtype=d) for b in (1, 32) for d in ("fp32", "fp16")]
    devices = ["t4", "h200", "rtx4090"]
    frame = forerun.predict_many(cases, devices)
    assert len(frame) == 12
    row = frame[(frame.device == "h200") & (frame.batch == 32) & (frame.dtype == "fp16")].iloc[0]
    p = forerun.predict("resnet18", "h200", batch=32, dtype="fp16")
    assert row.latency_ms == pytest.approx(p.latency_ms.value, rel=1e-5)
    assert row.memory_mb == pytest.approx(p.memory_mb.value)
    assert row.energy_j == pytest.approx(p.energy_j.value, rel=1e-5)
    assert row.power_w == pytest.approx(p.power_w.value, rel=1e-5)
    assert row.cost_usd == pytest.approx(p.cost_usd.value, rel=1e-5)


def test_predict_many_keeps_a_case_that_cannot_run_with_its_reason() -> None:
    frame = forerun.predict_many([Workload("resnet18", dtype="bf16")], ["t4", "l4"])
    assert list(frame["error"].notna()) == [True, False]
    assert "no bf16 units" in frame["error"].iloc[0]


def test_predict_many_survives_a_model_and_a_device_that_cannot_answer() -> None:
    unknown = dataclasses.replace(load_device("epyc-7742"), id="no-peaks", peak_tflops={})
    frame = forerun.predict_many([Workload("resnet18"), Workload("no_such_net")], ["t4", unknown])
    assert list(frame["error"].isna()) == [True, False, False, False]
    assert "no known" in frame["error"].iloc[1] and "no model is called" in frame["error"].iloc[2]


def test_a_graph_is_only_used_for_what_it_was_captured_with() -> None:
    g = load_graph(Workload(Transformer(), seq_len=16, batch=2))
    with pytest.raises(ForerunError, match="captured with mode inference"):
        forerun.predict(g, "t4", batch=2, mode="training")


def test_equal_configs_under_two_names_keep_their_names(tmp_path: Path) -> None:
    config = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
              "intermediate_size": 128, "vocab_size": 98}  # fmt: skip
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
    answers = [forerun.predict(model, "t4", seq_len=16) for model in (*map(str, folders), config)]
    assert [p.model for p in answers] == [*map(str, folders), "bert"]
    assert len({p.flops for p in answers}) == 1


def test_a_batch_by_batch_matrix_grows_with_the_square() -> None:
    class Contrast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            return y @ y.t()

    p = forerun.predict(Contrast(), "h200", input_shape=(16,), batch=16384)
    assert p.memory_allocated_mb.value > 16384**2 * 4 / 2**20


def test_compare_is_sorted() -> None:
    frame = forerun.compare("resnet18", ["t4", "h100-sxm", "a100"], batch=64)
    assert list(frame["latency_ms"]) == sorted(frame["latency_ms"])


def test_explanation_adds_up() -> None:
    e = forerun.explain("resnet18", "h200", batch=16)
    assert sum(o.time_ms for o in e.ops) == pytest.approx(e.device_ms)
    assert sum(o.share for o in e.ops) == pytest.approx(1)
    assert sum(ms for _, _, ms, _ in e.by_kernel()) == pytest.approx(e.device_ms)


def test_explanation_names_what_limits_an_op() -> None:
    h200 = load_device("h200")
    e = forerun.explain("resnet50", "h200", batch=256)
    for o in e.ops:  # no op is faster than its arithmetic and its bytes allow
        assert o.time_ms >= o.gflops / h200.peak("tf32") * 0.999
        assert o.time_ms >= o.mb * 2**20 / h200.bandwidth_gbs / 1e6 * 0.999
    large = [o for o in e.ops if o.mb / o.calls > 100]
    assert {o.bound for o in large if o.kernel == "elementwise"} == {"memory"}
    assert "compute" in {o.bound for o in large if o.kernel == "conv_pointwise"}
    alone = forerun.explain("resnet50", "h200", batch=1)
    assert [o.bound for o in alone.ops].count("launch") > len(alone.ops) / 2


def test_a_module_of_the_users_own_and_a_graph_already_captured() -> None:
    net = Transformer()
    by_module = forerun.predict(net, "l4", seq_len=32, batch=2)
    by_graph = forerun.predict(load_graph(Workload(net, seq_len=32, batch=2)), "l4", batch=2)
    assert by_module.latency_ms == by_graph.latency_ms
    assert by_module.check is None  # no command can name an object in memory


def test_hugging_face_by_id_dict_file_and_folder(tmp_path: Path) -> None:
    config = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
              "intermediate_size": 128, "vocab_size": 99}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    answers = {forerun.predict(m, "t4", seq_len=16).flops for m in
               (config, str(tmp_path), tmp_path / "config.json")}  # fmt: skip
    assert len(answers) == 1
    assert forerun.predict("bert-base-uncased", "t4", seq_len=16).parameters == 109_482_240


@pytest.mark.parametrize("model", ["openai/clip-vit-base-patch32", "openai/whisper-tiny", "t5-small", "gpt2",
                                   "google/vit-base-patch16-224", "microsoft/deberta-v3-small"])  # fmt: skip
def test_every_kind_of_hugging_face_model(model: str) -> None:
    p = forerun.predict(model, "a100", batch=2)
    known = hf_catalog.architecture(model)
    # The catalogue counts the model without the head that its config names, which has few classes or none.
    assert known is not None and p.parameters == pytest.approx(known.parameters, rel=0.01)
    assert p.macs > 1e9 and p.flops >= 2 * p.macs
    assert p.flops / p.device_ms.low / 1e9 <= load_device("a100").peak("tf32")


def test_json_round_trip_and_notebook_view() -> None:
    p = forerun.predict("resnet18", "h200", batch=4)
    again = Prediction.from_json(p.to_json())
    assert again == p
    html = p._repr_html_()
    assert "<table>" in html and "Latency" in html and "resnet18 on h200" in html


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 0}, "batch must be a whole number"),
        ({"batch": 2.5}, "batch must be a whole number"),
        ({"dtype": "fp17"}, "Did you mean fp1"),
        ({"mode": "train"}, "Did you mean training"),
        ({"mode": "decode"}, "no decode mode"),
        ({"optimizer": "adam"}, "belongs to mode training"),
        ({"mode": "training", "dtype": "int8"}, "cannot be trained"),
        ({"mode": "training", "amp": "bf16", "dtype": "fp16"}, "keeps fp32 weights"),
        ({"input_shape": (3, 224)}, "3 dimensions"),
        ({"input_shape": (224, 224, 3)}, "channels first"),
        ({"input_shape": 8}, "such as"),
        ({"seq_len": 128}, "not a seq_len"),
        ({"batch": 10**15}, "at most"),
        ({"dtype": "float16"}, "Did you mean fp16"),
        ({"instance": "p4d.24xlarge"}, "carries a100"),
        ({"region": "Atlantis"}, "unknown region"),
        ({"predictor": "oracle"}, "no predictor is called"),
    ],
)
def test_bad_settings_get_one_sentence(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ForerunError, match=message) as caught:
        forerun.predict("resnet18", "h200", **settings)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_sequence_longer_than_the_model_allows() -> None:
    with pytest.raises(ForerunError, match="at most 512 tokens"):
        forerun.predict("bert-base-uncased", "h200", seq_len=513)
    with pytest.raises(ForerunError, match="at most 1,024 tokens"):
        forerun.predict("gpt2", "h200", mode="decode", seq_len=1024)


def test_an_encoder_has_no_decode_mode() -> None:
    with pytest.raises(ForerunError, match="decode"):
        forerun.predict("bert-base-uncased", "h200", mode="decode", seq_len=64)


def test_decode_of_layers_whose_masks_go_by_their_place() -> None:
    config = {"model_type": "mimo_v2_flash", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32,
              "num_hidden_layers": 12, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
              "v_head_dim": 16, "moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
              "sliding_window": 8}  # fmt: skip
    decode = forerun.predict(config, "h200", mode="decode", seq_len=64, dtype="bf16")
    prefill = forerun.predict(config, "h200", mode="prefill", seq_len=4, dtype="bf16")
    assert decode.parameters == prefill.parameters
    assert 0 < decode.macs < prefill.macs  # one token against four


def test_prefill_and_decode_of_a_sliding_window_and_a_latent_attention_model() -> None:
    for name in ("google/gemma-3-1b-it", "deepseek-ai/DeepSeek-V2-Lite"):
        prefill = forerun.predict(name, "h200", mode="prefill", seq_len=1024, dtype="bf16")
        decode = forerun.predict(name, "h200", mode="decode", seq_len=1024, dtype="bf16")
        assert prefill.macs > 1000 * prefill.active_parameters * 0.7
        assert decode.parameters == prefill.parameters
        assert decode.macs < prefill.macs / 30
