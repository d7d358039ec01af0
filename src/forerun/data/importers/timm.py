"""timm's own benchmark tables: time of one step at close to the largest batch that fits, not latency at batch 1.

Inference on RTX 3090, RTX 4090 and two CPUs, training on RTX 3090 only. Times are the mean over 40 steps. `amp` is
autocast to fp16 over fp32 weights: of training it makes amp = fp16, of inference dtype = fp16 with a note in `extra`.
The tables do not name the optimizer. Layout, software and compiler come from the names of the original files.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers import Loaded
from forerun.data.importers._naming import device_ids, vision_families

DATASET = "timm"
ABOUT = "inference and training step time of about 1,470 timm models on RTX 3090, RTX 4090 and two CPUs"
LICENCE = "Apache-2.0"
SOURCE = "https://github.com/huggingface/pytorch-image-models results/ @ aa4b5850c1543fa488abf260f18390eda46cf85d"

_COLUMNS = [
    "device", "mode", "precision", "layout", "torch", "cuda", "compile", "model", "img_size", "batch_size",
    "step_time", "samples_per_sec", "param_count", "gmacs", "macts", "file",
]  # fmt: skip
_MODES = {"infer": "inference", "train": "training"}
_RUNTIMES = {"eager": "eager", "dynamo": "compile"}


def load(folder: Path) -> Loaded:
    loaded = Loaded({})
    raw = pd.read_parquet(folder / "benchmarks.parquet", columns=_COLUMNS)
    raw = loaded.drop(raw, raw["step_time"].isna(), "no time: the run failed")
    amp, training = raw["precision"] == "amp", raw["mode"] == "train"
    nhwc, size = raw["layout"] == "nhwc", raw["img_size"].astype(str)
    loaded.tables["models"] = pd.DataFrame(
        {
            "model": raw["model"],
            "source": "timm",
            "family": vision_families(raw["model"]),
            "parameters": raw["param_count"] * 1e6,
            "flops": raw["gmacs"] * 2e9 * raw["batch_size"],  # 2 per multiply-add, gmacs are per image
            "mode": raw["mode"].map(_MODES),
            "dtype": raw["precision"].mask(amp, "fp16").mask(amp & training, "fp32"),
            "amp": pd.Series("fp16", raw.index).where(amp & training),
            "runtime": raw["compile"].map(_RUNTIMES),
            "batch": raw["batch_size"],
            "input_shape": "[3," + size + "," + size + "]",
            "devices": 1,
            "latency_ms": raw["step_time"],
            "throughput": raw["samples_per_sec"],
            "throughput_unit": "samples/s",
            "device": device_ids(raw["device"]),
            "device_said": raw["device"],
            "software": _software(raw),
            "protocol": pd.Series("timm", raw.index).mask(nhwc, "timm/channels_last"),
            "extra": _extra(raw, nhwc, amp & ~training),
        }
    )
    return loaded


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
    notes = pd.Series("", raw.index).mask(autocast, '"autocast":"fp16 over fp32 weights",')
    layout = pd.Series("", raw.index).mask(nhwc, '"channels_last":true,')
    return "{" + macts + notes + layout + '"file":"' + raw["file"] + '"}'
