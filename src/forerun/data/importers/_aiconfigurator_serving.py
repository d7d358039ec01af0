"""The serving runs of AIConfigurator: time to the first token and per token of whole requests."""

from __future__ import annotations

import pandas as pd

from forerun.data.importers._language import families, sources
from forerun.data.importers._naming import device_ids
from forerun.data.importers._shapes import json_column
from forerun.data.importers.base import Loaded

HERE = {"a100_sxm": "a100-sxm4-80gb", "b60": "arc-pro-b60"}
RUNTIMES = {"trtllm": "trt-llm", "vllm": "vllm", "sglang": "sglang", "nccl": "nccl"}
#: Models that the catalogue has under another owner, or unquantised.
MODELS = {
    "zhipuai/GLM-5": "zai-org/GLM-5",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B-Instruct",
}
DEGREES = {"tp": "tp_size", "pp": "pp_size", "dp": "attention_dp_size", "moe_tp": "moe_tp_size", "ep": "moe_ep_size"}


def versions(engine: pd.Series, version: pd.Series) -> pd.Series:
    """{"vllm": "0.12.0"}; null if the version is not known."""
    return json_column(pd.DataFrame({name: version.where(engine == name) for name in engine.unique()}))


def serving(loaded: Loaded, frame: pd.DataFrame) -> pd.DataFrame:
    frame = loaded.drop(frame, frame["is_exact_dup"], "serving: exact duplicate")
    # A run that its name calls tp8_ep8 has tp_size 64 there: no such run is on more than one node of 8.
    wide = frame["mode"].eq("agg") & (frame["tp_size"] * frame["attention_dp_size"].fillna(1) > 8)
    frame = loaded.drop(frame, wide, "serving: tp_size is tp times ep, so the layout is not known")
    layout = {short: frame[name].where(frame[name] > 0) for short, name in DEGREES.items()}
    for side in ("prefill", "decode"):
        layout |= {f"{side}_{s}": frame[f"{side}_{name}"].where(lambda x: x > 0) for s, name in DEGREES.items()}
        layout[f"{side}_workers"] = frame[f"{side}_num_workers"]
    model = frame["model_path"].replace(MODELS)
    schemes = {"gemm": frame["gemm_quant_mode"], "moe": frame["moe_quant_mode"]}
    about = {"id": frame["id"], "batch_size": frame["batch_size"], "decode_batch_size": frame["decode_batch_size"]}
    return pd.DataFrame({
        "device": device_ids(frame["system"], HERE), "device_reported": frame["system"],
        "software": versions(frame["backend"], frame["backend_version"]),
        "protocol": "aiconfigurator/" + frame["mode"], "measured_at": frame["measured_date"],
        "model": model, "source": sources(model), "family": families(model),
        "mode": "serving", "dtype": frame["precision"], "quantised": json_column(pd.DataFrame(schemes)),
        "runtime": frame["backend"].map(RUNTIMES),
        "devices": _devices(layout, frame["mode"].eq("disagg")), "parallel": json_column(pd.DataFrame(layout)),
        "batch": frame["concurrency"].fillna(frame["batch_size"]), "seq_len": frame["isl"], "tokens_out": frame["osl"],
        "ttft_ms": frame["silicon_ttft_ms"], "tpot_ms": frame["silicon_tpot_ms"],
        "extra": json_column(pd.DataFrame(about)),
    })  # fmt: skip


def _devices(layout: dict[str, pd.Series], split: pd.Series) -> pd.Series:
    """The number of GPUs; null for disaggregated runs without a number of workers."""
    # Attention and experts share the GPUs; a data parallel degree that is not stated follows from the
    # experts.
    attention, experts = layout["tp"] * layout["dp"].fillna(1), layout["moe_tp"] * layout["ep"]
    together = pd.concat([attention, experts], axis=1).max(axis=1) * layout["pp"]
    sides = [
        layout[f"{s}_workers"] * layout[f"{s}_tp"] * layout[f"{s}_pp"] * layout[f"{s}_dp"]
        for s in ("prefill", "decode")
    ]
    return together.mask(split, sides[0] + sides[1])
