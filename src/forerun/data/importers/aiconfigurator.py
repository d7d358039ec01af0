"""AIConfigurator (NVIDIA): operators in serving engines, collectives, and complete serving runs.

Operator times are the collector's only value (replayed CUDA graphs, in ms) and become `device_ms`; the engine is in
`runtime`, its kernel in `extra`. Attention is causal over `isl` tokens, or one token over `step` tokens and itself.
In `moe`, `inner` is the width of an expert on this GPU, `experts` counts all and `ep` the GPUs they are spread over;
kernels named nongated have two matrices per expert, others three. `bytes` of a collective is the larger of a rank's
two buffers. GEMMs in fp8_block take 0.05 ms at least, those in fp8 under TensorRT-LLM 0.012 ms: they quantise first.

The Parquet copy of the tables is a sample that kept neither the engine's version nor the dtype of attention nor the
routing of experts. Serving: `batch` is the number of requests in flight; configurations recur under later versions of
the software.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from forerun.data.importers import _aiconfigurator_tables as tables
from forerun.data.importers._aiconfigurator_serving import HERE, RUNTIMES, serving, versions
from forerun.data.importers._naming import device_ids
from forerun.data.importers._shapes import json_column
from forerun.data.importers.base import Importer, Loaded

#: Schemes with one dtype for weights and activations; special schemes are also named in `protocol`.
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "fp8_block": "fp8", "half": "fp16", "int8": "int8"}
PLAIN = ("bfloat16", "float16", "fp8")
BYTES = {"half": 2, "int8": 1, "bfloat16": 2}


class AIConfiguratorImporter(Importer):
    """Operators in serving engines, some of them training data; collectives and serving runs, which are not."""

    name = "aiconfigurator"
    about = "GEMM, attention, MoE and collectives in serving engines on 10 devices, power of GEMMs, and serving runs"
    licence = "Apache-2.0"
    source = "https://github.com/ai-dynamo/aiconfigurator"
    commit = "095f58a51c4ca8e61b66ec108d86f223f8d559ce"
    operator_rows = 400

    def load(self, folder: Path) -> Loaded:
        loaded = Loaded({})
        files = tables.find(folder)

        def read(name: str) -> pd.DataFrame:
            return _without_copies(loaded, files.read(name))

        parts = [
            *(_gemm(loaded, read("gemm")), _moe(loaded, read("moe"))),
            *(_attention(loaded, read("attention_context")), _attention(loaded, read("attention_generation"))),
            *(_nccl(read("nccl")), _custom(loaded, read("custom_allreduce"))),
        ]
        loaded.tables = {"operators": pd.concat(parts, ignore_index=True), "models": serving(loaded, files.serving())}
        return loaded

    def timing_group(self, rows: pd.DataFrame) -> pd.Series:
        """The engine, since each replays graphs with its own launch overhead."""
        return rows["runtime"].where(rows["runtime"].isin(("vllm", "trt-llm")), "other").astype(object)


def _without_copies(loaded: Loaded, frame: pd.DataFrame) -> pd.DataFrame:
    copies = frame["system"].eq("b300_sxm") & frame["backend_dir"].eq("sglang")
    if "device" in frame:
        copies &= frame["device"].fillna("NVIDIA GB300").eq("NVIDIA GB300")
    return loaded.drop(frame, copies, "SGLang rows of the B300 that are copies of the GB300's")


def _rows(frame: pd.DataFrame, op: Any, family: str, shape: dict[str, Any], dtype: Any, **more: Any) -> pd.DataFrame:
    named = frame.get("device", pd.Series(None, frame.index, dtype=object)).fillna(frame["system"])
    version = frame.get("version_dir", pd.Series(None, frame.index, dtype=object))
    return pd.DataFrame({
        "device": device_ids(frame["system"], HERE), "device_reported": named,
        "software": versions(frame["backend_dir"], version),
        "op": op, "family": family, "shape": json_column(pd.DataFrame(shape, index=frame.index)),
        "dtype": dtype, "direction": "forward", "runtime": frame["backend_dir"].map(RUNTIMES),
        "device_ms": frame["latency"].astype("float64"), **more,
    })  # fmt: skip


def _one_dtype(loaded: Loaded, frame: pd.DataFrame, column: str, what: str) -> pd.DataFrame:
    """Drops schemes such as w4a16, since `dtype` is that of both weights and activations."""
    return loaded.drop(frame, ~frame[column].isin(DTYPES), f"{what}: weights and activations of different dtypes")


def _gemm(loaded: Loaded, frame: pd.DataFrame) -> pd.DataFrame:
    frame = _one_dtype(loaded, frame, "gemm_dtype", "GEMM")
    scheme = frame["gemm_dtype"]
    nothing = pd.Series(float("nan"), frame.index)
    power, limit = (frame.get(name, nothing).astype("float64") for name in ("power", "power_limit"))
    # To measure power the collector repeats the call for a second or more, at the sustained clock.
    measured = power > 0
    protocol = measured.map({True: "aiconfigurator/gemm_power", False: "aiconfigurator/gemm"})
    about = pd.DataFrame({"kernel": frame["kernel_source"], "power_limit_w": limit.where(measured)})
    shape = {"m": frame["m"], "n": frame["n"], "k": frame["k"]}
    return _rows(
        frame, "linear", "linear", shape, scheme.map(DTYPES), power_w=power.where(measured),
        protocol=(protocol + "/" + scheme).mask(scheme.isin(PLAIN), protocol), extra=json_column(about),
    )  # fmt: skip


def _attention(loaded: Loaded, frame: pd.DataFrame) -> pd.DataFrame:
    if "attn_dtype" in frame:
        plain = frame[["attn_dtype", "kv_cache_dtype"]].isin(("bfloat16", "float16")).all(axis=1)
        if "window_size" in frame:
            plain &= frame["window_size"].fillna(0).le(0)
        frame = loaded.drop(frame, ~plain, "attention with an 8-bit cache or a sliding window")
    else:
        # Read at bf16, the caches of these two would come in at up to 5 times the bandwidth of the memory. Everywhere
        # else decoding stays at 95 % of it or less and often comes near, so the rest is bf16 without a window.
        doubtful = frame["step"].gt(0) & frame["backend_dir"].eq("trtllm") & frame["system"].isin(("a100_sxm", "l40s"))
        reason = "TensorRT-LLM decoding on A100 and L40S: faster than the memory can deliver the cache"
        frame = loaded.drop(frame, doubtful, reason)
    heads, kv_heads = frame["num_heads"], frame["num_key_value_heads"]
    shape = {
        "b": frame["batch_size"], "heads": heads, "kv_heads": kv_heads.where(kv_heads != heads), "d": frame["head_dim"],
        "q": frame["isl"], "kv": frame["isl"] + frame["step"], "causal": frame["isl"].gt(1).astype(int),
    }  # fmt: skip
    about = json_column(frame[["kernel_source"]].set_axis(["kernel"], axis=1))
    dtype = frame["attn_dtype"].map(DTYPES) if "attn_dtype" in frame else "bf16"
    return _rows(frame, "sdpa", "sdpa", shape, dtype, protocol="aiconfigurator/attention", extra=about)


def _moe(loaded: Loaded, frame: pd.DataFrame) -> pd.DataFrame:
    frame = _one_dtype(loaded, frame, "moe_dtype", "MoE")
    shape = {
        "tokens": frame["num_tokens"], "experts": frame["num_experts"], "topk": frame["topk"],
        "hidden": frame["hidden_size"], "inner": frame["inter_size"] // frame["moe_tp_size"],
        "ep": frame["moe_ep_size"],
    }  # fmt: skip
    about = {"kernel": frame["kernel_source"]}
    if "distribution" in frame:
        about["routing"] = frame["distribution"]
    return _rows(
        frame, "moe", "moe", shape, frame["moe_dtype"].map(DTYPES), protocol="aiconfigurator/moe",
        extra=json_column(pd.DataFrame(about)),
    )  # fmt: skip


def _nccl(frame: pd.DataFrame) -> pd.DataFrame:
    op = frame["op_name"].replace("alltoall", "all_to_all")
    return _collective(frame, op, "nccl_dtype", "aiconfigurator/nccl").assign(runtime="nccl")


def _custom(loaded: Loaded, frame: pd.DataFrame) -> pd.DataFrame:
    foreign = frame["kernel_source"].eq("TRTLLM") & frame["backend_dir"].ne("trtllm")
    same = frame.mask(foreign).duplicated(["system", "kernel_source", "num_gpus", "message_size", "latency"])
    frame = loaded.drop(
        frame, foreign | same, "custom all-reduce: copies of another version's times, to the last digit"
    )
    way = frame["kernel_source"].str.extract("_(eager|graph)$")[0].fillna("graph")
    return _collective(frame, "all_reduce", "allreduce_dtype", "aiconfigurator/custom_allreduce/" + way)


def _collective(frame: pd.DataFrame, op: Any, dtype: str, protocol: Any) -> pd.DataFrame:
    """Collectives within one node; message sizes are in elements, not bytes."""
    shape = {"bytes": frame["message_size"] * frame[dtype].map(BYTES), "nodes": 1}
    warning = frame["system"].eq("l40s").map({True: "a node without working peer-to-peer"})
    about = json_column(pd.DataFrame({"kernel": frame["kernel_source"], "warning": warning}))
    more = {"devices": frame["num_gpus"], "protocol": protocol, "extra": about}
    return _rows(frame, op, "collective", shape, frame[dtype].map(DTYPES), **more)
