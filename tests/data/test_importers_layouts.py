"""The authors' own layouts: a few rows written by hand as the repositories hold them, beside copies in Parquet.

The same rows must come out of both, from a clone of the repository as well as from the folder in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forerun.data import importers, schema
from forerun.data.importers import _aiconfigurator_tables
from forerun.data.importers.neusight import OPS
from forerun.errors import ForerunError


def csv(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False)


def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)


def timm(copy: Path, clone: Path) -> None:
    """(name of the file, what it means, rows with the columns of both layouts)"""
    plain = {"samples_per_sec": 49277.65, "step_time": 20.77, "batch_size": 1024, "img_size": 106, "param_count": 2.04}
    counted = plain | {"gmacs": 0.03, "macts": 0.69}
    card = {"device": "rtx3090", "precision": "amp", "layout": "nchw", "torch": "pt240", "cuda": "cu124",
            "compile": "eager"}  # fmt: skip
    cpu = {"device": "i9_10940x", "precision": "fp32", "torch": "pt221", "cuda": "cpu", "compile": "dynamo"}
    files = [
        ("infer-amp-nchw-pt240-cu124-rtx3090", "infer", card, [counted, counted | {"step_time": None}]),
        ("infer-amp-nhwc-pt291-cu128-4090", "infer", card | {"device": "rtx4090", "layout": "nhwc", "torch": "pt291",
                                                             "cuda": "cu128"}, [counted | {"macts": 11.0}]),
        ("infer-fp32-nchw-pt221-cpu-i9_10940x-dynamo", "infer", card | cpu, [plain | {"batch_size": 1}]),
        ("train-amp-nchw-pt112-cu113-rtx3090", "train", card | {"torch": "pt112", "cuda": "cu113"}, [plain]),
    ]  # fmt: skip
    rows = []
    for name, mode, facts, given in files:
        named = [{"model": f"tinynet_{number}", **one} for number, one in enumerate(given)]
        rows += [{"gmacs": None, "macts": None, **facts, "mode": mode, "file": f"benchmark-{name}", **one}
                 for one in named]  # fmt: skip
        own = [
            {key if key in ("model", "param_count") else f"{mode}_{key}": value for key, value in one.items()}
            for one in named
        ]
        csv(clone / f"results/benchmark-{name}.csv", own)
    published = {"model": "tinynet_0", "img_size": 224, "top1": 59.9, "top5": 81.8, "param_count": "1,002.04"}
    for place in (copy, clone / "results"):
        csv(place / "results-imagenet.csv", [published])
    parquet(copy / "benchmarks.parquet", rows)


def pytorch_gpu_benchmark(copy: Path, clone: Path) -> None:
    times = {"resnet18": [9.0 + i for i in range(20)], "vgg11": [30.0, 32.0] * 10}
    folders = {"AMD/AMD_Radeon_780M": {"BATCH_SIZE": 12, "NUM_CLASSES": 1000, "NUM_TEST": 50, "GPU_COUNT": 1},
               "AMD/AMD_Radeon_RX_7800_XT": {"BATCH_SIZE": 4, "NUM_CLASSES": 200}}  # fmt: skip
    runs = [
        ("AMD/AMD_Radeon_780M", "AMD_Radeon_780M", 1, "float", "inference"),
        ("AMD/AMD_Radeon_RX_7800_XT", "AMD_Radeon_RX_7800_XT", 1, "double", "train"),
        ("Nvidia/TITAN_RTX__2X", "TITAN_RTX", 2, "half", "train"),
    ]
    rows = []
    for folder, device, gpus, precision, mode in runs:
        place, settings = clone / "results" / folder, folders.get(folder)
        name = device + (f"__{gpus}X" if gpus > 1 else "")
        csv(place / f"{name}__{precision}_model_{mode}_benchmark.csv", pd.DataFrame(times).to_dict("records"))
        if settings:
            (place / "config.json").write_text(json.dumps(settings))
        # Of 9, 10, … 28: mean and median 18.5, deviation ((20**2 - 1) / 12) ** 0.5; of 30 and 32: 31 and 1.
        for model, mean, least, spread in (("resnet18", 18.5, 9.0, (399 / 12) ** 0.5), ("vgg11", 31.0, 30.0, 1.0)):
            rows.append({
                "device": device, "n_gpu": gpus, "precision": precision, "mode": mode, "model": model, "img_size": 224,
                "n_samples": 20, "ms_mean": mean, "ms_median": mean, "ms_min": least, "ms_std": spread,
                "batch_per_gpu": (settings or {"BATCH_SIZE": 12})["BATCH_SIZE"],
                "num_classes": settings["NUM_CLASSES"] if settings else None,
                "batch_source": "config.json" if settings else "README_says_12_unverified",
            })  # fmt: skip
    csv(clone / "results/Nvidia/TITAN_V/TITAN_V__float2_model_train_benchmark.csv", [{"resnet18": 1.0}])
    (clone / "results/Nvidia/TITAN_V/system_info.txt").write_text("benchmark start : 2019/05/01")
    parquet(copy / "benchmarks.parquet", rows)


def neusight(copy: Path, clone: Path) -> None:
    stack = {"Torch Version": "p2.1.0", "CUDNN Version": 8902, "CUDA Version": "cu121"}
    matrices = {"B": 4, "M": 384, "N": 96, "K": 64, "Kernels": ";sgemm_nn;splitkreduce"}
    conv = {"B": 8, "Input_Channel": 3, "Output_Channel": 16, "Kernel_Szie": 3, "Input_Size": 32, "Stride": 1,
            "Padding": 1, "Kernels": ";winograd"}  # fmt: skip
    root = clone / "scripts/asplos"
    for op in OPS:
        sizes = conv if op == "conv" else matrices if op in ("bmm", "linear") else {"B": 128, "H": 70000}
        both = []
        for device, ms in (("Tesla P4", 0.5), ("Tesla V100-PCIE-32GB", 0.25)):
            rows = [{"OPName": op, "Latency": ms, "Device": device, "Kernel Name": "k", **stack, **sizes}]
            csv(root / f"data/dataset/train/collect/{op}/p2.1.0/{device}.csv", rows)
            both += rows
        csv(root / f"data/dataset/train/collect/{op}.csv", both)  # the authors' own merge: not to be read again
        parquet(copy / f"ops_train_{op}.parquet", [row | {"split": "train"} for row in both])
    for name, op in (("bmm", "bmm"), ("linear", "linear"), ("vec", "ln")):
        sizes = {"B": 32, "H": 100} if op == "ln" else matrices
        rows = [{"OPName": op, "Latency": 2.0, "Device": "NVIDIA L4", **stack, **sizes}]
        csv(root / f"data/dataset/test/{'habitat' if name == 'vec' else name}.csv", rows)
        parquet(copy / f"ops_test_{name}.parquet", [row | {"split": "test"} for row in rows])
    labels = [
        ("NVIDIA_L4", "bert_large", "inf", 512, 8, None, 409.9, 409.9, 0.0),
        ("NVIDIA_L4", "bert_large", "inf", 512, 8, "fusion", 344.1, 344.1, 0.0),
        ("NVIDIA_A100-SXM4-40GB", "gpt2_large", "train", 1024, 4, "pp4_1", 1597.6, 0.0, 0.0),
    ]
    columns = ["device", "model", "mode", "seqlen", "batch", "option", "e2e_latency", "fw_latency", "bwall_latency"]
    rows = [dict(zip(columns, label, strict=True)) for label in labels]
    csv(copy / "model_level.csv", rows)
    for row in rows:
        words = [row["model"], row["mode"], row["seqlen"], row["batch"], *([row["option"]] if row["option"] else [])]
        path = root / "label" / row["device"] / ("-".join(map(str, words)) + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"num_layer": 24, **{name: row[name] for name in columns[-3:]}}))
    sums = {f"{who}_{op}_fw_latency": 1.5 for who in ("label", "neusight") for op in ("BMM", "Linear", "VECln")}
    untimed = {f"{who}_VECsoftmax_fw_latency": 0 for who in ("label", "neusight")}
    run = {"model_name": "bert_large", "seqlen": 512, "batch": 8, "device": "NVIDIA_L4", "mode": "inf", "option": None}
    summary = [run | sums | untimed]
    csv(root / "summary/summary.csv", summary)
    csv(copy / "published_tables/summary.csv", summary)


def vidur(copy: Path, clone: Path) -> None:
    def times(part: str) -> dict[str, float]:
        values = {"min": 0.01, "max": 0.04, "mean": 0.02, "median": 0.03, "std": 0.0}
        return {f"time_stats.{part}.{name}": value for name, value in values.items()}

    parts = ["emb", "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "mlp_up_proj", "mlp_act",
             "mlp_down_proj", "add", "post_attention_layernorm"]  # fmt: skip
    sizes = {"n_head": 64, "n_kv_head": 8, "n_embd": 8192, "n_expanded_embd": 28672, "vocab_size": 32768,
             "use_gated_mlp": True, "num_tokens": 100}  # fmt: skip
    block = {key: value for part in parts for key, value in times(part).items()}
    rows = [{**block, **sizes, "num_tensor_parallel_workers": tp} for tp in (1, 8)]
    root = clone / "data/profiling"
    for gpu, owner, name in (("a100", "meta-llama", "Llama-2-70b-hf"), ("h100", "Qwen", "Qwen-72B")):
        csv(root / f"compute/{gpu}/{owner}/{name}/mlp.csv", rows)
        csv(root / f"compute/{gpu}/{owner}/{name}/attention.csv", [{"time_stats.attn_prefill.mean": 1.0}])
        parquet(copy / f"compute__{gpu}__{owner}__{name}__mlp.parquet", rows)
    for node, kind in (("a100_dgx", "all_reduce"), ("h100_pairwise_nvlink", "send_recv"), ("a100_dgx", "send_recv")):
        link = {"rank": 0, "num_workers": 16, "size": 2048, "collective": kind, "devices_per_node": 8}
        csv(root / f"network/{node}/{kind}.csv", [{**times(kind), **link}])
        parquet(copy / f"network__{node}__{kind}.parquet", [{**times(kind), **link}])


def aiconfigurator(copy: Path, clone: Path) -> None:
    root = clone / "aic-core/src/aiconfigurator_core/systems"
    everything: dict[str, list[dict[str, Any]]] = {}

    def add(table: str, family: str, where: tuple[str, str, str], *rows: dict[str, Any]) -> None:
        system, backend, version = where
        facts = {"framework": backend.upper(), "version": version, "device": "NVIDIA H100 80GB HBM3"}
        path = root / f"data/{system}/{family}/{backend}/{version}/{_aiconfigurator_tables.TABLES[table]}.parquet"
        parquet(path, [facts | row for row in rows])
        folders = {"system": system, "backend_dir": backend, "version_dir": version}
        everything.setdefault(table, []).extend(facts | folders | row for row in rows)

    h100 = ("h100_sxm", "vllm", "0.24.0")
    size = {"kernel_source": "vllm_default", "m": 16, "n": 4096, "k": 512, "latency": 0.25}
    add("gemm", "gemm", h100, size | {"gemm_dtype": "bfloat16"}, size | {"gemm_dtype": "fp8", "latency": 0.125},
        size | {"gemm_dtype": "int4_wo"})  # fmt: skip
    add("gemm", "gemm", ("h200_sxm", "vllm", "0.22.0"),
        size | {"gemm_dtype": "fp8_block", "power": 600.0, "power_limit": 700.0})  # fmt: skip
    heads = {"kernel_source": "vllm_flash_attn_fa3", "batch_size": 4, "num_heads": 32, "num_key_value_heads": 8,
             "head_dim": 128, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "window_size": 0,
             "latency": 0.5}  # fmt: skip
    add("attention_context", "attention", h100, heads | {"isl": 1024, "step": 0})
    add("attention_generation", "attention", h100, heads | {"isl": 1, "step": 1023},
        heads | {"isl": 1, "step": 1023, "kv_cache_dtype": "fp8"},
        heads | {"isl": 1, "step": 1023, "window_size": 128})  # fmt: skip
    experts = {"kernel_source": "triton", "moe_dtype": "bfloat16", "num_tokens": 64, "hidden_size": 4096,
               "inter_size": 1536, "topk": 8, "num_experts": 128, "moe_tp_size": 4, "moe_ep_size": 2,
               "distribution": "power_law_1.2", "latency": 0.3}  # fmt: skip
    add("moe", "moe", h100, experts, experts | {"moe_dtype": "w4a16_mxfp4"})
    message = {"kernel_source": "NCCL", "num_gpus": 8, "message_size": 2**20, "latency": 3.0}
    for version in ("2.26.2", "2.27.3"):
        add("nccl", "comm", ("h100_sxm", "nccl", version), message | {"op_name": "alltoall", "nccl_dtype": "half"})
    reduced = message | {"allreduce_dtype": "bfloat16", "kernel_source": "vLLM_custom_graph"}
    add("custom_allreduce", "comm", h100, reduced)
    for name, rows in everything.items():
        parquet(copy / f"{name}.parquet", rows)
    parquet(copy / "gemm_power_h200.parquet", [row for row in everything["gemm"] if "power" in row])
    parquet(copy / "gemm.parquet", [row for row in everything["gemm"] if "power" not in row])
    _serving(copy, root)


def _serving(copy: Path, root: Path) -> None:
    degrees = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    sides = [f"{side}_{d}" for side in ("prefill", "decode") for d in (*degrees, "num_workers", "batch_size")]
    run = {
        "id": "a", "silicon_data_source": "db-dump/2026-04-27; silicon_concurrency=128; measured=2026-04-17T00:00:00Z",
        "backend": "vllm", "backend_version": "0.12.0", "model_path": "Qwen/Qwen3-32B", "system": "h100_sxm",
        "precision": "fp8", "mode": "agg", "isl": 1024, "osl": 512, "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8",
        "batch_size": 16.0, **dict.fromkeys(degrees, 1.0), **dict.fromkeys(sides), "silicon_ttft_ms": 200.0,
        "silicon_tpot_ms": 10.0,
    }  # fmt: skip
    other = run | {"id": "b", "silicon_data_source": "source_file=x.csv; silicon_concurrency=8", "silicon_ttft_ms": 9.0}
    runs = [run, run | {"id": "again"}, other]
    csv(root / "silicon_sample.csv", runs)
    known = [{"concurrency": 128.0, "measured_date": "2026-04-17", "is_exact_dup": False},
             {"concurrency": 128.0, "measured_date": "2026-04-17", "is_exact_dup": True},
             {"concurrency": 8.0, "measured_date": None, "is_exact_dup": False}]  # fmt: skip
    frame = pd.DataFrame([one | more for one, more in zip(runs, known, strict=True)])
    frame.astype(dict.fromkeys(sides, "float64")).to_parquet(copy / "serving_end_to_end.parquet")


Write = Callable[[Path, Path], None]
INNER: dict[Write, str] = {
    timm: "results", pytorch_gpu_benchmark: "results", neusight: "scripts/asplos", vidur: "data/profiling",
    aiconfigurator: "aic-core/src/aiconfigurator_core/systems",
}  # fmt: skip
every_set = pytest.mark.parametrize("write", INNER, ids=lambda write: write.__name__)


def rows_of(name: str, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What the store would hold, by table, in an order that does not depend on the files'."""
    tables = importers.load(name, folder).tables
    result = {table: schema.conform(table, frame).to_pylist() for table, frame in tables.items()}
    return {table: sorted(tuple(map(repr, row.values())) for row in rows) for table, rows in result.items()}


