"""MosaicML's training benchmarks of MPT models (LLM Foundry): throughput and utilisation on A100 and H100 with FSDP.

Throughput is tokens/s of all GPUs together; `mfu` is a fraction of the peak of the precision used. `batch` is the
global batch; how it is cut up, sharding and checkpointing are in `parallel`.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers import Loaded
from forerun.data.importers._language import as_json
from forerun.data.importers._naming import device_ids

DATASET = "llmfoundry_mfu"
ABOUT = "training throughput and model FLOP utilisation of MPT models from 125M to 70B on 8 to 512 A100 and H100"
LICENCE = "Apache-2.0"
SOURCE = "github.com/mosaicml/llm-foundry @ 8c8dd48f72168c5d51e2f7b151595892a8fba43d, scripts/train/benchmarking"

DEVICES = {"a100_40gb": "a100-sxm4-40gb", "a100_80gb": "a100-sxm4-80gb", "h100_80gb": "h100-sxm"}
#: The released models, which differ in that they have ALiBi in place of learned positions.
MODELS = {"7b": "mosaicml/mpt-7b", "30b": "mosaicml/mpt-30b"}
#: What the tables say -> weights kept as, computed in.
PRECISIONS = {"amp_bf16": ("fp32", "bf16"), "amp_fp8": ("fp32", "fp8"), "bf16": ("bf16", None)}


def load(folder: Path) -> Loaded:
    frame = pd.read_parquet(folder / "llmfoundry_training_throughput.parquet")
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
    rows = pd.DataFrame({
        "protocol": DATASET, "device": device_ids(frame["GPU"], DEVICES), "device_said": frame["GPU"],
        "devices": frame["# GPUs"], "parallel": as_json(parallel),
        "model": frame["Model"].map(lambda size: MODELS.get(size, f"{DATASET}/mpt-{size}")),
        "source": frame["Model"].isin(MODELS).map({True: "hf", False: None}), "family": "mpt",
        "parameters": frame["NumParams"], "mode": "training", "runtime": "llm-foundry",
        "dtype": [weights for weights, _ in precision], "amp": [compute for _, compute in precision],
        "batch": frame["GlobalBatchSize"], "seq_len": frame["SeqLen (T)"],
        "throughput": frame["Throughput (T/s)"], "throughput_unit": "tokens/s", "mfu": frame["MFU"] / 100,
        "extra": as_json(notes),
    })  # fmt: skip
    return Loaded({"models": rows})
