"""AIConfigurator (NVIDIA): operators as serving engines run them, collectives, and whole serving runs.

Operator times are the collector's only number (CUDA graphs replayed, in ms) and become `device_ms`; the engine is in
`runtime`, its kernel in `extra`. The tables are samples that kept neither the engine's version nor the dtype of
attention nor the routing of experts. Attention is causal over `isl` tokens, or one token over `step` tokens and itself.
In `moe`, `inner` is the width of an expert on this GPU, `experts` counts all and `ep` the GPUs they are spread over;
kernels named nongated have two matrices per expert, others three. `bytes` of a collective is the larger of a rank's
two buffers. GEMMs in fp8_block take 0.05 ms at least, those in fp8 under TensorRT-LLM 0.012 ms: they quantise first.

Serving: `batch` is the number of requests in flight; configurations recur under later versions of the software.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from forerun.data.importers import Loaded
from forerun.data.importers._aiconfigurator_serving import HERE, RUNTIMES, serving, versions
from forerun.data.importers._naming import device_ids
from forerun.data.importers._shapes import json_column

DATASET = "aiconfigurator"
ABOUT = "GEMM, attention, MoE and collectives in serving engines on 10 devices, power of GEMMs, and 1,664 serving runs"
LICENCE = "Apache-2.0"
SOURCE = "https://github.com/ai-dynamo/aiconfigurator @ 095f58a51c4ca8e61b66ec108d86f223f8d559ce"

#: Schemes with one dtype for weights and activations; a scheme that is not plain is named in `protocol` too.
DTYPES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "half": "fp16", "int8": "int8"}
PLAIN = ("bfloat16", "fp8")
BYTES = {"half": 2, "int8": 1, "bfloat16": 2}


def load(folder: Path) -> Loaded:
    loaded = Loaded({})

    def read(name: str) -> pd.DataFrame:
        return _read(loaded, folder / f"{name}.parquet")

    parts = [
        *(_gemm(read("gemm"), "gemm"), _gemm(read("gemm_power_h200"), "gemm_power"), _moe(read("moe"))),
        *(_attention(loaded, read("attention_context")), _attention(loaded, read("attention_generation"))),
        *(_nccl(read("nccl")), _custom(loaded, read("custom_allreduce"))),
    ]
    models = serving(loaded, read("serving_end_to_end"))
    loaded.tables = {"operators": pd.concat(parts, ignore_index=True), "models": models}
    return loaded


def _read(loaded: Loaded, path: Path) -> pd.DataFrame:
    """A table whose whole numbers can be multiplied (the files hold bytes and shorts), without known copies."""
    frame = pd.read_parquet(path)
    frame = frame.astype(dict.fromkeys(frame.select_dtypes("integer"), "int64"))
    frame = frame.astype(dict.fromkeys(frame.select_dtypes("category"), object))
    if "backend_dir" not in frame:
        return frame
    copies = frame["system"].eq("b300_sxm") & frame["backend_dir"].eq("sglang")
    if "device" in frame:
        copies &= frame["device"].eq("NVIDIA GB300")
    return loaded.drop(frame, copies, "SGLang rows of the B300 that are copies of the GB300's")


def _rows(frame: pd.DataFrame, op: Any, family: str, shape: dict[str, Any], dtype: Any, **more: Any) -> pd.DataFrame:
    told = "version_dir" in frame
    return pd.DataFrame({
        "device": device_ids(frame["system"], HERE),
        "device_said": frame["device"].fillna(frame["system"]) if told else frame["system"],
        "software": versions(frame["backend_dir"], frame["version_dir"]) if told else None,
        "op": op, "family": family, "shape": json_column(pd.DataFrame(shape, index=frame.index)),
        "dtype": dtype, "direction": "forward", "runtime": frame["backend_dir"].map(RUNTIMES),
        "device_ms": frame["latency"].astype("float64"), **more,
    })  # fmt: skip


def _gemm(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    scheme, protocol = frame["gemm_dtype"], f"aiconfigurator/{name}"
    about, more = {"kernel": frame["kernel_source"]}, {}
    if "power" in frame:
        about["power_limit_w"] = frame["power_limit"]
        more["power_w"] = frame["power"].astype("float64")
    more["protocol"] = (protocol + "/" + scheme).mask(scheme.isin(PLAIN), protocol)
    more["extra"] = json_column(pd.DataFrame(about))
    shape = {"m": frame["m"], "n": frame["n"], "k": frame["k"]}
    return _rows(frame, "linear", "linear", shape, scheme.map(DTYPES), **more)


def _attention(loaded: Loaded, frame: pd.DataFrame) -> pd.DataFrame:
    # Read at bf16, the caches of these two would come in at up to 5 times the bandwidth of the memory. Everywhere else
    # decoding stays at 95 % of it or less and often comes near, so the rest is bf16 without a window.
    strange = frame["step"].gt(0) & frame["backend_dir"].eq("trtllm") & frame["system"].isin(("a100_sxm", "l40s"))
    frame = loaded.drop(
        frame, strange, "TensorRT-LLM decoding on A100 and L40S: faster than the memory can deliver the cache"
    )
    heads, kv_heads = frame["num_heads"], frame["num_key_value_heads"]
    shape = {
        "b": frame["batch_size"], "heads": heads, "kv_heads": kv_heads.where(kv_heads != heads), "d": frame["head_dim"],
        "q": frame["isl"], "kv": frame["isl"] + frame["step"], "causal": frame["isl"].gt(1).astype(int),
    }  # fmt: skip
    about = json_column(frame[["kernel_source"]].set_axis(["kernel"], axis=1))
    return _rows(frame, "sdpa", "sdpa", shape, "bf16", protocol="aiconfigurator/attention", extra=about)


def _moe(frame: pd.DataFrame) -> pd.DataFrame:
    shape = {
        "tokens": frame["num_tokens"], "experts": frame["num_experts"], "topk": frame["topk"],
        "hidden": frame["hidden_size"], "inner": frame["inter_size"] // frame["moe_tp_size"],
        "ep": frame["moe_ep_size"],
    }  # fmt: skip
    about = json_column(frame[["kernel_source"]].set_axis(["kernel"], axis=1))
    return _rows(frame, "moe", "moe", shape, frame["moe_dtype"].map(DTYPES), protocol="aiconfigurator/moe", extra=about)


def _nccl(frame: pd.DataFrame) -> pd.DataFrame:
    op = frame["op_name"].replace("alltoall", "all_to_all")
    return _collective(frame, op, "nccl_dtype", "aiconfigurator/nccl").assign(runtime="nccl")


def _custom(loaded: Loaded, frame: pd.DataFrame) -> pd.DataFrame:
    strange = frame["kernel_source"].eq("TRTLLM") & frame["backend_dir"].ne("trtllm")
    same = frame.mask(strange).duplicated(["system", "kernel_source", "num_gpus", "message_size", "latency"])
    frame = loaded.drop(
        frame, strange | same, "custom all-reduce: copies of another version's times, to the last digit"
    )
    way = frame["kernel_source"].str.extract("_(eager|graph)$")[0].fillna("graph")
    return _collective(frame, "all_reduce", "allreduce_dtype", "aiconfigurator/custom_allreduce/" + way)


def _collective(frame: pd.DataFrame, op: Any, dtype: str, protocol: Any) -> pd.DataFrame:
    """One node; the message is given in numbers, not in bytes."""
    shape = {"bytes": frame["message_size"] * frame[dtype].map(BYTES), "nodes": 1}
    warning = frame["system"].eq("l40s").map({True: "a node without working peer-to-peer"})
    about = json_column(pd.DataFrame({"kernel": frame["kernel_source"], "warning": warning}))
    more = {"devices": frame["num_gpus"], "protocol": protocol, "extra": about}
    return _rows(frame, op, "collective", shape, frame[dtype].map(DTYPES), **more)
