"""MosaicML's training benchmarks of MPT models (LLM Foundry): throughput and utilisation on A100 and H100 with FSDP.

Throughput is tokens/s of all GPUs together; `mfu` is a fraction of the peak of the precision used. `batch` is the
global batch; microbatches, sharding and checkpointing are in `parallel`.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers._files import matching, missing
from forerun.data.importers._language import as_json
from forerun.data.importers._markdown import tables
from forerun.data.importers._naming import device_ids
from forerun.data.importers.base import Importer, Loaded

DATASET = "llmfoundry_mfu"
DEVICES = {"a100_40gb": "a100-sxm4-40gb", "a100_80gb": "a100-sxm4-80gb", "h100_80gb": "h100-sxm"}
#: The released models, which differ in that they have ALiBi in place of learned positions.
MODELS = {"7b": "mosaicml/mpt-7b", "30b": "mosaicml/mpt-30b"}
#: Precision in the tables -> dtype of the weights, dtype of the arithmetic.
PRECISIONS = {"amp_bf16": ("fp32", "bf16"), "amp_fp8": ("fp32", "fp8"), "bf16": ("bf16", None)}


_TEXTS = ("section", "Model", "GPU", "Precision", "MP Mode", "Sharding Strategy")
_FLAGS = ("Activation Checkpointing", "Activation CPUOffload")


class LlmFoundryMfuImporter(Importer):
    """Training on many GPUs; not used in training."""

    name = DATASET
    about = "training throughput and model FLOP utilisation of MPT models from 125M to 70B on 8 to 512 A100 and H100"
    licence = "Apache-2.0"
    source = "https://github.com/mosaicml/llm-foundry"
    commit = "8c8dd48f72168c5d51e2f7b151595892a8fba43d"

    def load(self, folder: Path) -> Loaded:
        copy = folder / "llmfoundry_training_throughput.parquet"
        return Loaded({"models": _rows(pd.read_parquet(copy) if copy.exists() else _read(folder))})


def _read(folder: Path) -> pd.DataFrame:
    """The tables of scripts/train/benchmarking/README.md."""
    parts = [
        table.assign(section=headings[-1])
        for path in matching(folder, "scripts/train/benchmarking", "README.md")
        for headings, table in tables(path.read_text(encoding="utf-8"))
        if "Throughput (T/s)" in table
    ]
    if not parts:
        raise missing("scripts/train/benchmarking/README.md", "llmfoundry_training_throughput.parquet")
    frame = pd.concat(parts, ignore_index=True)
    flags = {name: frame[name].map({"True": True, "False": False}) for name in _FLAGS}
    numbers = {name: pd.to_numeric(frame[name]) for name in frame if name not in (*_TEXTS, *_FLAGS)}
    return frame.assign(**flags, **numbers)


def _rows(frame: pd.DataFrame) -> pd.DataFrame:
    precision = [PRECISIONS[name] for name in frame["Precision"]]
    parallel = pd.DataFrame({
        "fsdp": frame["Sharding Strategy"].str.lower(), "mixed_precision": frame["MP Mode"].str.lower(),
        "micro_batch": frame["MicroBatchSize"], "grad_accum": frame["GradAccum"],
        "checkpointing": frame["Activation Checkpointing"],
    })  # fmt: skip
    notes = pd.DataFrame({
        "hfu": frame["HFU"] / 100, "model_tflops_per_device": frame["Model TFLOP"],
        "cpu_offload": frame["Activation CPUOffload"], "section": frame["section"],
    })  # fmt: skip
    return pd.DataFrame({
        "protocol": DATASET, "device": device_ids(frame["GPU"], DEVICES), "device_reported": frame["GPU"],
        "devices": frame["# GPUs"], "parallel": as_json(parallel),
        "model": frame["Model"].map(lambda size: MODELS.get(size, f"{DATASET}/mpt-{size}")),
        "source": frame["Model"].isin(MODELS).map({True: "hf", False: None}), "family": "mpt",
        "parameters": frame["NumParams"], "mode": "training", "runtime": "llm-foundry",
        "dtype": [weights for weights, _ in precision], "amp": [compute for _, compute in precision],
        "batch": frame["GlobalBatchSize"], "seq_len": frame["SeqLen (T)"],
        "throughput": frame["Throughput (T/s)"], "throughput_unit": "tokens/s", "mfu": frame["MFU"] / 100,
        "extra": as_json(notes),
    })  # fmt: skip
