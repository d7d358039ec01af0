"""NVIDIA's performance summary of Megatron Bridge (NeMo): training throughput of language models on DGX systems.

Throughput is tokens/s/device as published; model TFLOP/s per device are in `extra`. A cell `37556 (36108)` holds two
measurements, the second in another FP8 recipe and, where cells of the split have two numbers too, with another split:
it becomes two rows. Container 25.09 does not say its precision; the page's footnote on the second numbers calls both
FP8. `dtype` is the widest class, `quantised` the recipe. Numbers tuned by the vendor.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers import Loaded
from forerun.data.importers._language import as_json, families, model_names, sources
from forerun.data.importers._naming import device_ids, slug

DATASET = "nemo_megatron_perf"
ABOUT = "vendor's tables of training throughput of 12 language models on 8 to 1,024 H100, B200, B300, GB200 and GB300"
LICENCE = "Apache-2.0"
SOURCE = (
    "github.com/NVIDIA-NeMo/Megatron-Bridge @ 067f987df03b8355b03192d88d70f1709fedf51a, docs/performance-summary*.md"
)

MODELS = {
    "DeepSeekV3": "deepseek-ai/DeepSeek-V3", "DeepSeekV4 Flash": "deepseek-ai/DeepSeek-V4-Flash",
    "GPT OSS 120B": "openai/gpt-oss-120b", "Kimi_K2": "moonshotai/Kimi-K2-Instruct",
    "LLAMA3.1_405B": "meta-llama/Llama-3.1-405B", "LLAMA3_70B": "meta-llama/Meta-Llama-3-70B",
    "LLAMA3_8B": "meta-llama/Meta-Llama-3-8B", "Qwen3_235B_a22B": "Qwen/Qwen3-235B-A22B",
    "Qwen3_30B_a3B": "Qwen/Qwen3-30B-A3B",
}  # fmt: skip
DTYPES = {"BF16": "bf16", "FP8": "fp8", "MXFP8": "fp8", "FP8-MX": "fp8", "FP8-CS": "fp8", "NVFP4": "fp4"}
TOKENS, TFLOPS = "Tokens / sec / GPU", "Model TFLOP / sec / GPU"
PARALLEL = {
    "TP": "tp", "PP": "pp", "CP": "cp", "VP": "vp", "EP": "ep", "FSDP": "fsdp", "MBS": "micro_batch",
    "GA": "grad_accum",
}  # fmt: skip
TWICE = [TOKENS, TFLOPS, "Precision", *PARALLEL]


def load(folder: Path) -> Loaded:
    table = pd.read_parquet(folder / "tables_long.parquet")
    footnote = table[TFLOPS].str.extract(r"\[\^(.+?)\]")[0]
    table[TFLOPS] = table[TFLOPS].str.replace(r"\[\^.+?\]", "", regex=True)
    table["Precision"] = table["Precision"].fillna("FP8 (FP8-MX)")
    both = {name: _two(table[name]) for name in TWICE}
    first = table.assign(**{name: pair["first"] for name, pair in both.items()}, footnote=footnote)
    second = first.assign(**{name: pair["second"] for name, pair in both.items()})
    frame = pd.concat([first, second[table[TOKENS].str.contains("(", regex=False)]], ignore_index=True)

    said = frame["Model"].str.extract(r"^(?P<name>.+?)(?: \((?P<variant>.+)\))?$")
    model = model_names(said["name"], MODELS, DATASET)
    recipe = frame["Precision"].str.lower().astype(object)
    # "Performance Archive > 26.04 NeMo Container > LoRA Performance > Model: LLAMA3_70B"
    kind = frame["section"].str.extract(r"> (Pre-Training|SFT|LoRA) Performance")[0].str.lower()
    if kind.isna().any():
        raise ValueError("a section is none of Pre-Training, SFT and LoRA")
    notes = pd.DataFrame({
        "model_tflops_per_device": frame[TFLOPS].astype("float64"), "variant": said["variant"],
        "footnote": frame["footnote"], "model_said": frame["Model"],
    })  # fmt: skip
    numbers = frame[list(PARALLEL)].rename(columns=PARALLEL).apply(pd.to_numeric)
    rows = pd.DataFrame({
        "protocol": f"{DATASET}/" + kind + ("/" + said["variant"].map(slug, na_action="ignore")).fillna(""),
        "device": device_ids(frame["System"]), "device_said": frame["System"], "devices": frame["#-GPUs"],
        "parallel": as_json(numbers), "model": model, "source": sources(model), "family": families(model),
        "mode": "training", "runtime": "megatron", "software": as_json({"nemo_container": frame["container"]}),
        "dtype": [DTYPES[name] for name in frame["Precision"]], "quantised": recipe.mask(recipe == "bf16", None),
        "optimizer": (said["name"] == "Kimi_K2").map({True: "muon", False: None}),  # a footnote of the page
        "batch": frame["GBS"], "seq_len": frame["Sequence Length"],
        "throughput": frame[TOKENS].astype("float64"), "throughput_unit": "tokens/s/device", "extra": as_json(notes),
    })  # fmt: skip
    return Loaded({"models": rows})


def _two(cells: pd.Series) -> pd.DataFrame:
    """`4 (8)` -> 4 and 8; a cell with one value holds for both."""
    found = cells.astype("string").str.extract(r"^(?P<first>[^(]+?)(?: \((?P<second>.+)\))?$")
    return found.assign(second=found["second"].fillna(found["first"]))
