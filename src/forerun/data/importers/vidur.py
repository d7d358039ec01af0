"""Vidur (MLSys 2024): operators of a decoder block except attention, in fp16 on one GPU, and NCCL between GPUs.

The tables have the model's sizes and the degree of tensor parallelism; shapes are those of one worker. Times are kernel
times from PyTorch's profiler in whole microseconds: `device_ms` is the mean of 20 calls, which has a finer resolution
than the median. A collective was timed three times, sometimes with a straggler, so its time is the median.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from forerun.data.importers._files import missing, read, roots
from forerun.data.importers._naming import device_ids
from forerun.data.importers._shapes import json_column
from forerun.data.importers.base import Importer, Loaded

#: Folders are named after nodes. `a100` and `h100` may be either of two: kernels on the one reach the bandwidth of the
#: PCIe card (94 % of what the SXM card gives the same matrices elsewhere), kernels on the other that of the SXM card.
HERE = {
    "a100": "a100-pcie-80gb", "a100_dgx": "a100-sxm4-80gb", "a100_pairwise_nvlink": "a100-pcie-80gb",
    "a40": "a40", "a40_pairwise_nvlink": "a40",
    "h100": "h100-sxm", "h100_dgx": "h100-sxm", "h100_pairwise_nvlink": "h100-nvl",
}  # fmt: skip
#: The only model of the set whose blocks are parallel: one layer norm, and one sum of three tensors.
PARALLEL_BLOCKS = {"microsoft/phi-2"}
#: Kernels of Sarathi-Serve; the other operators are PyTorch's own.
SARATHI = ("rms_norm", "rope", "silu_and_mul")
COLLECTIVES = ("all_reduce", "send_recv")


class VidurImporter(Importer):
    """Operators of decoder blocks, some of them training data, and collectives, which are not."""

    name = "vidur"
    about = "fp16 operators of 8 language models by tokens and tensor parallelism, collectives; on A100, A40 and H100"
    licence = "MIT"
    source = "https://github.com/microsoft/vidur"
    commit = "7d47513363ec447a741ac5e47241580b47724fbf"
    operator_rows = 300

    def load(self, folder: Path) -> Loaded:
        loaded = Loaded({})
        theirs = next((p for p in roots(folder, "data/profiling") if (p / "compute").is_dir()), None)
        compute, network = _published(theirs) if theirs else _copied(folder)
        if not compute or not network:
            raise missing("data/profiling/compute/*/*/*/mlp.csv", "compute__*__mlp.parquet")
        parts = [_block(gpu, f"{owner}/{name}", read(path)) for (gpu, owner, name), path in sorted(compute.items())]
        parts += [_network(loaded, node, kind, read(path)) for (node, kind), path in sorted(network.items())]
        operators = pd.concat(parts, ignore_index=True)
        fixed = {"device": device_ids(operators["device_reported"], HERE), "dtype": "fp16", "direction": "forward"}
        return Loaded({"operators": operators.assign(**fixed)}, loaded.dropped)


_Files = dict[tuple[str, ...], Path]


def _published(folder: Path) -> tuple[_Files, _Files]:
    """The files of data/profiling: by GPU, owner and name of the model, and by node and collective."""
    compute = {path.parts[-4:-1]: path for path in folder.glob("compute/*/*/*/mlp.csv")}
    network: _Files = {
        (path.parts[-2], path.stem): path for kind in COLLECTIVES for path in folder.glob(f"network/*/{kind}.csv")
    }
    return compute, network


def _copied(folder: Path) -> tuple[_Files, _Files]:
    """The same of a copy whose file names include the folders."""
    compute = {tuple(path.stem.split("__")[1:4]): path for path in folder.glob("compute__*__mlp.parquet")}
    return compute, {tuple(path.stem.split("__")[1:]): path for path in folder.glob("network__*.parquet")}


def _block(gpu: str, model: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The operators of one model on one GPU: a row for each, number of tokens and degree of parallelism."""
    rows = []
    for part, op, shape in _parts(frame, model):
        times = {
            "device_ms": frame[f"time_stats.{part}.mean"],
            "device_min_ms": frame[f"time_stats.{part}.min"],
            "device_max_ms": frame[f"time_stats.{part}.max"],
        }
        about = {"model": model, "part": part, "tp": frame["num_tensor_parallel_workers"]}
        what = {"op": op, "shape": json_column(pd.DataFrame(shape)), "extra": json_column(pd.DataFrame(about))}
        rows.append(pd.DataFrame({**what, **times}))
    out = pd.concat(rows)
    runtime = out["op"].isin(SARATHI).map({True: "sarathi", False: "eager"})
    family = out["op"].replace("gelu", "unary")
    return out.assign(device_reported=gpu, protocol="vidur/mlp", runtime=runtime, family=family)


