"""Splitwise: prompt time and time per token of Llama 2 70B and BLOOM 176B on DGX machines.

`ttft_ms` is the prompt's time, `tpot_ms` the time per further token, `latency_ms` the whole request; five repeats of
each case. Runs that ended before the requested tokens have only the first two.
Power is published for the A100 only, as a fraction of an unspecified value, and is kept in `extra`.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers._files import table
from forerun.data.importers._language import as_json, families
from forerun.data.importers._naming import device_ids
from forerun.data.importers.base import Importer, Loaded

DATASET = "splitwise"

DEVICES = {"a100-80gb": "a100-sxm4-80gb", "h100-80gb": "h100-sxm"}  # DGX machines, as the README states
MODELS = {"llama2-70b": "meta-llama/Llama-2-70b-hf", "bloom-176b": "bigscience/bloom"}
CASE = ["model", "hardware", "tensor_parallel", "prompt_size", "batch_size", "token_size"]


class SplitwiseImporter(Importer):
    """Serving runs; not used in training."""

    name = DATASET
    about = "prompt time, time per token and whole requests of Llama 2 70B and BLOOM 176B on 2, 4 and 8 A100 or H100"
    licence = "MIT"
    source = "https://github.com/Mutinifni/splitwise-sim"
    commit = "8f99e7dc9b407f4ce2488d03dd44c0b8b946dab0"

    def load(self, folder: Path) -> Loaded:
        return _load(table(folder, "data/perf_model.csv", "perf_model.parquet"))


def _load(frame: pd.DataFrame) -> Loaded:
    loaded = Loaded({})
    # Its prompt times are those of the H100 times 1.3 to the last digit, its token times the same.
    frame = loaded.drop(frame, frame["hardware"] == "h100-80gb-pcap", "power-capped H100: computed, not measured")
    frame = loaded.drop(frame, frame.duplicated(), "the same run listed again in another sweep")
    expected = frame["prompt_time"] + frame["token_time"] * (frame["token_size"] - 1)
    done = frame["e2e_time"] / expected
    frame = loaded.drop(frame, done > 2, "the batch did not fit at once: prompt time of a part of it")
    complete = done[frame.index] > 0.98
    model = frame["model"].map(lambda name: MODELS[name])
    notes = pd.DataFrame({
        "tokens_asked": frame["token_size"].where(~complete),
        "average_power_fraction": frame["average_power"].where(frame["average_power"] > 0),
        "peak_power_fraction": frame["peak_power"].where(frame["peak_power"] > 0),
    })  # fmt: skip
    loaded.tables["models"] = pd.DataFrame({
        "protocol": DATASET, "device": device_ids(frame["hardware"], DEVICES), "device_reported": frame["hardware"],
        "devices": frame["tensor_parallel"], "parallel": as_json({"tp": frame["tensor_parallel"]}),
        "model": model, "source": "hf", "family": families(model), "mode": "serving",
        "dtype": "fp16",  # the repository's model sizes are llama2-70b-fp16 and bloom-176b-fp16
        "batch": frame["batch_size"], "seq_len": frame["prompt_size"],
        "tokens_out": frame["token_size"].where(complete), "latency_ms": frame["e2e_time"].where(complete),
        "ttft_ms": frame["prompt_time"], "tpot_ms": frame["token_time"],
        "repeat": frame.groupby(CASE).cumcount(), "extra": as_json(notes),
    }).reset_index(drop=True)  # fmt: skip
    return loaded
