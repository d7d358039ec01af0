"""pytorch-gpu-benchmark: torchvision models at 224 x 224 on consumer and data-centre GPUs of NVIDIA and AMD.

Times of 50 iterations (20 in the oldest files): mean, median and minimum. Training is forward, loss and backward
without an optimizer step. Several GPUs run under DataParallel with 12 images each. Every device was measured by
somebody else between 2019 and 2025 with other software, which the copy that is read does not name.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers import Loaded
from forerun.data.importers._naming import device_ids, dtype, vision_families

DATASET = "pytorch_gpu_benchmark"
ABOUT = "inference and training time of 35 torchvision models in fp16, fp32 and fp64 on 1 to 4 GPUs of 16 types"
LICENCE = "MIT"
SOURCE = "https://github.com/lamikr/pytorch-gpu-benchmark results/ @ 43d16131b692f0b2bece0bbbbb3d75c73816d437"

_MODES = {"inference": "inference", "train": "training"}
#: Folders that are a second run of a card: with more iterations, with another build of the software.
_HERE = {"GeForce_RTX_2080_TI_V2": "rtx2080ti", "AMD_Radeon_RX_7700S_NO_OPT": "AMD_Radeon_RX_7700S"}
#: Measured by February 2021, as the project's log of changes says, and so before the second PyTorch.
_EARLY = (
    "A100_SXM4_40GB", "GeForce_GTX_1080_TI", "GeForce_RTX_2060_MaxQ", "GeForce_RTX_2080_TI", "GeForce_RTX_2080_TI_V2",
    "GeForce_RTX_3090", "TITAN_RTX", "TITAN_V", "TITAN_XP",
)  # fmt: skip


def load(folder: Path) -> Loaded:
    raw = pd.read_parquet(folder / "benchmarks.parquet")
    gpus, size = raw["n_gpu"], raw["img_size"].astype(str)
    many = gpus > 1
    protocol = pd.Series(DATASET, raw.index).mask(raw["n_samples"] == 20, f"{DATASET}/20-iterations")
    models = pd.DataFrame(
        {
            "model": "torchvision/" + raw["model"],
            "source": "torchvision",
            "family": vision_families(raw["model"]),
            "mode": raw["mode"].map(_MODES),
            "dtype": raw["precision"].map(dtype),
            "runtime": "eager",
            "batch": raw["batch_per_gpu"] * gpus,
            "input_shape": "[3," + size + "," + size + "]",
            "devices": gpus,
            "parallel": ('{"dp":' + gpus.astype(str) + "}").where(many),
            "latency_ms": raw["ms_mean"],
            "latency_median_ms": raw["ms_median"],
            "latency_min_ms": raw["ms_min"],
            "device": device_ids(raw["device"], _HERE),
            "device_said": raw["device"],
            "software": pd.Series(None, raw.index, dtype=object).mask(raw["device"].isin(_EARLY), '{"torch":"1"}'),
            "protocol": protocol.mask(raw["device"].str.endswith("_NO_OPT"), f"{DATASET}/no-opt-build"),
            "extra": _extra(raw),
        }
    )
    return Loaded({"models": models})


def _extra(raw: pd.DataFrame) -> pd.Series:
    """What the row needs to be read rightly: unverified batch sizes, another number of classes, no optimizer."""
    empty = pd.Series("", raw.index)
    batch = empty.mask(raw["batch_source"] != "config.json", '"batch_source":"README, not verified",')
    classes = empty.mask(raw["num_classes"] == 200, '"classes":200,')
    step = empty.mask(raw["mode"] == "train", '"optimizer_step":false,')
    return "{" + batch + classes + step + '"std_ms":' + raw["ms_std"].round(4).astype(str) + "}"
