"""timm's benchmark tables: time of one step close to the largest batch that fits, not latency at batch 1.

Training on RTX 3090 only. Times are the mean over 40 steps. `amp` is autocast to half precision over fp32 weights, in
inference as in training. The tables do not name the optimizer; the script that made them takes steps of SGD with
momentum. Layout, software and compiler come from the names of the files; the protocol `timm/channels_last` is that of
images and weights with their channels last.

Newer tables were made with merged branches and norms (`--reparam`), which is visible only in the number of parameters:
training uses the variant of the network with that number, and drops rows that match neither or both.

`results-imagenet.csv` has the accuracies of the published weights; they become rows of table `accuracies`.
"""

from __future__ import annotations

import functools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from forerun.data.importers._cases import one_row_a_case
from forerun.data.importers._files import matching, missing, read
from forerun.data.importers._naming import device_ids, dtype, vision_families
from forerun.data.importers._torch_training import torch_version, with_zero_grad
from forerun.data.importers.base import Importer, Loaded
from forerun.data.splits import in_turns
from forerun.errors import ForerunError
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
#: The protocols: images and weights with channels first, the default, or last.
_PLAIN, _CHANNELS_LAST = "timm", "timm/channels_last"
#: Tolerance between published and actual numbers of parameters; published ones are rounded to 10,000.
_SAME_PARAMETERS, _ROUNDED = 0.005, 5_001
_HERE = {"pro6000maxq": "rtx pro 6000 max-q"}


