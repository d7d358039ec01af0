"""HELP: latency of three NAS search spaces on GPUs, server CPUs, phones and a Raspberry Pi.

Models are named after their architecture: nasbench201/<string>, fbnet/<22 block indices>, and for OFA
ofa/r<resolution>-d<5 depths>-k<20 kernel sizes>-e<20 expansions>, a digit each. One number per network and device,
in ms; neither dtype nor runtime is published. A column's suffix is the batch; columns without one (CPUs, phones) have
times of a single image, and batch 1 here.

If a NAS-Bench-201 cell has no path from its input to its output, the runtimes of HW-NAS-Bench (pixel3, raspi4)
optimised the network away: times are around 0.003 ms. PyTorch ran such networks, so its times are used.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from forerun.data.importers._naming import device_ids
from forerun.data.importers.base import Importer, Loaded

DATASET = "help_nas_latency"
_SPACES = ("nasbench201", "fbnet", "ofa")
_ESTIMATED = ("eyeriss", "fpga")
_FOLDING = ("pixel3", "raspi4")  # from HW-NAS-Bench
_PHONES = ("essential_ph", "pixel2", "samsung_a50", "samsung_s7")
#: titanx is the Pascal card: 1.2 times the time of a Titan Xp at batch 256, where the Maxwell one would take 1.6.
_HERE = {
    "titanx": "titan x pascal", "gold_6226": "xeon 6226", "gold_6240": "xeon 6240", "silver_4114": "xeon 4114",
    "silver_4210r": "xeon 4210r", "essential_ph": "essential phone", "pixel2": "pixel 2", "pixel3": "pixel 3",
    "samsung_a50": "galaxy a50", "samsung_s7": "galaxy s7", "raspi4": "raspberry pi 4",
}  # fmt: skip


class HelpNasLatencyImporter(Importer):
    """Calls of small networks; not used in training.

    The repository has lists pickled by torch (data/*/latency/*.pt). The importer reads one CSV file per search space,
    nasbench201_latency_ms.csv.gz and so on: a column `arch` and one per device.
    """

    name = DATASET
    about = "latency of NAS-Bench-201, FBNet and OFA networks on GPUs, server CPUs, phones and a Raspberry Pi"
    prepared = "one CSV file per search space (a column `arch` and one per device)"
    licence = "MIT"
    source = "https://github.com/HayeonLee/HELP"
    commit = "45f70eb92d0d735970a33b608d1544ad3c52f285"

    def load(self, folder: Path) -> Loaded:
        loaded = Loaded({})
        loaded.tables["models"] = pd.concat([_space(folder, space, loaded) for space in _SPACES], ignore_index=True)
        return loaded


def _space(folder: Path, space: str, loaded: Loaded) -> pd.DataFrame:
    wide = pd.read_csv(folder / f"{space}_latency_ms.csv.gz")
    wide["model"], wide["input_shape"] = _names(space, wide["arch"])
    wide["cut"] = _cut(wide["arch"]) if space == "nasbench201" else False
    rows = wide.drop(columns="arch").melt(["model", "input_shape", "cut"], var_name="column", value_name="latency_ms")
    rows = loaded.drop(rows, rows["column"].isin(_ESTIMATED), "eyeriss and fpga: estimates of a simulator, no clock")
    rows = loaded.drop(rows, rows["latency_ms"] < 0.1, "under 0.1 ms: not a time of such a network")
    folded = rows["cut"] & rows["column"].isin(_FOLDING)
    rows = loaded.drop(rows, folded, "pixel3 and raspi4: no path through the cell, and the runtime folded it away")
    # Everything else is constant within a column of the file: computed 27 times, not 400,000.
    columns = pd.DataFrame({"column": rows["column"].unique()})
    columns[["device_reported", "batch"]] = columns["column"].str.extract(r"^(.+?)(?:_(1|32|64|256))?$")
    columns["batch"] = columns["batch"].fillna("1").astype("int64")
    columns["device"] = device_ids(columns["device_reported"], _HERE)
    columns["extra"] = [_notes(space, name) for name in columns["device_reported"]]
    return rows.merge(columns, on="column").drop(columns=["column", "cut"]).assign(
        source=space, family=space, mode="inference", devices=1, protocol=f"{DATASET}/{space}"
    )  # fmt: skip


def _cut(arch: pd.Series) -> pd.Series:
    """Whether every path from a cell's input (node 0) to its output (node 3) contains a `none`."""
    # |0->1|+|0->2|1->2|+|0->3|1->3|2->3|
    present = arch.str.extractall(r"(\w+)~\d")[0].unstack() != "none"
    second = present[1] | (present[0] & present[2])
    return ~(present[3] | (present[0] & present[4]) | (second & present[5]))


def _names(space: str, arch: pd.Series) -> tuple[pd.Series, pd.Series | None]:
    """Model names, and input shapes if the architecture includes them."""
    if space == "nasbench201":
        return "nasbench201/" + arch, None
    if space == "fbnet":
        return "fbnet/" + arch.str.strip("[]").str.replace(", ", "-"), None
    parts = pd.DataFrame([json.loads(text) for text in arch], index=arch.index)
    size = parts["r"].astype(str)
    digits = {name: parts[name].map(lambda sizes: "".join(map(str, sizes))) for name in ("d", "ks", "e")}
    return (
        "ofa/r" + size + "-d" + digits["d"] + "-k" + digits["ks"] + "-e" + digits["e"],
        "[3," + size + "," + size + "]",
    )


def _notes(space: str, device: str) -> dict[str, str] | None:
    if device in _FOLDING:
        return {"measured_by": "HW-NAS-Bench"}
    if device in _PHONES:
        return {"resolution": "whole milliseconds"}
    if (space, device) == ("fbnet", "gold_6226"):
        return {"warning": "3.5 times gold_6240: another environment"}
    return None
