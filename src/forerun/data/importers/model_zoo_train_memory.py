"""Model zoos of detection and segmentation: training memory as reported by the authors, and some times.

Memory is the peak of PyTorch's allocator on one GPU, in GB of one or two significant digits; batch is over all GPUs.
Training is fp32 unless the name of the config has amp or fp16 in it. Detectron2's time is the mean over the training,
one image at a time for inference; MMDetection's is the mean over 2,000 images of forward and post-processing, resized
to fit within a box (`extra`). These models can be rebuilt only with their frameworks.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers import _model_zoos as zoos
from forerun.data.importers._naming import device_id, device_ids, dtype, known
from forerun.data.importers.base import Importer, Loaded, Source
from forerun.device import load_device

DATASET = "model_zoo_train_memory"
#: OpenMMLab reports up to 28 GB on "V100" and 61 GB on "A100". Detectron2's are Big Basin's, of 16 GB.
_OPENMMLAB = {"V100": "v100-32gb", "A100": "a100-sxm4-80gb"}
_BRACKETS = str.maketrans("()", "[]")
_GPUS_X_BATCH = r"[_-](\d{1,2})xb?(\d{1,2})(?=[_.-])"


class ModelZooTrainMemoryImporter(Importer):
    """Training memory and some times; not used in training."""

    name = DATASET
    about = "training memory of Detectron2, MMDetection and MMSegmentation models; some training and inference times"
    licence = "Apache-2.0"
    source = "https://github.com/facebookresearch/detectron2"
    commit = "02b5c4e2"
    more_sources = (
        Source("https://github.com/open-mmlab/mmdetection", "cfd5d3a9"),
        Source("https://github.com/open-mmlab/mmsegmentation", "b040e147"),
    )

    def load(self, folder: Path) -> Loaded:
        loaded = Loaded({})
        parts = [
            *_detectron2(_table(folder, "detectron2", "detectron2_v100.parquet"), loaded),
            *_mmdetection(_table(folder, "mmdetection", "mmdetection.parquet"), loaded),
            *_mmsegmentation(_table(folder, "mmsegmentation", "mmsegmentation.parquet"), loaded),
        ]
        models = pd.concat(parts, ignore_index=True).assign(runtime="eager")
        have = {d: load_device(d).memory_mb for d in models["device"].unique() if known(d)}
        too_much = models["memory_allocated_mb"] > models["device"].map(have)
        loaded.tables["models"] = loaded.drop(models, too_much, "more memory than the named card has")
        return loaded


def _table(folder: Path, repository: str, copy: str) -> pd.DataFrame:
    """The table of a zoo, from its clone in the folder or from a Parquet copy."""
    if (folder / copy).exists():
        return pd.read_parquet(folder / copy)
    clone = folder / repository
    return zoos.detectron2(clone) if repository == "detectron2" else zoos.openmmlab(clone)


def _detectron2(raw: pd.DataFrame, loaded: Loaded) -> list[pd.DataFrame]:
    raw = loaded.drop(raw, raw["config"].isna(), "no config named")
    raw = loaded.drop(raw, raw.duplicated("config"), "listed twice")
    name = raw["config"].str.extract(r"configs/(.+)\.\w+$")[0]
    family = name.str.extract(r"/(?:scratch_)?(.+?)_(?:R|X|regnet)")[0].str.replace("_", "-")
    both = pd.DataFrame({
        "model": "detectron2/" + name, "source": "detectron2", "family": family, "dtype": "fp32",
        "device": device_id("V100"), "device_reported": "V100", "protocol": f"{DATASET}/detectron2",
    })  # fmt: skip
    training = both.assign(
        mode="training",
        devices=8,
        batch=pd.Series(16, raw.index).mask(name.str.startswith("Cityscapes"), 8),  # IMS_PER_BATCH of its config
        latency_ms=raw["train time (s/iter)"] * 1000,
        memory_allocated_mb=raw["train mem (GB)"] * 1024,
    )
    odd = raw["train time (s/iter)"].isna()
    training = loaded.drop(training, odd, "no time per iteration, and a batch that the table does not state")
    inference = both.assign(mode="inference", devices=1, batch=1, latency_ms=raw["inference time (s/im)"] * 1000)
    return [training, inference[inference["latency_ms"].notna()]]


def _mmdetection(raw: pd.DataFrame, loaded: Loaded) -> list[pd.DataFrame]:
    raw = loaded.drop(raw, raw["train_mem_gb"].isna() & raw["inf_ms"].isna(), "neither memory nor time")
    raw = loaded.drop(raw, raw.duplicated(["name", "train_mem_gb"]), "listed twice")
    timed = raw[raw["inf_ms"].notna()]
    inference = _openmmlab(timed, "mmdetection", timed["inf_hw"]).assign(
        mode="inference",
        devices=1,
        batch=timed["inf_bs"],
        dtype=timed["inf_mode"].map(dtype),
        latency_ms=timed["inf_ms"],
        extra='{"resized_within":' + timed["inf_res"].str.replace(" ", "").str.translate(_BRACKETS) + "}",
    )
    raw = raw[raw["train_mem_gb"].notna()]
    named = raw["config"].str.extract(_GPUS_X_BATCH).astype("float64")
    training = _training(raw, "mmdetection", loaded, raw["batch_size"].fillna(named[0] * named[1]))
    # By MMDetection's guide names without such a part mean 8xb2. SSD and the crop640 configs use more.
    by_default = training["batch"].isna() & (training["devices"] == 8)
    by_default &= ~training["model"].str.contains("/ssd|crop640")
    training["batch"] = training["batch"].mask(by_default, 16)
    training["extra"] = pd.Series('{"batch_source":"default of the framework"}', training.index).where(by_default)
    return [training, inference]


def _mmsegmentation(raw: pd.DataFrame, loaded: Loaded) -> list[pd.DataFrame]:
    raw = loaded.drop(raw, raw["train_mem_gb"].isna(), "neither memory nor time")
    raw = loaded.drop(raw, raw.duplicated("name", keep=False), "listed twice with different memory")
    training = _training(raw, "mmsegmentation", loaded, raw["batch_size"])
    crop = training["model"].str.extract(r"(\d+x\d+)$")[0]
    return [training.assign(input_shape="[3," + crop.str.replace("x", ",") + "]")]


def _training(raw: pd.DataFrame, zoo: str, loaded: Loaded, batch: pd.Series) -> pd.DataFrame:
    """Training rows of OpenMMLab: '8x V100 GPUs' are the devices, 8xb2 in a config's name devices and batch."""
    device = raw["train_resources"].str.extract(r"^(\d+)x (?:NVIDIA )?(.*[A-Za-z].*?) GPU")
    rows = _openmmlab(raw, zoo, device[1]).assign(
        mode="training",
        devices=device[0].astype("float64"),
        batch=batch,
        amp=pd.Series("fp16", raw.index).where(raw["config"].str.contains("amp-|fp16")),
        dtype="fp32",
        memory_allocated_mb=raw["train_mem_gb"] * 1024,
    )
    named = raw["config"].str.extract(_GPUS_X_BATCH)[0].astype("float64")
    disagree = named.notna() & rows["devices"].notna() & (named != rows["devices"])
    rows = loaded.drop(rows, disagree, "the table and the config name different numbers of GPUs")
    return loaded.drop(rows, rows["device"].isna(), "no device named")


def _openmmlab(raw: pd.DataFrame, zoo: str, gpu: pd.Series) -> pd.DataFrame:
    family = raw["collection"].str.lower().str.replace(" ", "-").str.replace("r-cnn", "rcnn")
    return pd.DataFrame({
        "model": f"{zoo}/" + raw["name"].str.removesuffix(".py"), "source": zoo, "family": family,
        "device": device_ids(gpu, _OPENMMLAB), "device_reported": gpu, "protocol": f"{DATASET}/{zoo}",
    })  # fmt: skip