class TimmImporter(Importer):
    """Steps of vision models in inference and training; one or two models of each family are training data."""

    name = "timm"
    about = (
        "inference and training step time of about 1,470 timm models on GeForce and RTX PRO cards (autocast to half "
        "precision over fp32 weights, channels first and last) and two CPUs"
    )
    licence = "Apache-2.0"
    source = "https://github.com/huggingface/pytorch-image-models"
    commit = "aa4b5850c1543fa488abf260f18390eda46cf85d"

    #: The number of models in training; capturing all would take hours.
    training_models = 110
    #: Tables of newer cards are imported but not trained on, since they are held-out GPUs.
    training_devices = ("rtx3090", "rtx4090")

    def load(self, folder: Path) -> Loaded:
        loaded = Loaded({})
        raw = _read(folder)
        raw = loaded.drop(raw, raw["step_time"].isna(), "no time: the run failed")
        loaded.tables["models"] = _rows(raw)
        for path in matching(folder, "results", "results-imagenet.csv"):
            loaded.tables["accuracies"] = _accuracies(read(path), raw)
        return loaded

    def timing_group(self, rows: pd.DataFrame) -> pd.Series:
        return pd.Series("", index=rows.index, dtype=object)

    def model_rows(self, rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows[rows["device"].isin(self.training_devices)]
        return one_row_a_case(as_timed(_newest_and_smallest(rows, self.training_models)))

    def workload(self, row: dict[str, Any]) -> Workload:
        base = super().workload(row | {"optimizer": "momentum"})
        return replace(base, channels_last=row["protocol"] == _CHANNELS_LAST)

    def graph(self, workload: Workload, software: object = None) -> Graph:
        graph = super().graph(workload)
        return with_zero_grad(graph, software) if workload.mode == "training" else graph


def _read(folder: Path) -> pd.DataFrame:
    """The concatenated tables of `results/`, with the settings from the file names."""
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
    nhwc, size = raw["layout"] == "nhwc", raw["img_size"].astype("int64").astype(str)
    return pd.DataFrame(
        {
            "model": raw["model"],
            "source": "timm",
            "family": vision_families(raw["model"]),
            "parameters": raw["param_count"] * 1e6,
            "flops": raw["gmacs"] * 2e9 * raw["batch_size"],  # 2 per multiply-add, gmacs are per image
            "mode": raw["mode"].map(_MODES),
            "dtype": raw["precision"].mask(half.notna(), "fp32").map(dtype),
            "amp": half,
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
            "protocol": pd.Series(_PLAIN, raw.index).mask(nhwc, _CHANNELS_LAST),
            "extra": _extra(raw, nhwc),
        }
    )


def _accuracies(raw: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Accuracies of published weights; FLOPs per image come from the tables of times."""
    macs = timed.assign(network=timed["model"].str.split(".").str[0]).groupby(["network", "img_size"])["gmacs"].max()
    network = raw["model"].str.split(".").str[0]
    millions = raw["param_count"].astype(str).str.replace(",", "").astype(float)  # 1,012.59
    at = pd.MultiIndex.from_arrays([network, raw["img_size"]])
    return pd.DataFrame(
        {
            "model": raw["model"],
            "source": "timm",
            "evaluated_on": "imagenet-1k",
            "image_size": raw["img_size"],
            "parameters": millions * 1e6,
            "flops": macs.reindex(at).to_numpy() * 2e9,  # 2 per multiply-add
            "top1_accuracy": raw["top1"] / 100,
            "top5_accuracy": raw["top5"] / 100,
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


def _extra(raw: pd.DataFrame, nhwc: pd.Series) -> pd.Series:
    macts = ('"activations_m":' + raw["macts"].astype("string") + ",").fillna("")
    layout = pd.Series("", raw.index).mask(nhwc, '"channels_last":true,')
    return "{" + macts + layout + '"file":"' + raw["file"] + '"}'


def _newest_and_smallest(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    """The newest run of models that were run in every setting, at their smallest image size; names without weights.

    A setting is a device and a mode, eager and channels first; channels-last and compiled runs are added where they
    exist.
    """
    if rows.empty:
        return rows
    rows = rows.assign(
        model="timm/" + rows["model"].str.split(".").str[0],
        torch=rows["software"].map({s: torch_version(s) for s in rows["software"].unique()}),
        side=rows["input_shape"].map({s: json.loads(s)[-1] for s in rows["input_shape"].unique()}),
    )
    plain = rows[(rows["protocol"] == _PLAIN) & (rows["runtime"] == "eager")]
    setting = plain["device"] + "/" + plain["mode"]
    everywhere = setting.groupby(plain["model"]).nunique() == setting.nunique()
    plain = plain[plain["model"].map(everywhere)]
    chosen = _evenly(plain.drop_duplicates("model").set_index("model")["family"], count)
    rows = rows[rows["model"].isin(chosen)]
    run = ["device", "mode", "protocol", "runtime", "model"]
    rows = rows[rows["torch"] == rows.groupby(run)["torch"].transform("max")]
    smallest = rows["side"] == rows.groupby(run)["side"].transform("min")
    return rows[smallest].drop(columns=["torch", "side"])


def _evenly(families: pd.Series, count: int) -> set[str]:
    """Names drawn evenly over families, deterministically: one of each, then a second of each …"""
    mixed = families.fillna("unknown").sort_index().sample(frac=1, random_state=0)
    return set(in_turns(mixed)[:count])


def as_timed(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows under the name of the network that was timed, merged or not; ambiguous and unmatched rows are dropped."""
    facts = rows[["model", "input_shape", "mode", "parameters"]].itertuples(index=False, name=None)
    names = pd.Series([_network(*fact) for fact in facts], rows.index, dtype=object)
    return rows.assign(model=names)[names.notna()]


def _network(model: str, input_shape: str, mode: str, parameters: float) -> str | None:
    """The model or the model with merged branches, whichever has this number of parameters.

    None if neither matches, or both after rounding. A merged network can be a fraction of a percent smaller, so the
    closer one is used.
    """
    if parameters != parameters:  # not published: assume the plain network
        return model
    plain, merged = _parameters(model, input_shape)
    away = {model: abs(plain - parameters)}
    if merged != plain and mode != "training":  # no network is trained merged
        away[f"{model}?reparam=true"] = abs(merged - parameters)
    nearest = min(away, key=lambda name: away[name])
    if away[nearest] > max(_SAME_PARAMETERS * parameters, _ROUNDED):
        return None
    return nearest if sum(off <= _ROUNDED for off in away.values()) < 2 else None


@functools.cache
def _parameters(model: str, input_shape: str) -> tuple[float, float]:
    """Numbers of parameters of the plain and the merged model; infinite if it cannot be built."""
    from forerun.frontends.zoo import timm_parameters

    try:
        return timm_parameters(model, tuple(json.loads(input_shape)))
    except ForerunError:
        return math.inf, math.inf
