"""NVIDIA's performance overview of TensorRT-LLM, versions 0.9, 0.17 and February 2026: offline throughput tables.

Throughput counts generated tokens: of the whole instance in version 0.17, per GPU in the other two. Version 0.9 also
has the time to the first token at batch 1 (`ttft_ms`); only that version states its batch. Numbers tuned by the vendor.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers._language import as_json, families, model_names, sources
from forerun.data.importers._naming import device_ids, dtype
from forerun.data.importers.base import Importer, Loaded, Source

DATASET = "trtllm_perf_overview"
#: Version 0.17 names A100-SXM4-80GB; version 0.9 runs Falcon 180B in FP16 (360 GB) on eight, so they are of 80 GB too.
DEVICES = {"A100": "a100-sxm4-80gb", "H100": "h100-sxm"}
MODELS = {
    "Deepseek R1 0528": "deepseek-ai/DeepSeek-R1-0528", "Falcon 180B": "tiiuae/falcon-180B",
    "GPT-J 6B": "EleutherAI/gpt-j-6b", "GPT-OSS 120B": "openai/gpt-oss-120b", "GPT-OSS 20B": "openai/gpt-oss-20b",
    "LLaMA 7B": "meta-llama/Llama-2-7b-hf", "LLaMA 70B": "meta-llama/Llama-2-70b-hf",  # of April 2024
    "LLaMA v3.1 8B": "meta-llama/Llama-3.1-8B", "LLaMA v3.1 70B": "meta-llama/Llama-3.1-70B",
    "LLaMA v3.1 405B": "meta-llama/Llama-3.1-405B", "LLaMA v3.3 70B": "meta-llama/Llama-3.3-70B-Instruct",
    "LLaMA v4 Maverick": "meta-llama/Llama-4-Maverick-17B-128E", "Mistral 7B": "mistralai/Mistral-7B-v0.1",
    "Mixtral 8x7B": "mistralai/Mixtral-8x7B-v0.1", "Mixtral 8x22B": "mistralai/Mixtral-8x22B-v0.1",
    "Qwen3 30B A3B": "Qwen/Qwen3-30B-A3B", "Qwen3 235B A22B": "Qwen/Qwen3-235B-A22B",
}  # fmt: skip
#: Version 0.17 writes tokens/s; they are generated ones: 2048 tokens in and 128 out give an eighth of 128 in, 128 out.
UNITS = {
    "token_throughput_tok_s_whole_instance": "output tokens/s", "output_tok_s_per_gpu": "output tokens/s/device",
    "ttft_ms": None,
}  # fmt: skip
PROTOCOLS = {"offline max-throughput": "max-throughput", "Peak Throughput": "peak", "Low Latency": "first-token"}


class TrtllmPerfOverviewImporter(Importer):
    """Throughput of serving; not used in training.

    The three documents (docs/source/performance/perf-overview.md of each version) have tables of different layouts. The
    importer reads one table compiled from them by hand, trtllm_perf_tidy.parquet.
    """

    name = DATASET
    about = "vendor's tables of maximum throughput of 17 language models in TensorRT-LLM on NVIDIA GPUs, A100 to GB200"
    prepared = "one Parquet table of all versions (trtllm_perf_tidy.parquet)"
    licence = "Apache-2.0"
    source = "https://github.com/WhiteD2125/TensorRT-LLM"  # a fork at version 0.9
    commit = "39756de0264354c9de20c0534d1938d92693a3c0"
    more_sources = (
        Source("https://github.com/arthurrasmusson/TensorRT-LLM", "1d3a5d38afb911b28cffe4cda71679918d7db922"),  # 0.17
        Source("https://github.com/dominicshanshan/TensorRT-LLM", "f86656ffc6648ed6d37331614131384a073ba96a"),  # 2026
    )

    def load(self, folder: Path) -> Loaded:
        return Loaded({"models": _rows(pd.read_parquet(folder / "trtllm_perf_tidy.parquet"))})


def _rows(frame: pd.DataFrame) -> pd.DataFrame:
    model = model_names(frame["model"], MODELS, DATASET)
    split = _split(frame["tp"])
    unit = frame["metric"].map(lambda name: UNITS[name])
    first = frame["metric"] == "ttft_ms"
    return pd.DataFrame({
        "protocol": frame["mode"].map(lambda name: f"{DATASET}/{PROTOCOLS[name]}"),
        "device": device_ids(frame["gpu"].str.replace(r" x\d+$", "", regex=True), DEVICES),
        "device_reported": frame["gpu"],
        "devices": split.fillna({"pp": 1})[["tp", "dp", "pp"]].prod(axis=1), "parallel": as_json(split),
        "model": model, "source": sources(model), "family": families(model), "mode": "serving",
        "runtime": "trt-llm", "software": as_json({"tensorrt_llm": frame["trtllm"]}),
        "dtype": frame["precision"].map(dtype), "batch": frame["batch"],
        "seq_len": frame["isl"], "tokens_out": frame["osl"],
        "throughput": frame["value"].mask(first), "throughput_unit": unit, "ttft_ms": frame["value"].where(first),
    })  # fmt: skip


def _split(cells: pd.Series) -> pd.DataFrame:
    """The degrees of parallelism: `4`, `4.0`, `TP1,PP2`; DEP4 is data-parallel attention, expert-parallel experts."""
    plain = cells.str.replace(r"\.0$", "", regex=True).str.replace(r"^(\d+)$", r"TP\1", regex=True)
    parallel = {name: plain.str.extract(rf"\b{name.upper()}(\d+)")[0].astype("float64") for name in ("tp", "dep", "pp")}
    unclear = cells[parallel["tp"].isna() == parallel["dep"].isna()]
    if len(unclear):
        raise ValueError(f"column tp has {', '.join(sorted(unclear.unique()))}")
    return pd.DataFrame({"tp": parallel["tp"], "dp": parallel["dep"], "ep": parallel["dep"], "pp": parallel["pp"]})
