"""NVIDIA's performance summary of Megatron Bridge (NeMo): training throughput of language models on DGX systems.

Throughput is tokens/s/device as published; model TFLOP/s per device are in `extra`. A cell `37556 (36108)` holds two
measurements, the second in another FP8 recipe and, if the parallelism cells also have two numbers, with another
parallelism: it becomes two rows.
Container 25.09 does not state its precision; the page's footnote on the second numbers calls both
FP8. `dtype` is the widest class, `quantised` the recipe. Numbers tuned by the vendor.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from forerun.data.importers._files import matching, missing
from forerun.data.importers._language import as_json, families, model_names, sources
from forerun.data.importers._markdown import tables
from forerun.data.importers._naming import device_ids, slug
from forerun.data.importers.base import Importer, Loaded

DATASET = "nemo_megatron_perf"
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
#: Columns whose cells may hold two measurements.
PAIRED = [TOKENS, TFLOPS, "Precision", *PARALLEL]
COLUMNS = ["section", "System", "Model", "#-GPUs", "GBS", "Sequence Length", "container", *PAIRED]


class NemoMegatronPerfImporter(Importer):
    """Training on many GPUs; not used in training."""

    name = DATASET
    about = "vendor's tables of training throughput of 12 language models on 8 to 1,024 H100, B200, B300, GB200, GB300"
    licence = "Apache-2.0"
    source = "https://github.com/NVIDIA-NeMo/Megatron-Bridge"
    commit = "067f987df03b8355b03192d88d70f1709fedf51a"

    def load(self, folder: Path) -> Loaded:
        copy = folder / "tables_long.parquet"
        return Loaded({"models": _rows(pd.read_parquet(copy) if copy.exists() else _read(folder))})


def _read(folder: Path) -> pd.DataFrame:
    """The tables of docs/performance-summary*.md. Model or system, whichever is not a column, is in the heading."""
    parts = []
    for path in matching(folder, "docs", "performance-summary*.md"):
        for headings, table in tables(path.read_text(encoding="utf-8")):
            if TOKENS not in table:
                continue
            section = " > ".join(headings)
            facts = {"section": section, "container": re.search(r"([\d.]+) NeMo Container", section)}
            for name in ("Model", "System"):
                facts[name] = re.search(rf"> {name}: (.+)$", section)
            known = {name: fact[1] if isinstance(fact, re.Match) else fact for name, fact in facts.items() if fact}
            parts.append(table.assign(**{name: value for name, value in known.items() if name not in table}))
    if not parts:
        raise missing("docs/performance-summary*.md", "tables_long.parquet")
    frame = pd.concat(parts, ignore_index=True).reindex(columns=COLUMNS)
    numbers = ("#-GPUs", "GBS", "Sequence Length")
    return frame[frame[TOKENS].notna()].assign(**{name: pd.to_numeric(frame[name]) for name in numbers})


def _rows(table: pd.DataFrame) -> pd.DataFrame:
    footnote = table[TFLOPS].str.extract(r"\[\^(.+?)\]")[0]
    table[TFLOPS] = table[TFLOPS].str.replace(r"\[\^.+?\]", "", regex=True)
    table["Precision"] = table["Precision"].fillna("FP8 (FP8-MX)")
    both = {name: _two(table[name]) for name in PAIRED}
    first = table.assign(**{name: pair["first"] for name, pair in both.items()}, footnote=footnote)
    second = first.assign(**{name: pair["second"] for name, pair in both.items()})
    frame = pd.concat([first, second[table[TOKENS].str.contains("(", regex=False)]], ignore_index=True)

    named = frame["Model"].str.extract(r"^(?P<name>.+?)(?: \((?P<variant>.+)\))?$")
    model = model_names(named["name"], MODELS, DATASET)
    recipe = frame["Precision"].str.lower().astype(object)
    # "Performance Archive > 26.04 NeMo Container > LoRA Performance > Model: LLAMA3_70B"
    kind = frame["section"].str.extract(r"> (Pre-Training|SFT|LoRA) Performance")[0].str.lower()
    if kind.isna().any():
        raise ValueError("a section is none of Pre-Training, SFT and LoRA")
    notes = pd.DataFrame({
        "model_tflops_per_device": frame[TFLOPS].astype("float64"), "variant": named["variant"],
        "footnote": frame["footnote"], "model_reported": frame["Model"],
    })  # fmt: skip
    numbers = frame[list(PARALLEL)].rename(columns=PARALLEL).apply(pd.to_numeric)
    return pd.DataFrame({
        "protocol": f"{DATASET}/" + kind + ("/" + named["variant"].map(slug, na_action="ignore")).fillna(""),
        "device": device_ids(frame["System"]), "device_reported": frame["System"], "devices": frame["#-GPUs"],
        "parallel": as_json(numbers), "model": model, "source": sources(model), "family": families(model),
        "mode": "training", "runtime": "megatron", "software": as_json({"nemo_container": frame["container"]}),
        "dtype": [DTYPES[name] for name in frame["Precision"]], "quantised": recipe.mask(recipe == "bf16", None),
        "optimizer": (named["name"] == "Kimi_K2").map({True: "muon", False: None}),  # a footnote of the page
        "batch": frame["GBS"], "seq_len": frame["Sequence Length"],
        "throughput": frame[TOKENS].astype("float64"), "throughput_unit": "tokens/s/device", "extra": as_json(notes),
    })  # fmt: skip


def _two(cells: pd.Series) -> pd.DataFrame:
    """`4 (8)` -> 4 and 8; a single value applies to both."""
    pairs = cells.astype("string").str.extract(r"^(?P<first>[^(]+?)(?: \((?P<second>.+)\))?$")
    return pairs.assign(second=pairs["second"].fillna(pairs["first"]))