def _parts(frame: pd.DataFrame, model: str) -> Iterator[tuple[str, pd.Series, dict[str, pd.Series]]]:
    """What each timer covers: its name there, our operator, and the dimensions on one worker."""
    tokens, tp = frame["num_tokens"], frame["num_tensor_parallel_workers"]
    hidden, inner = frame["n_embd"], frame["n_expanded_embd"] // tp
    gated, d = frame["use_gated_mlp"], frame["n_embd"] // frame["n_head"]
    heads, kv_heads = frame["n_head"] // tp, frame["n_kv_head"] // tp
    phi = model in PARALLEL_BLOCKS

    def every(op: str) -> pd.Series:
        return pd.Series(op, index=frame.index)

    # Linear layers: m tokens, n features out, k features in.
    qkv = (heads + 2 * kv_heads) * d
    yield "attn_pre_proj", every("linear"), {"m": tokens, "n": qkv, "k": hidden}
    yield "attn_post_proj", every("linear"), {"m": tokens, "n": hidden, "k": heads * d}
    yield "mlp_up_proj", every("linear"), {"m": tokens, "n": inner * (1 + gated), "k": hidden}
    yield "mlp_down_proj", every("linear"), {"m": tokens, "n": hidden, "k": inner}
    act = {"rows": tokens.where(gated), "cols": inner.where(gated), "n": (tokens * inner).mask(gated)}
    yield "mlp_act", gated.map({True: "silu_and_mul", False: "gelu"}), act
    yield "attn_rope", every("rope"), {"tokens": tokens, "heads": heads, "kv_heads": kv_heads, "d": d}
    # Operators that tensor parallelism does not split.
    norm = every("layer_norm" if phi else "rms_norm")
    yield "input_layernorm", norm, {"rows": tokens, "cols": hidden}
    if not phi:
        yield "post_attention_layernorm", norm, {"rows": tokens, "cols": hidden}
    yield "add", every("add3" if phi else "add"), {"n": tokens * hidden}
    # An embedding split over workers masks entries of other workers, which takes more kernels than a plain one.
    table = tp.eq(1).map({True: "embedding", False: "vocab_parallel_embedding"})
    yield "emb", table, {"rows": tokens, "cols": hidden, "vocab": frame["vocab_size"] // tp}


def _network(loaded: Loaded, node: str, collective: str, frame: pd.DataFrame) -> pd.DataFrame:
    if (node, collective) == ("h100_pairwise_nvlink", "send_recv"):
        copied = pd.Series(True, index=frame.index)
        frame = loaded.drop(frame, copied, "send_recv of the H100 pairs: the file is a copy of that of the A100 pairs")
    shape = {"bytes": frame["size"], "nodes": frame["num_workers"] // frame["devices_per_node"]}
    return pd.DataFrame({
        "op": frame["collective"], "family": "collective", "shape": json_column(pd.DataFrame(shape)),
        "devices": frame["num_workers"],
        "device_ms": frame[f"time_stats.{collective}.median"],
        "device_min_ms": frame[f"time_stats.{collective}.min"],
        "device_max_ms": frame[f"time_stats.{collective}.max"],
        "device_reported": node, "protocol": "vidur/network", "runtime": "nccl",
    })  # fmt: skip