@every_set
@pytest.mark.parametrize("inner", [False, True], ids=["clone", "folder in it"])
def test_both_layouts_give_the_same_rows(write: Write, inner: bool, tmp_path: Path) -> None:
    copy, clone = tmp_path / "copy", tmp_path / "clone"
    write(copy, clone)
    copied = rows_of(write.__name__, copy)
    assert rows_of(write.__name__, clone / INNER[write] if inner else clone) == copied
    assert all(copied.values())


@every_set
def test_what_is_left_out_is_the_same(write: Write, tmp_path: Path) -> None:
    copy, clone = tmp_path / "copy", tmp_path / "clone"
    write(copy, clone)
    dropped = importers.load(write.__name__, clone).dropped
    assert dropped == importers.load(write.__name__, copy).dropped
    assert bool(dropped) == (write in (timm, vidur, aiconfigurator))


@every_set
def test_a_file_that_git_lfs_did_not_fetch(write: Write, tmp_path: Path) -> None:
    write(tmp_path / "copy", tmp_path / "clone")
    for path in (tmp_path / "clone").rglob("*.parquet" if write is aiconfigurator else "*.csv"):
        path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    with pytest.raises(ForerunError, match="git lfs pull"):
        importers.load(write.__name__, tmp_path / "clone")


@every_set
def test_an_empty_folder(write: Write, tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match=r"does not contain the \w+ data: .* is missing"):
        importers.load(write.__name__, tmp_path)


