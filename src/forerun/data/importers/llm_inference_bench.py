"""LLM-Inference-Bench of Argonne: end-to-end latency of a batch of prompts with outputs as long as the prompts.

There is one latency per case; throughput counts prompt and output tokens. The runs with power are runs of the main
table and are joined to it by case and latency. First-token times come from separate runs that generate one token.
The published run scripts set fp16 and tensor parallelism for vLLM and TensorRT-LLM, and fp16 weights for llama.cpp.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.data.importers._files import missing, roots
from forerun.data.importers._language import as_json, families
from forerun.data.importers._naming import device_ids
from forerun.data.importers.base import Importer, Loaded

DATASET = "llm_inference_bench"
#: Argonne's Polaris has A100 SXM4 of 40 GB; its H100 draw up to 594 W here, so they are SXM.
DEVICES = {"Nvidia A100 GPU": "a100-sxm4-40gb", "Nvidia H100 GPU": "h100-sxm"}
RUNTIMES = {
    "vLLM": "vllm", "TensorRT-LLM": "trt-llm", "llama.cpp": "llama.cpp", "sambaflow": "sambaflow",
    "Deepspeed": "deepspeed", "Deepspeed-MII": "deepspeed-mii",
}  # fmt: skip
FP16 = ("vLLM", "TensorRT-LLM", "llama.cpp")
#: A card with two dies may run as two devices (Mixtral runs on "one" MI250, but fits only on both dies together).
TWO_HALVES = ("AMD MI250 GPU", "Intel PVC GPU", "Intel Max 1550")
SPLITS = {
    "Tensor Parallelism": ("tp",), "TP": ("tp",), "Pipeline Parallelism": ("pp",), "PP": ("pp",), "EP": ("ep",),
    "Hybird Tensor (2) and Pipeline (2) Parallelism": ("tp", "pp"), "Hybrid TP = 2 and PP = 2": ("tp", "pp"),
    "Hybrid TP = 2 and EP = 2": ("tp", "ep"),
}  # fmt: skip

LENGTH, DEVICES_USED = "Input Output Length", "Num of Hardware"
CASE = ["Hardware", DEVICES_USED, "Framework", "Model", LENGTH, "Batch Size"]
SAME = [*CASE, "Latency"]
RUN = [*SAME, "Throughput"]
FIRST = ["Hardware", DEVICES_USED, "Framework", "Model", "Input Length", "Output Length", "Batch Size", "TTFT Latency"]


class LlmInferenceBenchImporter(Importer):
    """Serving runs; not used in training."""

    name = DATASET
    about = "batch latency of 15 language models in 6 serving engines on 8 accelerators; power and first token of some"
    licence = "BSD-3-Clause"
    source = "https://github.com/argonne-lcf/LLM-Inference-Bench"
    commit = "4211f5d4e9bc0145ed541b6d372d5d8223b44235"

    def load(self, folder: Path) -> Loaded:
        loaded = Loaded({})
        runs, power, splits, first = _copied(folder) if (folder / "all_results.parquet").exists() else _read(folder)
        frame = _with_splits_and_power(loaded, runs, splits, power)
        loaded.tables["models"] = pd.concat([_complete(loaded, frame), _first_token(first)], ignore_index=True)
        return loaded


_Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]


def _copied(folder: Path) -> _Tables:
    """All runs, those with power, those with several kinds of parallelism, and those of the first token."""
    runs, power, splits, first = (
        pd.read_parquet(folder / f"{name}.parquet") for name in ("all_results", "power", "tp_pp", "ttft_itl")
    )
    return runs, power, splits, first.rename(columns=str.strip)


def _read(folder: Path) -> _Tables:
    """The same from Plots/, where the other tables are in the folders of figures and identified by their columns."""
    for place in roots(folder, "Plots"):
        main = place / "All_results.csv"
        if not main.exists():
            continue
        others = [pd.read_csv(path).rename(columns=str.strip) for path in sorted(place.glob("*/*.csv"))]
        parts = []
        for columns in ([*RUN, "avg_power"], [*RUN, "Parallelism Type"], [*FIRST, "end_latency"]):
            matching = [table[columns] for table in others if set(columns) <= set(table)]
            empty = pd.DataFrame(columns=columns)
            parts.append(pd.concat(matching).drop_duplicates(ignore_index=True) if matching else empty)
        return pd.read_csv(main).rename(columns=str.strip), *parts
    raise missing("Plots/All_results.csv", "all_results.parquet")


def _with_splits_and_power(
    loaded: Loaded, runs: pd.DataFrame, splits: pd.DataFrame, power: pd.DataFrame
) -> pd.DataFrame:
    """Every run once, with its parallelism, and its power if known."""
    split_over_all = runs["Framework"].isin(("vLLM", "TensorRT-LLM")) & ~runs["Hardware"].isin(TWO_HALVES)
    runs["parallel"] = as_json({"tp": runs[DEVICES_USED].where(split_over_all)}, runs.index)
    splits["parallel"] = _splits(splits)
    again = splits.duplicated(SAME) | _in(splits, runs)
    splits = loaded.drop(splits, again, "the same run listed twice")
    frame = pd.concat([runs, splits], ignore_index=True).merge(power[[*SAME, "avg_power"]], on=SAME, how="left")
    return pd.concat([frame, power[~_in(power, frame)]], ignore_index=True)


def _complete(loaded: Loaded, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of complete requests, without those that did not run as stated."""
    cpp = frame["Framework"] == "llama.cpp"
    frame = loaded.drop(frame, cpp & (frame["Batch Size"] != 1), "llama.cpp: its batch is a chunk of one prompt")
    short = frame["Latency"] < 0.5 * _latency_at(frame, 0.5)
    frame = loaded.drop(frame, short, "took less than half as long as half as many tokens: it stopped early")
    slow_start = _latency_at(frame, 2) < 1.5 * frame["Latency"]
    one_by_one = frame["Framework"] == "llama.cpp"
    notes = {
        "warning": slow_start.map({True: "time hardly grows with the length: start-up is in it", False: None}),
        "prompt_chunk": one_by_one.map({True: 1.0, False: None}),  # llama-bench -b 1 reads the prompt token by token
    }
    return _rows(frame).assign(
        protocol=DATASET, seq_len=frame[LENGTH], tokens_out=frame[LENGTH], latency_ms=frame["Latency"] * 1e3,
        throughput=frame["Throughput"], throughput_unit="input+output tokens/s", power_w=frame["avg_power"] / 1e3,
        parallel=frame["parallel"], extra=as_json(notes, frame.index),
    )  # fmt: skip


