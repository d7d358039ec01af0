"""Zeus (NSDI '23): training time and power of six workloads on four GPUs under power caps.

Time is per epoch (`epoch_s`), power is its average; the energy of an epoch is their product. Neither the number of
steps per epoch nor the dtype is published. Table curves holds, per run, the epochs in which validation accuracy first
reached each of a list of targets: `test_accuracy` is at least that. The GPU of those runs is not published.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers._files import matching, missing, read, table
from forerun.data.importers._naming import device_ids
from forerun.data.importers.base import Importer, Loaded

DATASET = "zeus_training_energy"
_TRACE = "examples/research_reproducibility/zeus_nsdi23/trace"

#: The caps end at 250 W, the limit of the PCIe cards (SXM2: 300 W), and V100 holds batches that 24 GB do not.
_HERE = {"v100": "v100-pcie-32gb", "p100": "p100-pcie-16gb", "rtx6000": "quadro-rtx-6000"}
#: network -> model, source, family. ShuffleNet is a variant for 32 x 32 images, not torchvision's.
_MODELS = {
    "resnet50": ("torchvision/resnet50", "torchvision", "resnet"),
    "bert_base_uncased": ("bert-base-uncased", "hf", "bert"),
    "shufflenetv2": (f"{DATASET}/shufflenetv2", "zeus", "shufflenetv2"),
    "deepspeech2": (f"{DATASET}/deepspeech2", "zeus", "deepspeech2"),
    "ncf": (f"{DATASET}/ncf", "zeus", "ncf"),
}
#: The data sets whose target is an accuracy; the others count word errors, F1 and ranking gain.
_ACCURACY = ("cifar100", "imagenet", "sentiment140")


class ZeusTrainingEnergyImporter(Importer):
    """Training by the epoch; not used in training."""

    name = DATASET
    about = "time per epoch and power against power cap of six training workloads on A40, P100, Quadro RTX 6000, V100"
    licence = "Apache-2.0"
    source = "https://github.com/ml-energy/zeus"
    commit = "75a8b9398034eb9baf74ca0a830c2c31bcce52cd"

    def load(self, folder: Path) -> Loaded:
        loaded = Loaded({})
        raw = _power(folder)
        loaded.tables["models"] = _named(raw).assign(
            mode="training",
            runtime="eager",
            optimizer=raw["optimizer"],
            devices=1,
            epoch_s=raw["time_per_epoch"],
            power_w=raw["average_power"],
            power_limit_w=raw["power_limit"],
            device=device_ids(raw["gpu"], _HERE),
            device_reported=raw["gpu"],
        )
        runs = table(folder, f"{_TRACE}/summary_train.csv", "summary_train.parquet")
        loaded.tables["curves"] = _curves(runs, loaded)
        return loaded


def _power(folder: Path) -> pd.DataFrame:
    """The concatenated power traces, summary_power_a40.csv …"""
    copy = folder / "zeus_power_all.parquet"
    if copy.exists():
        return pd.read_parquet(copy)
    traces = matching(folder, _TRACE, "summary_power_*.csv")
    if not traces:
        raise missing(f"{_TRACE}/summary_power_*.csv", copy.name)
    return pd.concat([read(path).assign(gpu=path.stem.rpartition("_")[2]) for path in traces], ignore_index=True)


def _named(raw: pd.DataFrame) -> pd.DataFrame:
    """The columns of a workload in both tables. The protocol names the data set: BERT was trained on two."""
    facts = pd.DataFrame([_MODELS[name] for name in raw["network"]], raw.index, ["model", "source", "family"])
    return facts.assign(batch=raw["batch_size"], protocol=f"{DATASET}/" + raw["dataset"])


def _curves(raw: pd.DataFrame, loaded: Loaded) -> pd.DataFrame:
    raw = loaded.drop(raw, ~raw["dataset"].isin(_ACCURACY), "targets in another measure than accuracy")
    raw = loaded.drop(raw, raw["target_epoch"].isna(), "targets that the run never reached")
    run = ["dataset", "network", "batch_size", "optimizer", "learning_rate", "run"]
    raw = raw.sort_values([*run, "target_metric"])
    lower = raw.duplicated([*run, "target_epoch"], keep="last")
    raw = loaded.drop(raw, lower, "targets below another one that was reached in the same epoch")
    case = (
        '{"dataset":"' + raw["dataset"] + '","learning_rate":' + raw["learning_rate"].astype(str)
        + ',"optimizer":"' + raw["optimizer"] + '","run":' + raw["run"].astype(str) + "}"
    )  # fmt: skip
    return _named(raw)[["model", "batch", "protocol"]].assign(
        case=case, epoch=raw["target_epoch"], test_accuracy=raw["target_metric"], extra='{"test_accuracy":"at least"}'
    )  # fmt: skip