def test_timm_names_of_files(tmp_path: Path) -> None:
    row = {"model": "resnet50", "infer_step_time": 9.0, "infer_samples_per_sec": 1.0, "infer_batch_size": 8,
           "infer_img_size": 224, "param_count": 25.56}  # fmt: skip
    for name in ("amp-nchw-pt291-cu130-5090", "amp_bf16-nchw-pt291-cu130-pro6000maxq-dynamo",
                 "bf16-nchw-pt291-cu130-pro6000maxq-dynamo"):  # fmt: skip
        csv(tmp_path / f"benchmark-infer-{name}.csv", [row])
    rows = importers.load("timm", tmp_path).tables["models"].set_index("device", append=True)
    result = rows[["dtype", "amp", "runtime", "software"]].reset_index("device").to_dict("records")
    assert [(one["device"], one["dtype"], one["amp"], one["runtime"]) for one in result[:2]] == [
        ("rtx5090", "fp32", "fp16", "eager"), ("rtx-pro-6000-max-q", "fp32", "bf16", "compile"),
    ]  # fmt: skip
    assert (result[2]["dtype"], result[2]["runtime"]) == ("bf16", "compile") and pd.isna(result[2]["amp"])
    assert result[0]["software"] == '{"cuda":"13.0","torch":"2.9.1"}'
    csv(tmp_path / "benchmark-infer-other.csv", [row])
    with pytest.raises(ForerunError, match=r"benchmark-infer-other\.csv is of another form"):
        importers.load("timm", tmp_path)