def _first_token(first: pd.DataFrame) -> pd.DataFrame:
    """Rows of runs that generate one token."""
    return _rows(first).assign(
        protocol=f"{DATASET}/ttft", seq_len=first["Input Length"], tokens_out=first["Output Length"],
        latency_ms=first["TTFT Latency"] * 1e3, ttft_ms=first["TTFT Latency"] * 1e3,
    )  # fmt: skip


def _rows(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({
        "device": device_ids(frame["Hardware"], DEVICES), "device_reported": frame["Hardware"],
        "devices": frame[DEVICES_USED],
        "model": frame["Model"], "source": "hf", "family": families(frame["Model"]), "mode": "serving",
        "batch": frame["Batch Size"], "runtime": [RUNTIMES[name] for name in frame["Framework"]],
        "dtype": frame["Framework"].isin(FP16).map({True: "fp16", False: None}),
    })  # fmt: skip


def _splits(frame: pd.DataFrame) -> pd.Series:
    """The parallelism of a run; there is none on one device, whatever the table states."""
    used = frame[DEVICES_USED]
    names = [SPLITS[way] if n > 1 else ("tp",) for way, n in zip(frame["Parallelism Type"], used, strict=True)]
    each = [dict.fromkeys(axes, round(n ** (1 / len(axes)))) for axes, n in zip(names, used, strict=True)]
    return as_json(pd.DataFrame(each, index=frame.index))


def _in(frame: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
    """Whether each row is the same run (same case and latency) as one of the other table."""
    in_other = pd.MultiIndex.from_frame(frame[SAME]).isin(pd.MultiIndex.from_frame(other[SAME]))
    return pd.Series(in_other, index=frame.index)


def _latency_at(frame: pd.DataFrame, factor: float) -> pd.Series:
    """The latency of the same case at `factor` times the length; null if not measured."""
    case = [*CASE, "parallel"]
    other = frame.groupby(case, dropna=False)["Latency"].mean().rename("other").reset_index()
    other[LENGTH] = (other[LENGTH] / factor).astype("int64")
    return pd.Series(frame[case].merge(other, on=case, how="left")["other"].to_numpy(), index=frame.index)
