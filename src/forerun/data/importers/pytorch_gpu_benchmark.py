"""pytorch-gpu-benchmark: torchvision models at 224 x 224 on consumer and data-centre GPUs of NVIDIA and AMD.

Times of 50 iterations (20 in the oldest files): mean, median and minimum. Training is forward, loss and backward
without an optimizer step. Several GPUs run under DataParallel with 12 images each. Every device was measured by a
different contributor between 2019 and 2025 with different software versions, which are not read.

In the oldest files (20 iterations) the images are already on the GPU; in all others eight processes load images
concurrently, and the time includes copying them to the GPU.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forerun.data.importers._cases import one_row_a_case
from forerun.data.importers._files import matching, missing, read
from forerun.data.importers._naming import device_ids, dtype, vision_families
from forerun.data.importers._torch_training import with_zero_grad
from forerun.data.importers.base import Importer, Loaded
from forerun.graph.ir import Graph
from forerun.workload import Workload

DATASET = "pytorch_gpu_benchmark"
FEW = f"{DATASET}/20-iterations"
#: Pageable memory to the GPU over PCIe, GB/s. An RTX 2080 Ti was measured with and without copies: the smallest models
#: take 1.8 to 2.0 ms longer with, in half precision half of that.
COPY_GBS = 4.0
_ITEM_BYTES = {"fp32": 4, "fp16": 2}
_MODES = {"inference": "inference", "train": "training"}
#: Folders with a second run of a card: with more iterations, or another build of the software.
_HERE = {"GeForce_RTX_2080_TI_V2": "rtx2080ti", "AMD_Radeon_RX_7700S_NO_OPT": "AMD_Radeon_RX_7700S"}
#: Measured by February 2021 according to the project's changelog, and so before PyTorch 2.
_EARLY = (
    "A100_SXM4_40GB", "GeForce_GTX_1080_TI", "GeForce_RTX_2060_MaxQ", "GeForce_RTX_2080_TI", "GeForce_RTX_2080_TI_V2",
    "GeForce_RTX_3090", "TITAN_RTX", "TITAN_V", "TITAN_XP",
)  # fmt: skip
#: TITAN_RTX__2X__half_model_train_benchmark.csv
_FILE = re.compile(
    r"(?P<device>.+?)(?:__(?P<n_gpu>\d)X)?__(?P<precision>half|float|double)_model_(?P<mode>inference|train)_benchmark"
)
#: The README's settings, for tables without a config.json.
_BATCH, _SIZE = 12, 224


class PytorchGpuBenchmarkImporter(Importer):
    """Calls of torchvision models; those in fp32 and fp16 on one GPU are training data."""

    name = DATASET
    about = "inference and training time of 35 torchvision models in fp16, fp32 and fp64 on 1 to 4 GPUs of 16 types"
    licence = "MIT"
    source = "https://github.com/lamikr/pytorch-gpu-benchmark"
    commit = "43d16131b692f0b2bece0bbbbb3d75c73816d437"

    def load(self, folder: Path) -> Loaded:
        return Loaded({"models": _rows(_read(folder))})

    def timing_group(self, rows: pd.DataFrame) -> pd.Series:
        return pd.Series("", index=rows.index, dtype=object)

    def model_rows(self, rows: pd.DataFrame) -> pd.DataFrame:
        cases = one_row_a_case(rows[rows["dtype"].isin(_ITEM_BYTES)])
        return cases.assign(copy_ms=_copy_ms(cases))

    def workload(self, row: dict[str, Any]) -> Workload:
        """The row as a workload, which always has an optimizer; `graph` omits its step."""
        return super().workload(row | {"optimizer": "sgd"})

    def graph(self, workload: Workload, software: object = None) -> Graph:
        graph = super().graph(workload)
        if workload.mode != "training":
            return graph
        return with_zero_grad(replace(graph, ops=[op for op in graph.ops if op.phase != "optimizer"]), software)


def _read(folder: Path) -> pd.DataFrame:
    """One row per table of iterations and model: a column of each file."""
    copy = folder / "benchmarks.parquet"
    if copy.exists():
        return pd.read_parquet(copy)
    parts = []
    for path in matching(folder, "results", "*/*/*_benchmark.csv"):
        named = _FILE.fullmatch(path.stem)
        if not named:  # float2 and the like: runs that the project's figures omit
            continue
        times = read(path)
        config = path.with_name("config.json")
        settings = json.loads(config.read_text()) if config.exists() else {}
        # In ms over the iterations of each model.
        stats = {"mean": times.mean(), "median": times.median(), "min": times.min(), "std": times.std(ddof=0)}
        frame = pd.DataFrame({f"ms_{name}": values for name, values in stats.items()})
        facts = {**named.groupdict(), "n_gpu": int(named["n_gpu"] or 1), "n_samples": times.count(), "img_size": _SIZE,
                 "batch_per_gpu": float(settings.get("BATCH_SIZE", _BATCH)), "num_classes": settings.get("NUM_CLASSES"),
                 "batch_source": "config.json" if config.exists() else "README"}  # fmt: skip
        parts.append(frame.assign(**facts).rename_axis("model").reset_index())
    if not parts:
        raise missing("results/*/*/*_benchmark.csv", copy.name)
    return pd.concat(parts, ignore_index=True)


def _rows(raw: pd.DataFrame) -> pd.DataFrame:
    gpus, size = raw["n_gpu"], raw["img_size"].astype(str)
    many = gpus > 1
    protocol = pd.Series(DATASET, raw.index).mask(raw["n_samples"] == 20, FEW)
    return pd.DataFrame(
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
            "device_reported": raw["device"],
            "software": pd.Series(None, raw.index, dtype=object).mask(raw["device"].isin(_EARLY), '{"torch":"1"}'),
            "protocol": protocol.mask(raw["device"].str.endswith("_NO_OPT"), f"{DATASET}/no-opt-build"),
            "extra": _extra(raw),
        }
    )


def _extra(raw: pd.DataFrame) -> pd.Series:
    """Caveats of the row: unverified batch size, another number of classes, no optimizer."""
    empty = pd.Series("", raw.index)
    batch = empty.mask(raw["batch_source"] != "config.json", '"batch_source":"README, not verified",')
    classes = empty.mask(raw["num_classes"] == 200, '"classes":200,')
    step = empty.mask(raw["mode"] == "train", '"optimizer_step":false,')
    return "{" + batch + classes + step + '"std_ms":' + raw["ms_std"].round(4).astype(str) + "}"


def _copy_ms(cases: pd.DataFrame) -> np.ndarray:
    """The time of copying the images, if the measured time includes it."""
    sizes = {shape: float(np.prod(json.loads(shape))) for shape in cases["input_shape"].unique()}
    pixels = cases["input_shape"].map(sizes).astype("float64")  # also when there are no cases
    item_bytes = cases["dtype"].map(_ITEM_BYTES).astype("float64")
    copied = pixels * cases["batch"] * item_bytes
    timed = ~cases["protocol"].str.endswith("/20-iterations")
    return (copied / COPY_GBS / 1e6).where(timed, 0.0).to_numpy(dtype=float)
