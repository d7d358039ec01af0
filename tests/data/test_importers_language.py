"""The importers of language-model data: serving and training tables written by hand in the layout of the originals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forerun.data import importers, schema
from forerun.data.importers import _language, _naming
from forerun.data.store import Store
from forerun.errors import ForerunError

LLAMA = "meta-llama/Llama-2-7b-hf"


def bench_run(hardware: str, n: int, framework: str, length: int, batch: int, seconds: float, **more: Any) -> dict:
    return {
        "Hardware": hardware, "Num of Hardware": n, "Framework": framework, "Model": LLAMA,
        "Input Output Length": length, "Batch Size": batch, "Latency": seconds,
        "Throughput": 2 * length * batch / seconds, **more,
    }  # fmt: skip


def llm_inference_bench(folder: Path) -> None:
    a100, h100 = "Nvidia A100 GPU", "Nvidia H100 GPU"
    pd.DataFrame([
        bench_run(a100, 1, "vLLM", 1024, 16, 25.0),
        bench_run(a100, 4, "TensorRT-LLM", 128, 1, 0.75),
        bench_run(a100, 1, "llama.cpp", 128, 1, 4.0),
        bench_run(a100, 1, "llama.cpp", 128, 16, 3.0),
        bench_run(h100, 1, "TensorRT-LLM", 1024, 1, 7.7),
        bench_run(h100, 1, "TensorRT-LLM", 2048, 1, 0.08),
        bench_run("AMD MI250 GPU", 2, "vLLM", 128, 1, 1.5),
        bench_run("Intel PVC GPU", 1, "vLLM", 128, 1, 16.0),
        bench_run("Intel PVC GPU", 1, "vLLM", 256, 1, 17.0),
    ]).to_parquet(folder / "all_results.parquet")  # fmt: skip
    pd.DataFrame([
        bench_run(a100, 1, "vLLM", 1024, 16, 25.0, avg_power=292_973.0),
        bench_run(a100, 1, "vLLM", 1024, 32, 46.0, avg_power=320_000.0),
    ]).to_parquet(folder / "power.parquet")  # fmt: skip
    both = {"Parallelism Type": "Hybird Tensor (2) and Pipeline (2) Parallelism"}
    pd.DataFrame([
        bench_run(a100, 4, "TensorRT-LLM", 128, 1, 0.75, **{"Parallelism Type": "Tensor Parallelism"}),
        bench_run(a100, 1, "TensorRT-LLM", 128, 1, 1.51, **{"Parallelism Type": "Tensor Parallelism"}),
        bench_run(a100, 1, "TensorRT-LLM", 128, 1, 1.51, **{"Parallelism Type": "Pipeline Parallelism"}),
        bench_run(a100, 4, "TensorRT-LLM", 128, 1, 1.0, **both),
        bench_run(a100, 2, "TensorRT-LLM", 128, 1, 1.5, **{"Parallelism Type": "PP"}),
    ]).to_parquet(folder / "tp_pp.parquet")  # fmt: skip
    pd.DataFrame([{
        "Hardware": "SambaNova SN40L", "Num of Hardware": 8, "Framework": "sambaflow", "Model": LLAMA,
        "Input Length": 1024, "Output Length": 1, "Batch Size": 16, "TTFT Latency": 2.85, "end_latency ": 7.9,
    }]).to_parquet(folder / "ttft_itl.parquet")  # fmt: skip


def splitwise(folder: Path) -> None:
    run = {
        "model": "llama2-70b", "hardware": "a100-80gb", "prompt_size": 512, "batch_size": 1, "token_size": 128,
        "peak_power": 1.0, "average_power": 0.73, "prompt_time": 196.0, "token_time": 54.0, "e2e_time": 7054.0,
        "tensor_parallel": 2,
    }  # fmt: skip
    again = run | {"prompt_time": 197.0, "e2e_time": 7055.0}
    h100 = run | {"hardware": "h100-80gb", "prompt_time": 84.0, "peak_power": 0.0, "average_power": 0.0}
    stopped = h100 | {"model": "bloom-176b", "tensor_parallel": 8, "token_size": 4096, "e2e_time": 24_000.0}
    queued = run | {"batch_size": 64, "e2e_time": 160_000.0}
    capped = h100 | {"hardware": "h100-80gb-pcap"}
    pd.DataFrame([run, run, again, stopped, queued, capped]).to_parquet(folder / "perf_model.parquet")


def ml_energy(folder: Path) -> None:
    nothing = dict.fromkeys((
        "TP", "PP", "Energy/req (J)", "Avg TPOT (s)", "Token tput (tok/s)", "Avg Output Tokens", "Avg BS (reqs)",
        "Max BS (reqs)", "Energy/video (J)", "Batch latency (s)", "Batch size", "Denoising steps", "Frames",
        "Energy/image (J)",
    ))  # fmt: skip
    chat = nothing | {
        "Model": "mistralai/Mixtral-8x7B-Instruct-v0.1", "GPU": "NVIDIA A100-SXM4-40GB", "TP": 4.0, "PP": 2.0,
        "Energy/req (J)": 88.4, "Avg TPOT (s)": 0.07, "Token tput (tok/s)": 747.5, "Avg Output Tokens": 152.6,
        "Avg BS (reqs)": 63.5, "Max BS (reqs)": 64.0, "path": "llm_text_generation/chat/A100-SXM4-40GB/x/y.json",
    }  # fmt: skip
    film = nothing | {
        "Model": "ali-vilab/i2vgen-xl", "GPU": "NVIDIA H100 80GB HBM3", "Energy/video (J)": 1000.0, "Batch size": 2.0,
        "Batch latency (s)": 23.5, "Denoising steps": 25.0, "Frames": 16.0,
        "path": "diffusion/image-to-video/H100 80GB HBM3/x/y.json",
    }  # fmt: skip
    picture = film | {"Energy/video (J)": None, "Frames": None, "Energy/image (J)": 300.0, "Batch size": 4.0}
    frame = pd.DataFrame([chat, film, picture])
    numbers = [name for name in nothing if name in frame]
    frame.astype(dict.fromkeys(numbers, "float64")).to_parquet(folder / "configs.parquet")


def trtllm_perf_overview(folder: Path) -> None:
    run = {
        "trtllm": "0.17", "mode": "offline max-throughput", "model": "LLaMA v3.1 8B", "tp": "1", "pp": None,
        "isl": 2048.0, "osl": 128.0, "gpu": "H100-SXM", "precision": "FP8",
        "metric": "token_throughput_tok_s_whole_instance", "value": 1401.0, "batch": None,
    }  # fmt: skip
    old = {"trtllm": "0.9.0", "gpu": "A100", "precision": "FP16", "tp": "8.0", "model": "Falcon 180B"}
    peak = {"mode": "Peak Throughput", "metric": "output_tok_s_per_gpu", "value": 29.0, "batch": 64.0}
    first = {"mode": "Low Latency", "metric": "ttft_ms", "value": 76.5, "batch": 1.0, "osl": None}
    new = {"trtllm": "2026-02 docs", "precision": "FP4", "metric": "output_tok_s_per_gpu"}
    pd.DataFrame([
        run, run | old | peak, run | old | first,
        run | new | {"gpu": "RTX 6000 Pro Blackwell SE x4", "tp": "DEP2,PP2", "model": "Qwen3 235B A22B"},
        run | new | {"gpu": "B200", "tp": "DEP4", "model": "New 1B"},
    ]).to_parquet(folder / "trtllm_perf_tidy.parquet")  # fmt: skip


def nemo_megatron_perf(folder: Path) -> None:
    run = {
        "source": "megatron_bridge_archive", "table": 1, "note": "---", "System": "DGX-GB200", "#-GPUs": 64,
        "section": "Performance Archive > 26.04 NeMo Container > Pre-Training Performance > Model: LLAMA3_70B",
        "Precision": "NVFP4", "GBS": 128, "MBS": 2, "Sequence Length": 8192, "TP": "2", "PP": "4", "CP": "1",
        "VP": "5", "EP": None, "Tokens / sec / GPU": "7296", "Model TFLOP / sec / GPU": "3000[^some-note]",
        "FSDP": None, "Model": "LLAMA3_70B", "GA": None, "container": "26.04",
    }  # fmt: skip
    two = run | {
        "System": "DGX-B200", "Precision": None, "TP": "1 (2)", "FSDP": "64 (0)", "container": "25.09",
        "Tokens / sec / GPU": "3986 (3546)", "Model TFLOP / sec / GPU": "1791 (1593)", "EP": 1.0,
        "section": "Performance Archive > 25.09 NeMo Container > Pre-Training Performance > System: DGX-B200",
    }  # fmt: skip
    lora = run | {"section": str(run["section"]).replace("Pre-Training", "LoRA"), "Precision": "BF16"}
    other = run | {"Model": "Nemotron_3_Super (tokendrop)", "System": "DGX-H100", "Precision": "MXFP8"}
    kimi = run | {"Model": "Kimi_K2", "Precision": "FP8-CS"}
    pd.DataFrame([run, two, lora, other, kimi]).to_parquet(folder / "tables_long.parquet")


def llmfoundry_mfu(folder: Path) -> None:
    run = {
        "section": "H100 80GB FP8", "Model": "7b", "SeqLen (T)": 2048, "# GPUs": 8, "GPU": "h100_80gb", "MFU": 25.0,
        "HFU": 30.0, "Model TFLOP": 400, "MicroBatchSize": 6, "GradAccum": 1, "GlobalBatchSize": 48,
        "Throughput (S/s)": 41, "Throughput (T/s)": 85_144, "Throughput (T/s/GPU)": 10_643,
        "GlobalBatchSize (T)": 98_304, "Precision": "amp_fp8", "MP Mode": "DEFAULT",
        "Sharding Strategy": "FULL_SHARD", "Activation Checkpointing": False, "Activation CPUOffload": False,
        "NumParams": 6_658_859_008,
    }  # fmt: skip
    pure = {"Model": "125m", "GPU": "a100_40gb", "Precision": "bf16", "MP Mode": "PURE"}
    pd.DataFrame([run, run | pure]).to_parquet(folder / "llmfoundry_training_throughput.parquet")


def mlperf_training(folder: Path) -> None:
    run = {
        "round": "v3.1", "submitter": "ASUSTeK", "system_name": "ESC-N8-E11", "benchmark": "bert", "run": 0,
        "submission_division": "closed", "seed": 20440.0, "global_batch_size": 768,
        "gradient_accumulation_steps": 1.0, "final_eval": "0.72", "train_samples": 2_549_689.0, "status": "success",
        "time_to_train_s": 331.6, "tracked_throughput_median": 7743.6,
        "sys_accelerator_model_name": "NVIDIA H100-SXM5-80GB", "sys_accelerators_per_node": 8,
        "sys_number_of_nodes": 2.0, "sys_accelerator_interconnect": "NVLINK Gen4",
        "sys_host_processor_model_name": "Intel(R) Xeon(R) Platinum 8480+ @ 2.00GHz",
        "sys_framework": "NGC PyTorch 23.09", "sys_host_networking": None, "sys_division": "closed",
        "max_sequence_length": None, "lora_rank": None,
    }  # fmt: skip
    whole_epochs = {"benchmark": "ssd", "seed": 2.0, "time_to_train_s": 2000.0}
    rows = [
        run,
        run | {"round": "v4.0", "run": 3},  # submitted again
        run | {"status": "aborted", "seed": 9.0},
        run | {"status": None, "time_to_train_s": None, "seed": 10.0},
        run | {"benchmark": "gpt3", "tracked_throughput_median": 2e6, "max_sequence_length": 2048.0, "seed": 1.0},
        run | whole_epochs | {"tracked_throughput_median": 286.0},  # 0.5 epochs if it were of the whole system
        run | whole_epochs | {"tracked_throughput_median": 3800.0, "seed": 3.0},
        run | {"benchmark": "llama2_70b_lora", "lora_rank": 16.0, "tracked_throughput_median": None, "seed": 4.0,
               "sys_accelerator_model_name": "NVIDIA H200-NVL-141GB"},
        run | {"benchmark": "resnet", "seed": 5.0, "sys_accelerator_model_name": None, "sys_accelerators_per_node": 0,
               "sys_division": "open"},
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / "runs.parquet")


WRITERS: list[Callable[[Path], None]] = [
    llm_inference_bench, splitwise, ml_energy, trtllm_perf_overview, nemo_megatron_perf, llmfoundry_mfu,
    mlperf_training,
]  # fmt: skip
every_set = pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)


def rows_of(write: Callable[[Path], None], folder: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """What the store would hold, and what was dropped."""
    write(folder)
    loaded = importers.load(write.__name__, folder)
    assert list(loaded.tables) == ["models"]
    rows: list[dict[str, Any]] = schema.conform("models", loaded.tables["models"]).to_pylist()
    return rows, loaded.dropped


def find(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    results = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    assert len(results) == 1, f"{len(results)} rows with {wanted}"
    return results[0]


@every_set
def test_importing_twice_gives_the_same_rows(write: Callable[[Path], None], tmp_path: Path) -> None:
    rows, _ = rows_of(write, tmp_path)
    assert rows == rows_of(write, tmp_path)[0]
    assert len({row["row_id"] for row in rows}) == len(rows)
    store = Store(tmp_path / "store", shipped=False)
    for _ in range(2):
        assert store.replace(write.__name__, importers.load(write.__name__, tmp_path).tables) == {"models": len(rows)}
    assert sorted(store.column("models", "row_id")) == sorted(row["row_id"] for row in rows)


@every_set
def test_every_row_says_what_ran_where(write: Callable[[Path], None], tmp_path: Path) -> None:
    importer = importers.importer(write.__name__)
    assert all(source.repository.startswith("https://") and source.commit for source in importer.sources)
    assert importer.about and importer.licence and not importer.in_training
    for row in rows_of(write, tmp_path)[0]:
        assert row["dataset"] == importer.name == write.__name__ == row["protocol"].split("/")[0]
        assert row["device"] and row["device_reported"] and row["model"]
        assert row["mode"] in ("inference", "training", "serving")
        assert (row["throughput"] is None) == (row["throughput_unit"] is None)
        for name in ("extra", "parallel", "software"):
            assert row[name] is None or isinstance(json.loads(row[name]), dict)


@every_set
def test_another_layout_is_refused(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path)
    path = sorted(tmp_path.glob("*.parquet"))[0]
    frame = pd.read_parquet(path)
    frame.rename(columns={frame.columns[-1]: "other", frame.columns[4]: "another"}).to_parquet(path)
    with pytest.raises(ForerunError, match="not laid out as expected"):
        importers.load(write.__name__, tmp_path)
    path.write_bytes(b"not parquet")
    with pytest.raises(ForerunError, match="not laid out as expected"):
        importers.load(write.__name__, tmp_path)
    path.unlink()
    with pytest.raises(ForerunError, match=f"does not contain the {write.__name__} data"):
        importers.load(write.__name__, tmp_path)


def test_llm_inference_bench(tmp_path: Path) -> None:
    rows, dropped = rows_of(llm_inference_bench, tmp_path)
    assert dropped == {
        "the same run listed twice": 2,
        "llama.cpp: its batch is a chunk of one prompt": 1,
        "took less than half as long as half as many tokens: it stopped early": 1,
    }
    vllm = find(rows, runtime="vllm", batch=16)
    assert (vllm["device"], vllm["model"], vllm["family"], vllm["dtype"]) == ("a100-sxm4-40gb", LLAMA, "llama", "fp16")
    assert (vllm["latency_ms"], vllm["power_w"], vllm["seq_len"], vllm["tokens_out"]) == (25_000, 292.973, 1024, 1024)
    assert vllm["throughput"] == 2 * 1024 * 16 / 25 and vllm["throughput_unit"] == "input+output tokens/s"
    assert find(rows, batch=32)["power_w"] == 320  # power without a run in the main table is a row of its own
    splits = sorted(str(row["parallel"]) for row in rows if row["runtime"] == "trt-llm" and row["device"] != "h100-sxm")
    assert splits == ['{"pp":2,"tp":2}', '{"pp":2}', '{"tp":1}', '{"tp":4}']
    assert find(rows, device="mi250")["parallel"] is None
    assert json.loads(find(rows, runtime="llama.cpp")["extra"]) == {"prompt_chunk": 1}
    assert "start-up" in find(rows, device="intel-max-1550", seq_len=128)["extra"]
    assert find(rows, device="intel-max-1550", seq_len=256)["extra"] is None
    first = find(rows, device="sn40l")
    assert (first["ttft_ms"], first["latency_ms"], first["tokens_out"], first["devices"]) == (2850, 2850, 1, 8)
    assert first["protocol"] == "llm_inference_bench/ttft" and first["dtype"] is None


def test_splitwise(tmp_path: Path) -> None:
    rows, dropped = rows_of(splitwise, tmp_path)
    assert dropped == {
        "power-capped H100: computed, not measured": 1,
        "the same run listed again in another sweep": 1,
        "the batch did not fit at once: prompt time of a part of it": 1,
    }
    full = find(rows, device="a100-sxm4-80gb", repeat=0)
    assert (full["model"], full["parallel"]) == ("meta-llama/Llama-2-70b-hf", '{"tp":2}')
    assert (full["ttft_ms"], full["tpot_ms"], full["latency_ms"], full["tokens_out"]) == (196, 54, 7054, 128)
    assert json.loads(full["extra"]) == {"average_power_fraction": 0.73, "peak_power_fraction": 1}
    assert find(rows, device="a100-sxm4-80gb", repeat=1)["key"] == full["key"]
    stopped = find(rows, device="h100-sxm")
    assert (stopped["model"], stopped["devices"], stopped["ttft_ms"]) == ("bigscience/bloom", 8, 84)
    assert stopped["latency_ms"] is None and stopped["tokens_out"] is None
    assert json.loads(stopped["extra"]) == {"tokens_asked": 4096}


def test_ml_energy(tmp_path: Path) -> None:
    rows, dropped = rows_of(ml_energy, tmp_path)
    assert dropped == {}
    chat = find(rows, mode="serving")
    assert (chat["device"], chat["devices"], chat["parallel"]) == ("a100-sxm4-40gb", 8, '{"pp":2,"tp":4}')
    assert (chat["family"], chat["source"], chat["runtime"]) == ("mixtral", "hf", "vllm")
    assert (chat["energy_j"], chat["batch"], chat["tokens_out"], chat["latency_ms"]) == (88.4, 64, 153, None)
    assert chat["tpot_ms"] == pytest.approx(70) and chat["throughput_unit"] == "output tokens/s"
    film = find(rows, batch=2)
    assert (film["device"], film["devices"], film["source"], film["mode"]) == ("h100-sxm", 1, "diffusers", "inference")
    assert (film["latency_ms"], film["energy_j"]) == (23_500, 2000)  # of the batch of two
    assert json.loads(film["extra"]) == {"denoising_steps": 25, "energy_of": "batch", "frames": 16}
    assert find(rows, batch=4)["energy_j"] == 1200


def test_trtllm_perf_overview(tmp_path: Path) -> None:
    rows, _ = rows_of(trtllm_perf_overview, tmp_path)
    full = find(rows, device="h100-sxm")
    assert (full["throughput"], full["throughput_unit"], full["devices"]) == (1401, "output tokens/s", 1)
    assert (full["dtype"], full["software"]) == ("fp8", '{"tensorrt_llm":"0.17"}')
    peak = find(rows, protocol="trtllm_perf_overview/peak")
    assert (peak["device"], peak["devices"], peak["batch"]) == ("a100-sxm4-80gb", 8, 64)
    assert (peak["throughput"], peak["throughput_unit"]) == (29, "output tokens/s/device")
    first = find(rows, protocol="trtllm_perf_overview/first-token")
    assert (first["ttft_ms"], first["throughput"], first["tokens_out"]) == (76.5, None, None)
    rtx = find(rows, device="rtx-pro-6000-server")
    assert (rtx["devices"], rtx["parallel"], rtx["dtype"]) == (4, '{"dp":2,"ep":2,"pp":2}', "fp4")
    assert rtx["device_reported"] == "RTX 6000 Pro Blackwell SE x4"
    new = find(rows, device="b200")
    assert (new["model"], new["source"], new["devices"]) == ("trtllm_perf_overview/new-1b", None, 4)


def test_a_split_of_another_kind_is_refused(tmp_path: Path) -> None:
    trtllm_perf_overview(tmp_path)
    path = tmp_path / "trtllm_perf_tidy.parquet"
    pd.read_parquet(path).assign(tp="XP3").to_parquet(path)
    with pytest.raises(ForerunError, match="XP3"):
        importers.load("trtllm_perf_overview", tmp_path)


def test_nemo_megatron_perf(tmp_path: Path) -> None:
    rows, _ = rows_of(nemo_megatron_perf, tmp_path)
    assert len(rows) == 6
    plain = find(rows, quantised="nvfp4")
    assert (plain["model"], plain["device"], plain["devices"]) == ("meta-llama/Meta-Llama-3-70B", "gb200", 64)
    assert (plain["throughput"], plain["throughput_unit"], plain["dtype"]) == (7296, "tokens/s/device", "fp4")
    assert plain["parallel"] == '{"cp":1,"micro_batch":2,"pp":4,"tp":2,"vp":5}'
    assert json.loads(plain["extra"])["footnote"] == "some-note"
    assert json.loads(plain["extra"])["model_tflops_per_device"] == 3000
    one, other = find(rows, quantised="fp8"), find(rows, quantised="fp8-mx")
    assert (one["throughput"], other["throughput"]) == (3986, 3546)
    assert (json.loads(one["parallel"])["tp"], json.loads(other["parallel"])["tp"]) == (1, 2)
    assert (json.loads(one["parallel"])["fsdp"], json.loads(other["parallel"])["fsdp"]) == (64, 0)
    assert json.loads(other["extra"])["model_tflops_per_device"] == 1593
    lora = find(rows, protocol="nemo_megatron_perf/lora")
    assert (lora["dtype"], lora["quantised"]) == ("bf16", None)
    dropping = find(rows, device="h100-sxm")
    assert dropping["protocol"] == "nemo_megatron_perf/pre-training/tokendrop"
    assert (dropping["model"], dropping["source"]) == ("nemo_megatron_perf/nemotron-3-super", None)
    assert find(rows, optimizer="muon")["quantised"] == "fp8-cs"


def test_llmfoundry_mfu(tmp_path: Path) -> None:
    rows, _ = rows_of(llmfoundry_mfu, tmp_path)
    fp8 = find(rows, device="h100-sxm")
    assert (fp8["model"], fp8["source"], fp8["parameters"]) == ("mosaicml/mpt-7b", "hf", 6_658_859_008)
    assert (fp8["throughput"], fp8["throughput_unit"], fp8["mfu"]) == (85_144, "tokens/s", 0.25)
    assert (fp8["dtype"], fp8["amp"], fp8["batch"], fp8["seq_len"]) == ("fp32", "fp8", 48, 2048)
    assert json.loads(fp8["parallel"]) == {
        "checkpointing": False, "fsdp": "full_shard", "grad_accum": 1, "micro_batch": 6, "mixed_precision": "default",
    }  # fmt: skip
    pure = find(rows, device="a100-sxm4-40gb")
    assert (pure["model"], pure["dtype"], pure["amp"]) == ("llmfoundry_mfu/mpt-125m", "bf16", None)


def test_mlperf_training(tmp_path: Path) -> None:
    rows, dropped = rows_of(mlperf_training, tmp_path)
    assert dropped == {"did not reach the target quality": 2, "the same run, submitted again": 1}
    bert = find(rows, protocol="mlperf_training/v3.1/bert")
    assert (bert["model"], bert["device"], bert["devices"]) == ("bert-large-uncased", "h100-sxm", 16)
    assert (bert["throughput"], bert["throughput_unit"], bert["time_to_train_s"]) == (7743.6, "samples/s", 331.6)
    assert (bert["host"], bert["batch"], bert["dtype"]) == ("ESC-N8-E11", 768, None)
    gpt3 = find(rows, model="mlperf_training/gpt3")
    assert (gpt3["throughput_unit"], gpt3["seq_len"]) == ("tokens/s", 2048)
    assert find(rows, throughput=286)["throughput_unit"] == "samples/s/device"
    assert find(rows, throughput=3800)["throughput_unit"] == "samples/s"
    lora = find(rows, model="meta-llama/Llama-2-70b-hf")
    assert (lora["device"], lora["throughput_unit"]) == ("h200-nvl", None)
    assert json.loads(lora["extra"])["lora_rank"] == 16
    cpu = find(rows, model="torchvision/resnet50")
    assert (cpu["device"], cpu["devices"], cpu["source"]) == ("xeon-8480", None, "torchvision")
    assert json.loads(cpu["extra"])["division"] == "open"


def test_the_key_tells_systems_apart(tmp_path: Path) -> None:
    mlperf_training(tmp_path)
    path = tmp_path / "runs.parquet"
    first = pd.read_parquet(path).iloc[:1]
    repeat = first.assign(run=1, seed=7.0, time_to_train_s=340.0)
    elsewhere = first.assign(system_name="another", seed=8.0, time_to_train_s=350.0)
    pd.concat([first, repeat, elsewhere]).to_parquet(path)
    keys = schema.keys("models", importers.load("mlperf_training", tmp_path).tables["models"])
    assert keys[0] == keys[1] != keys[2]


def test_devices_named_for_these_sets_are_in_the_catalogue() -> None:
    lacking = {"mi250", "sn40l", "h100-sxm-96gb", "h200-nvl"}
    names = [
        "AMD MI300X GPU", "AMD Instinct MI325X 256GB HBM3E DLC", "DGX-GB300", "Habana Gaudi2", "Intel PVC GPU",
        "NVIDIA Blackwell GPU (B200-SXM-180GB)", "NVIDIA H200-SXM5-141GB", "TPU-trillium", "AMD MI250 GPU",
    ]  # fmt: skip
    for name in names:
        device = _naming.device_id(name)
        assert _naming.known(device) == (device not in lacking), name


def test_columns_as_json_leave_out_what_is_null() -> None:
    frame = pd.DataFrame({"b": [2.0, None], "a": ["x", None]}, index=[5, 9])
    texts = _language.as_json(frame)
    assert list(texts) == ['{"a":"x","b":2}', None] and list(texts.index) == [5, 9]
    assert list(_language.sources(pd.Series([LLAMA, "nobody/nothing"])).isna()) == [False, True]