def test_aiconfigurator_reads_the_newest_table_that_is_whole(tmp_path: Path) -> None:
    aiconfigurator(tmp_path / "copy", tmp_path / "clone")
    data = tmp_path / "clone/aic-core/src/aiconfigurator_core/systems/data/h100_sxm/gemm/vllm"
    row = {"framework": "VLLM", "device": "NVIDIA H100 80GB HBM3", "kernel_source": "k", "gemm_dtype": "bfloat16",
           "n": 64, "k": 64}  # fmt: skip
    many = [row | {"m": m, "latency": m / 7} for m in range(1, 3000)]
    for version, rows in (("0.9.0", many), ("0.24.0", many), ("0.25.0rc1", many), ("0.25.0", many[:5])):
        (data / version).mkdir(exist_ok=True)
        pd.DataFrame(rows).to_parquet(data / version / "gemm_perf.parquet")
    loaded = importers.load("aiconfigurator", tmp_path / "clone").tables["operators"]
    gemms = loaded[(loaded["op"] == "linear") & (loaded["device"] == "h100-sxm")]
    assert set(gemms["software"]) == {'{"vllm":"0.25.0rc1"}'} and len(gemms) == len(many)


def test_aiconfigurator_samples_large_tables_the_same_way_every_time(tmp_path: Path, monkeypatch: Any) -> None:
    aiconfigurator(tmp_path / "copy", tmp_path / "clone")
    data = tmp_path / "clone/aic-core/src/aiconfigurator_core/systems/data/h100_sxm/gemm/vllm/0.24.0"
    row = {"framework": "VLLM", "device": "H100", "kernel_source": "k", "gemm_dtype": "bfloat16", "n": 64, "k": 64}
    pd.DataFrame([row | {"m": m, "latency": 1.0} for m in range(1, 500)]).to_parquet(data / "gemm_perf.parquet")
    monkeypatch.setattr(_aiconfigurator_tables, "ROWS_PER_TABLE", 100)
    first, second = (importers.load("aiconfigurator", tmp_path / "clone").tables["operators"] for _ in range(2))
    gemms = first[(first["op"] == "linear") & (first["device"] == "h100-sxm")]
    assert len(gemms) == 100 and gemms["shape"].is_unique
    assert first["shape"].tolist() == second["shape"].tolist()


def test_aiconfigurator_of_older_commits(tmp_path: Path) -> None:
    """Without folders of families, as CSV under another name."""
    aiconfigurator(tmp_path / "copy", tmp_path / "clone")
    new = tmp_path / "clone/aic-core/src/aiconfigurator_core/systems"
    old = tmp_path / "old/src/aiconfigurator/systems"
    for path in (new / "data").rglob("*.parquet"):
        system, _, backend, version, name = path.relative_to(new / "data").parts
        place = old / "data" / system / backend / version / name.replace(".parquet", ".txt")
        place.parent.mkdir(parents=True, exist_ok=True)
        pd.read_parquet(path).to_csv(place, index=False)
    (old / "silicon_sample.csv").write_bytes((new / "silicon_sample.csv").read_bytes())
    assert rows_of("aiconfigurator", tmp_path / "old") == rows_of("aiconfigurator", tmp_path / "clone")
