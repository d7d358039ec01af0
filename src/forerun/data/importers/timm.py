"""timm's own benchmark tables: time of one step at close to the largest batch that fits, not latency at batch 1.

Training on RTX 3090 only. Times are the mean over 40 steps. `amp` is autocast to fp16 over fp32 weights: of training it
makes amp = fp16, of inference dtype = fp16 with a note in `extra`. The tables do not name the optimizer; the script
that made them takes steps of SGD with momentum. Layout, software and compiler come from the names of the files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from forerun.data.importers._cases import one_row_a_case
from forerun.data.importers._files import matching, missing, read
from forerun.data.importers._naming import device_ids, dtype, vision_families
from forerun.data.importers._torch_training import torch_version, with_zero_grad
from forerun.data.importers.base import Importer, Loaded
from forerun.data.splits import in_turns
from forerun.graph.ir import Graph
from forerun.workload import Workload

_COLUMNS = [
    "device", "mode", "precision", "layout", "torch", "cuda", "compile", "model", "img_size", "batch_size",
    "step_time", "samples_per_sec", "param_count", "gmacs", "macts", "file",
]  # fmt: skip
#: benchmark-infer-amp-nchw-pt240-cu124-rtx4090-dynamo
_FILE = re.compile(
    r"benchmark-(?P<mode>infer|train)-(?P<precision>\w+)-(?P<layout>nchw|nhwc)-(?P<torch>pt\d+)-(?P<cuda>cu\d+|cpu)-"
    r"(?P<device>\w+?)(?:-(?P<compile>dynamo))?"
)
_MODES = {"infer": "inference", "train": "training"}
_RUNTIMES = {"eager": "eager", "dynamo": "compile"}
#: Autocast to half precision over fp32 weights.
_AUTOCAST = {"amp": "fp16", "amp_bf16": "bf16"}
_HERE = {"pro6000maxq": "rtx pro 6000 max-q"}


class TimmImporter(Importer):
    """Steps of vision models in inference and training; one or two models of each family are training data."""

    name = "timm"
    about = "inference and training step time of about 1,470 timm models on GeForce and RTX PRO cards and two CPUs"
    licence = "Apache-2.0"
    source = "https://github.com/huggingface/pytorch-image-models"
    commit = "aa4b5850c1543fa488abf260f18390eda46cf85d"

    #: How many models are training data; the whole set would take hours to capture.
    training_models = 110
    #: Tables of newer cards are imported and not trained on: they are GPUs that no weights have seen.
    training_devices = ("rtx3090", "rtx4090")

    def load(self, folder: Path) -> Loaded:
        loaded = Loaded({})
        raw = _read(folder)
        raw = loaded.drop(raw, raw["step_time"].isna(), "no time: the run failed")
        loaded.tables["models"] = _rows(raw)
        return loaded

    def timing_group(self, rows: pd.DataFrame) -> pd.Series:
        return pd.Series("", index=rows.index, dtype=object)

    def model_rows(self, rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows[(rows["protocol"] == "timm") & rows["device"].isin(self.training_devices)]
        return one_row_a_case(_newest_and_smallest(rows, self.training_models))

    def workload(self, row: dict[str, Any]) -> Workload:
        """The row as a workload, which has no autocast in inference: those rows stand as half precision throughout."""
        return super().workload(row | {"optimizer": "momentum"})

    def graph(self, workload: Workload, software: object = None) -> Graph:
        graph = super().graph(workload)
        return with_zero_grad(graph, software) if workload.mode == "training" else graph


def _read(folder: Path) -> pd.DataFrame:
    """The tables of `results/` below each other, with what the names of the files say."""
    copy = folder / "benchmarks.parquet"
    if copy.exists():
        return pd.read_parquet(copy, columns=_COLUMNS)
    parts = []
    for path in matching(folder, "results", "benchmark-*.csv"):
        named = _FILE.fullmatch(path.stem)
        if not named:
            raise ValueError(f"the name {path.name} is of another form")
        facts = named.groupdict()
        frame = read(path)
        frame.columns = frame.columns.str.removeprefix(f"{facts['mode']}_")
        facts["compile"] = facts["compile"] or "eager"
        facts["device"] = re.sub(r"^(?=\d)", "rtx", str(facts["device"]))  # 4090 and rtx4090 are the same card
        parts.append(frame.assign(**facts, file=path.stem).reindex(columns=_COLUMNS))
    if not parts:
        raise missing("results/benchmark-*.csv", "benchmarks.parquet")
    return pd.concat(parts, ignore_index=True)


def _rows(raw: pd.DataFrame) -> pd.DataFrame:
    half = raw["precision"].map(_AUTOCAST)
    autocast, training = half.notna(), raw["mode"] == "train"
    nhwc, size = raw["layout"] == "nhwc", raw["img_size"].astype("int64").astype(str)
    precision = raw["precision"].where(~autocast, half).map(dtype)
    return pd.DataFrame(
        {
            "model": raw["model"],
            "source": "timm",
            "family": vision_families(raw["model"]),
            "parameters": raw["param_count"] * 1e6,
            "flops": raw["gmacs"] * 2e9 * raw["batch_size"],  # 2 per multiply-add, gmacs are per image
            "mode": raw["mode"].map(_MODES),
            "dtype": precision.mask(autocast & training, "fp32"),
            "amp": half.where(training),
            "runtime": raw["compile"].map(_RUNTIMES),
            "batch": raw["batch_size"],
            "input_shape": "[3," + size + "," + size + "]",
            "devices": 1,
            "latency_ms": raw["step_time"],
            "throughput": raw["samples_per_sec"],
            "throughput_unit": "samples/s",
            "device": device_ids(raw["device"], _HERE),
            "device_reported": raw["device"],
            "software": _software(raw),
            "protocol": pd.Series("timm", raw.index).mask(nhwc, "timm/channels_last"),
            "extra": _extra(raw, nhwc, half.mask(training)),
        }
    )


def _software(raw: pd.DataFrame) -> pd.Series:
    """pt113 and cu117 in the name of a file are torch 1.13 and CUDA 11.7; pt240 is torch 2.4.0."""
    digits = raw["torch"].str.removeprefix("pt")
    torch = digits.where(digits.str[0] == "1", digits.str[:2] + "." + digits.str[2])
    torch = torch.str[0] + "." + torch.str[1:]
    cuda = raw["cuda"].str.extract(r"cu(\d+)(\d)$")
    cuda_part = ('"cuda":"' + cuda[0] + "." + cuda[1] + '",').fillna("")
    return "{" + cuda_part + '"torch":"' + torch + '"}'


def _extra(raw: pd.DataFrame, nhwc: pd.Series, autocast: pd.Series) -> pd.Series:
    macts = ('"activations_m":' + raw["macts"].astype("string") + ",").fillna("")
    notes = ('"autocast":"' + autocast.astype("string") + ' over fp32 weights",').fillna("")
    layout = pd.Series("", raw.index).mask(nhwc, '"channels_last":true,')
    return "{" + macts + notes + layout + '"file":"' + raw["file"] + '"}'


def _newest_and_smallest(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """The newest run of models that were run in every setting, at their smallest image; names without their weights."""
    if rows.empty:
        return rows
    rows = rows.assign(
        model="timm/" + rows["model"].str.split(".").str[0],
        torch=rows["software"].map({s: torch_version(s) for s in rows["software"].unique()}),
        side=rows["input_shape"].map({s: json.loads(s)[-1] for s in rows["input_shape"].unique()}),
    )
    setting = rows["device"] + "/" + rows["mode"]
    everywhere = setting.groupby(rows["model"]).nunique() == setting.nunique()
    rows = rows[rows["model"].map(everywhere)]
    chosen = _evenly(rows.drop_duplicates("model").set_index("model")["family"], count)
    rows = rows[rows["model"].isin(chosen)]
    newest = rows["torch"] == rows.groupby(["device", "mode", "model"])["torch"].transform("max")
    rows = rows[newest]
    smallest = rows["side"] == rows.groupby(["device", "mode", "model"])["side"].transform("min")
    return rows[smallest].drop(columns=["torch", "side"])


def _evenly(families: pd.Series, count: int) -> set[str]:
    """Names drawn evenly over families, the same every time: one of each, then a second of each …"""
    mixed = families.fillna("unknown").sort_index().sample(frac=1, random_state=0)
    return set(in_turns(mixed)[:count])
