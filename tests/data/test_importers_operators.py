"""Importers of operator tables: NeuSight, Vidur and AIConfigurator, on small files with the true columns."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from forerun.data import importers
from forerun.data.importers import neusight, vidur
from forerun.data.importers._shapes import json_column
from forerun.data.schema import conform
from forerun.data.store import Store
from forerun.errors import ForerunError


def _write(folder: Path, name: str, rows: list[dict[str, object]], **kinds: str) -> None:
    pd.DataFrame(rows).astype(kinds).to_parquet(folder / f"{name}.parquet")


def _one(frame: pd.DataFrame, **values: object) -> pd.Series:
    """The only row with these values."""
    for name, value in values.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def _shape(row: pd.Series) -> dict[str, int]:
    return dict(json.loads(row["shape"]))


def _stable(name: str, folder: Path, store: Path) -> None:
    """Loading twice gives the same keys, and the store holds the rows once."""
    first, second = (importers.load(name, folder).tables for _ in range(2))
    for table, frame in first.items():
        ids = conform(table, frame)["row_id"].to_pylist()
        assert ids == conform(table, second[table])["row_id"].to_pylist()
        assert len(set(ids)) == len(ids)
        assert set(frame["dataset"]) == {name} and set(frame["status"]) == {"ok"}
    stored = Store(store, shipped=False)
    counts = stored.replace(name, first)
    assert stored.replace(name, second) == counts == {table: len(frame) for table, frame in first.items()}
    assert all(len(stored.column(table, "row_id")) == count for table, count in counts.items())


def test_json_column_sorts_drops_nulls_and_keeps_whole_numbers() -> None:
    frame = pd.DataFrame({"n": [2, 3], "b": [1.0, None], "kernel": ["a", 'q"t']})
    assert json_column(frame).tolist() == ['{"b":1,"kernel":"a","n":2}', '{"kernel":"q\\"t","n":3}']
    empty, half = json_column(pd.DataFrame({"a": [None, 0.5]}))
    assert pd.isna(empty) and half == '{"a":0.5}'
    assert json_column(pd.DataFrame({"ok": [True, False]})).tolist() == ['{"ok":true}', '{"ok":false}']


# -- NeuSight ---------------------------------------------------------------------------------------------------------

_STACK = {"Torch Version": "p2.1.0", "CUDNN Version": 8902, "CUDA Version": "cu121"}


def _op(name: str, device: str, ms: float, split: str, **dims: object) -> dict[str, object]:
    return {"OPName": name, "Latency": ms, "Device": device, **_STACK, "table": name, "split": split, **dims}


@pytest.fixture
def neusight_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "neusight"
    folder.mkdir()
    t4 = "Tesla T4"
    for name in neusight.OPS:
        _write(folder, f"ops_train_{name}", [_op(name, t4, 0.05, "train", B=128, H=70000)])
    matrices = {"B": 4, "M": 384, "N": 96, "K": 64, "Kernels": ";sgemm_nn;splitkreduce"}
    _write(folder, "ops_train_bmm", [_op("bmm", t4, 0.5, "train", **matrices)])
    _write(folder, "ops_train_linear", [_op("linear", t4, 0.6, "train", **{**matrices, "B": 1})])
    conv = {"B": 8, "Input_Channel": 3, "Output_Channel": 16, "Kernel_Szie": 3, "Input_Size": 32, "Stride": 1}
    convs = [_op("conv", "NVIDIA A100 80GB PCIe", 1.5, "train", **conv, Padding=p, Kernels=";winograd") for p in (1, 0)]
    _write(folder, "ops_train_conv", convs)
    h100 = "NVIDIA H100 80GB HBM3"
    _write(folder, "ops_test_bmm", [_op("bmm", h100, 2.0, "test", **{**matrices, "Kernels": None})])
    _write(folder, "ops_test_linear", [_op("linear", h100, 3.0, "test", **{**matrices, "B": 1})])
    _write(folder, "ops_test_vec", [_op(o, "NVIDIA L4", 4.0, "test", B=32, H=100) for o in ("ln", "softmax", "mulu")])
    lines = [
        "device,model,mode,seqlen,batch,option,num_layer,e2e_latency,fw_latency,bwall_latency",
        "NVIDIA_L4,bert_large,inf,512,8,,24.0,409.9,409.9,0.0",
        "NVIDIA_L4,bert_large,inf,512,8,fusion,24.0,344.1,344.1,0.0",
        "AMD_Instinct_MI250,gpt3_xl,train,2048,1,,24.0,300.0,100.0,200.0",
        "NVIDIA_A100-SXM4-40GB,gpt2_large,train,1024,4,pp4_1,0.0,1597.6,0.0,0.0",
    ]
    (folder / "model_level.csv").write_text("\n".join(lines))
    return folder


def test_neusight_operators(neusight_folder: Path) -> None:
    rows = importers.load("neusight", neusight_folder).tables["operators"]
    bmm = _one(rows, op="bmm", protocol="neusight/train")
    # (M, N) times (N, K): their K is the width of the result, our n.
    assert bmm["shape"] == '{"b":4,"k":96,"m":384,"n":64}'
    assert (bmm["device"], bmm["dtype"], bmm["direction"], bmm["runtime"]) == ("t4", "fp32", "forward", "eager")
    assert (bmm["device_ms"], bmm["kernels"]) == (0.5, 2)
    assert json.loads(bmm["software"]) == {"torch": "2.1.0", "cuda": "12.1", "cudnn": "8902"}
    linear = _one(rows, op="linear", device="h100-sxm")
    assert (linear["shape"], linear["protocol"]) == ('{"k":96,"m":384,"n":64}', "neusight/test")
    assert pd.isna(_one(rows, op="bmm", device="h100-sxm")["kernels"])
    same, valid = (_shape(row) for _, row in rows[rows["op"] == "conv2d"].iterrows())
    assert same == {"b": 8, "cin": 3, "cout": 16, "h": 32, "w": 32, "r": 3, "stride": 1, "groups": 1}
    assert valid == {**same, "pad": 0}
    assert _one(rows, op="conv2d", shape=json.dumps(valid, sort_keys=True, separators=(",", ":")))["device_ms"] == 1.5
    assert _one(rows, op="gelu")["shape"] == '{"n":8960000}'  # 128 * 70000
    assert _one(rows, op="layer_norm", device="l4")["shape"] == '{"cols":100,"rows":32}'
    assert _one(rows, op="scale", device="l4")["family"] == "unary"
    assert {"add_scalar", "div_scalar", "pow_scalar", "pow", "div"} < set(rows["op"])


def test_neusight_models(neusight_folder: Path) -> None:
    rows = importers.load("neusight", neusight_folder).tables["models"]
    eager = _one(rows, model="bert-large-uncased", runtime="eager")
    assert (eager["latency_ms"], eager["mode"], eager["batch"], eager["seq_len"]) == (409.9, "inference", 8, 512)
    assert (eager["device"], eager["devices"], eager["source"]) == ("l4", 1, "hf")
    assert _one(rows, model="bert-large-uncased", runtime="compile")["latency_ms"] == 344.1
    trained = _one(rows, model="neusight/gpt3_xl")
    assert (trained["device"], trained["optimizer"], trained["mode"]) == ("mi250", "none", "training")
    assert json.loads(trained["extra"]) == {"forward_ms": 100, "backward_ms": 200}
    assert pd.isna(trained["source"])
    four = _one(rows, devices=4)
    assert json.loads(four["parallel"]) == {"pp": 4, "microbatches": 1}
    # Parts of a step on four GPUs were not measured: they are null, not 0.
    assert pd.isna(four["extra"]) and pd.isna(four["optimizer"]) and pd.isna(four["runtime"])


def test_neusight_sums_of_a_class_over_a_model(neusight_folder: Path) -> None:
    kinds = [
        f"{who}_{op}_fw_latency" for who in ("label", "neusight") for op in ("BMM", "Linear", "VECsoftmax", "VECln")
    ]
    lines = [
        ",".join(["model_name,seqlen,batch,device,mode,option,label_all_fw_latency", *kinds]),
        "bert_large,512,8,NVIDIA_L4,inf,,409.9,46.5,194.5,28.0,0.0,51.5,174.5,33.0,0.0",
        "bert_large,512,8,NVIDIA_L4,inf,fusion,344.1,9,9,9,9,9,9,9,9",
        "gpt3_xl,2048,1,AMD_Instinct_MI250,train,,100.0,,,,,,,,",
        "gpt2_large,1024,4,NVIDIA_A100-SXM4-40GB,train,pp4_1,0.0,9,9,9,9,9,9,9,9",
        "gpt2_large,1024,4,Tesla_T4,inf,,1.0,1,1,1,1,1,1,1,1",  # of no row
    ]
    (neusight_folder / "published_tables").mkdir()
    (neusight_folder / "published_tables" / "summary.csv").write_text("\n".join(lines))
    rows = importers.load("neusight", neusight_folder).tables["models"]
    assert len(rows) == 4
    assert json.loads(_one(rows, model="bert-large-uncased", runtime="eager")["extra"]) == {
        "op_ms": {"bmm": 46.5, "linear": 194.5, "softmax": 28.0},
        "neusight_op_ms": {"bmm": 51.5, "linear": 174.5, "softmax": 33.0},
    }
    assert json.loads(_one(rows, model="neusight/gpt3_xl")["extra"]) == {"forward_ms": 100, "backward_ms": 200}
    assert rows[(rows["runtime"] == "compile") | (rows["devices"] == 4)]["extra"].isna().all()


def test_neusight_twice_and_wrong(neusight_folder: Path, tmp_path: Path) -> None:
    _stable("neusight", neusight_folder, tmp_path / "store")
    _write(neusight_folder, "ops_test_vec", [_op("cosh", "NVIDIA L4", 1.0, "test", B=1, H=1)])
    with pytest.raises(ForerunError, match="cosh"):
        importers.load("neusight", neusight_folder)
    (neusight_folder / "ops_test_vec.parquet").unlink()
    with pytest.raises(ForerunError, match=r"ops_test_vec\.parquet is missing"):
        importers.load("neusight", neusight_folder)


# -- Vidur ------------------------------------------------------------------------------------------------------------


def _times(part: str, mean: float) -> dict[str, float]:
    spread = {"min": mean / 2, "max": mean * 2, "mean": mean, "median": mean * 1.5, "std": 0.0}
    return {f"time_stats.{part}.{name}": value for name, value in spread.items()}


def _block(tokens: int, tp: int, gated: bool, **sizes: int) -> dict[str, object]:
    parts = ["emb", "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "mlp_up_proj", "mlp_act"]
    parts += ["mlp_down_proj", "add", *(["post_attention_layernorm"] if gated else [])]
    times = {k: v for i, part in enumerate(parts) for k, v in _times(part, 0.01 * (i + 1)).items()}
    return {**times, **sizes, "use_gated_mlp": gated, "num_tokens": tokens, "num_tensor_parallel_workers": tp}


@pytest.fixture
def vidur_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "vidur"
    folder.mkdir()
    llama = {"n_head": 64, "n_kv_head": 8, "n_embd": 8192, "n_expanded_embd": 28672, "vocab_size": 32768}
    phi = {"n_head": 32, "n_kv_head": 32, "n_embd": 2560, "n_expanded_embd": 10240, "vocab_size": 51200}
    rows = [_block(100, tp, True, **llama) for tp in (1, 8)]
    _write(folder, "compute__h100__meta-llama__Llama-2-70b-hf__mlp", rows)
    _write(folder, "compute__a100__microsoft__phi-2__mlp", [_block(100, 1, False, **phi)])
    for node in ("a100_dgx", "h100_pairwise_nvlink", "a100_pairwise_nvlink"):
        for collective in ("all_reduce", "send_recv"):
            link = {"rank": 0, "num_workers": 16, "size": 2048, "collective": collective, "devices_per_node": 8}
            _write(folder, f"network__{node}__{collective}", [{**_times(collective, 0.2), **link}])
    return folder


def test_vidur_shapes_are_those_of_one_worker(vidur_folder: Path) -> None:
    rows = importers.load("vidur", vidur_folder).tables["operators"]
    extra = rows["extra"].map(lambda text: json.loads(text) if isinstance(text, str) else {})
    rows = rows.assign(part=extra.map(lambda x: x.get("part")), tp=extra.map(lambda x: x.get("tp")))
    eight = rows[(rows["device"] == "h100-sxm") & (rows["tp"] == 8)]
    linears = {row["part"]: _shape(row) for _, row in eight[eight["op"] == "linear"].iterrows()}
    assert linears == {
        "attn_pre_proj": {"m": 100, "n": (8 + 2) * 128, "k": 8192},
        "attn_post_proj": {"m": 100, "n": 8192, "k": 1024},
        "mlp_up_proj": {"m": 100, "n": 2 * 3584, "k": 8192},
        "mlp_down_proj": {"m": 100, "n": 8192, "k": 3584},
    }
    assert _shape(_one(eight, op="silu_and_mul")) == {"rows": 100, "cols": 3584}
    assert _shape(_one(eight, op="rope")) == {"tokens": 100, "heads": 8, "kv_heads": 1, "d": 128}
    assert _shape(_one(eight, op="vocab_parallel_embedding")) == {"rows": 100, "cols": 8192, "vocab": 4096}
    assert _shape(_one(eight, op="add")) == {"n": 819200}
    norms = eight[eight["op"] == "rms_norm"]
    assert norms["shape"].tolist() == ['{"cols":8192,"rows":100}'] * 2
    assert set(norms["runtime"]) == {"sarathi"} and set(eight[eight["op"] == "linear"]["runtime"]) == {"eager"}
    assert _shape(_one(rows, op="embedding", device="h100-sxm")) == {"rows": 100, "cols": 8192, "vocab": 32768}


def test_vidur_phi_has_other_operators(vidur_folder: Path) -> None:
    rows = importers.load("vidur", vidur_folder).tables["operators"]
    phi = rows[(rows["device_reported"] == "a100")]
    assert set(phi["device"]) == {"a100-pcie-80gb"} and set(phi["dtype"]) == {"fp16"}
    assert set(phi["op"]) == {"linear", "gelu", "rope", "layer_norm", "add3", "embedding"}
    assert _shape(_one(phi, op="gelu")) == {"n": 100 * 10240}
    norm = _one(phi, op="layer_norm")
    assert (norm["device_ms"], norm["device_min_ms"], norm["device_max_ms"]) == (0.02, 0.01, 0.04)


def test_vidur_network(vidur_folder: Path, tmp_path: Path) -> None:
    loaded = importers.load("vidur", vidur_folder)
    assert list(loaded.dropped.values()) == [1] and "copy" in next(iter(loaded.dropped))
    links = loaded.tables["operators"].query("protocol == 'vidur/network'")
    assert sorted(zip(links["op"], links["device"], strict=True)) == [
        ("all_reduce", "a100-pcie-80gb"),
        ("all_reduce", "a100-sxm4-80gb"),
        ("all_reduce", "h100-nvl"),
        ("send_recv", "a100-pcie-80gb"),
        ("send_recv", "a100-sxm4-80gb"),
    ]
    row = _one(links, op="all_reduce", device_reported="a100_dgx")
    assert (row["shape"], row["devices"], row["runtime"]) == ('{"bytes":2048,"nodes":2}', 16, "nccl")
    assert row["device_ms"] == pytest.approx(0.3)  # the median
    _stable("vidur", vidur_folder, tmp_path / "store")


def test_vidur_wrong_layout(vidur_folder: Path, tmp_path: Path) -> None:
    assert set(vidur.HERE) >= {"a100", "h100", "a40"}
    with pytest.raises(ForerunError, match="compute__"):
        importers.load("vidur", tmp_path)
    _write(vidur_folder, "network__a100_dgx__all_reduce", [{"size": 1}])
    with pytest.raises(ForerunError, match="not laid out as expected"):
        importers.load("vidur", vidur_folder)


# -- AIConfigurator ---------------------------------------------------------------------------------------------------


def _run(system: str, engine: str, kernel: str, ms: float, **more: object) -> dict[str, object]:
    return {"system": system, "backend_dir": engine, "kernel_source": kernel, "latency": ms, **more}


def _heads(b: int, isl: int, step: int, heads: int, kv: int) -> dict[str, object]:
    return {"batch_size": b, "isl": isl, "step": step, "num_heads": heads, "num_key_value_heads": kv, "head_dim": 128}


def _request(name: str, mode: str, **more: object) -> dict[str, object]:
    base: dict[str, object] = {
        "id": name, "backend": "vllm", "backend_version": "0.12.0", "model_path": "Qwen/Qwen3-32B",
        "system": "h100_sxm", "precision": "fp8", "mode": mode, "isl": 1024, "osl": 512, "gemm_quant_mode": "fp8",
        "moe_quant_mode": "fp8", "batch_size": 16.0, "silicon_ttft_ms": 200.0, "silicon_tpot_ms": 10.0,
        "concurrency": 16.0, "measured_date": "2026-01-02", "is_exact_dup": False,
    }  # fmt: skip
    degrees = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    names = [
        *degrees,
        *(f"{side}_{d}" for side in ("prefill", "decode") for d in (*degrees, "num_workers", "batch_size")),
    ]
    return {**base, **dict.fromkeys(names, float("nan")), **more}


@pytest.fixture
def aiconfigurator_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "aiconfigurator"
    folder.mkdir()
    size = {"m": 16, "n": 4096, "k": 512}
    gemms = [
        _run("a100_sxm", "vllm", "vllm_default", 0.5, gemm_dtype="bfloat16", **size),
        _run("h100_sxm", "trtllm", "torch_flow", 0.25, gemm_dtype="fp8", **size),
        _run("b300_sxm", "sglang", "sglang_torch_linear", 0.25, gemm_dtype="bfloat16", **size),
    ]
    _write(folder, "gemm", gemms, latency="float32", system="category")
    power = {"version_dir": "0.22.0", "device": "NVIDIA H200", "power": 600.0, "power_limit": 700.0, **size}
    _write(folder, "gemm_power_h200", [_run("h200_sxm", "vllm", "vllm_default", 1, gemm_dtype="fp8_block", **power)])
    prompts = [_run("l40s", "trtllm", "torch_flow", 2.0, **_heads(256, 16384, 0, 8, 8))]
    _write(folder, "attention_context", prompts, isl="int16", batch_size="int16", num_heads="int8")
    decodes = [
        _run("l40s", "trtllm", "torch_flow", 0.1, **_heads(4, 1, 1023, 32, 8)),
        _run("a100_sxm", "trtllm", "torch_flow", 0.1, **_heads(4, 1, 1023, 32, 8)),
        _run("h200_sxm", "trtllm", "torch_flow", 0.1, **_heads(4, 1, 1023, 32, 8)),
    ]
    _write(folder, "attention_generation", decodes, step="int32", isl="int8")
    moe = {"num_tokens": 64, "hidden_size": 4096, "inter_size": 1536, "topk": 8, "num_experts": 128}
    moe |= {"moe_tp_size": 4, "moe_ep_size": 2, "moe_dtype": "bfloat16"}
    _write(folder, "moe", [_run("b200_sxm", "sglang", "triton", 0.3, **moe)])
    message = {"num_gpus": 8, "message_size": 2**30, "version_dir": "2.27.3", "device": None}
    nccl = [
        _run("l40s", "nccl", "NCCL", 9.0, op_name="alltoall", nccl_dtype="half", **message),
        _run("h100_sxm", "nccl", "NCCL", 3.0, op_name="all_reduce", nccl_dtype="int8", **message),
    ]
    _write(folder, "nccl", nccl, num_gpus="int8", message_size="int32")
    small = {"allreduce_dtype": "bfloat16", "num_gpus": 2, "message_size": 128, "device": "NVIDIA H100 80GB HBM3"}
    custom = [
        _run("h100_sxm", "sglang", "TRTLLM", 0.01, version_dir="0.5.9", **small),
        _run("h100_sxm", "trtllm", "TRTLLM", 0.01, version_dir="1.2.0", **small),
        _run("h100_sxm", "trtllm", "TRTLLM", 0.01, version_dir="1.3.0", **small),
        _run("h100_sxm", "vllm", "vLLM_custom_eager", 0.05, version_dir="0.14.0", **small),
        _run("b60", "vllm", "vLLM_custom_eager", 0.05, version_dir="0.14.0", **{**small, "device": "Arc Pro"}),
    ]
    _write(folder, "custom_allreduce", custom)
    degrees = {"tp_size": 8.0, "pp_size": 1.0, "moe_tp_size": 1.0, "moe_ep_size": 1.0}
    workers = {"prefill_num_workers": 2.0, "prefill_tp_size": 1.0, "prefill_pp_size": 1.0, "decode_num_workers": 1.0}
    workers |= {"decode_tp_size": 4.0, "decode_pp_size": 1.0, "batch_size": float("nan")}
    workers |= {"prefill_attention_dp_size": 4.0, "decode_attention_dp_size": 1.0}
    runs = [
        _request("dense", "agg", **degrees),
        _request("again", "agg", **degrees, is_exact_dup=True),
        _request("tp8_ep8", "agg", **{**degrees, "tp_size": 64.0, "moe_tp_size": 8.0, "moe_ep_size": 8.0}),
        _request("glm", "agg", **{**degrees, "tp_size": 1.0, "moe_tp_size": 4.0}, model_path="zhipuai/GLM-5"),
        _request("split", "disagg", **workers, backend_version=None),
        _request("unsaid", "disagg", **{**workers, "decode_num_workers": float("nan")}, concurrency=32.0),
    ]
    _write(folder, "serving_end_to_end", runs)
    return folder


def test_aiconfigurator_operators(aiconfigurator_folder: Path) -> None:
    rows = importers.load("aiconfigurator", aiconfigurator_folder).tables["operators"]
    gemm = _one(rows, op="linear", device="a100-sxm4-80gb")
    assert (gemm["shape"], gemm["dtype"], gemm["runtime"]) == ('{"k":512,"m":16,"n":4096}', "bf16", "vllm")
    assert (gemm["device_ms"], gemm["protocol"], gemm["device_reported"]) == (0.5, "aiconfigurator/gemm", "a100_sxm")
    assert pd.isna(gemm["power_w"]) and json.loads(gemm["extra"]) == {"kernel": "vllm_default"}
    assert _one(rows, dtype="fp8", device="h100-sxm")["runtime"] == "trt-llm"
    power = _one(rows, protocol="aiconfigurator/gemm_power/fp8_block")
    assert (power["power_w"], power["dtype"], power["device"]) == (600.0, "fp8", "h200")
    assert json.loads(power["software"]) == {"vllm": "0.22.0"}
    assert json.loads(power["extra"])["power_limit_w"] == 700
    prompt = _one(rows, op="sdpa", device="l40s")
    same = {"b": 256, "heads": 8, "q": 16384, "kv": 16384, "d": 128, "causal": 1}
    assert _shape(prompt) == same  # as many heads for keys: omitted, as in our own shapes
    decode = _one(rows, op="sdpa", device="h200")
    assert _shape(decode) == {"b": 4, "heads": 32, "kv_heads": 8, "q": 1, "kv": 1024, "d": 128, "causal": 0}
    moe = {"tokens": 64, "experts": 128, "topk": 8, "hidden": 4096, "inner": 384, "ep": 2}
    assert _shape(_one(rows, op="moe", device="b200")) == moe


def test_aiconfigurator_messages_are_bytes(aiconfigurator_folder: Path) -> None:
    rows = importers.load("aiconfigurator", aiconfigurator_folder).tables["operators"]
    scattered = _one(rows, op="all_to_all")
    # 2**30 numbers of two bytes, from a column of 32 bits.
    assert (_shape(scattered), scattered["devices"]) == ({"bytes": 2**31, "nodes": 1}, 8)
    assert (scattered["dtype"], scattered["runtime"], scattered["device_reported"]) == ("fp16", "nccl", "l40s")
    assert "peer-to-peer" in json.loads(scattered["extra"])["warning"]
    reduced = _one(rows, op="all_reduce", protocol="aiconfigurator/nccl")
    assert _shape(reduced) == {"bytes": 2**30, "nodes": 1} and "warning" not in json.loads(reduced["extra"])
    graphed = _one(rows, protocol="aiconfigurator/custom_allreduce/graph")
    assert (graphed["runtime"], graphed["software"]) == ("trt-llm", '{"trtllm":"1.2.0"}')
    assert _shape(graphed) == {"bytes": 256, "nodes": 1}
    eager = rows[rows["protocol"] == "aiconfigurator/custom_allreduce/eager"]
    assert sorted(eager["device"]) == ["arc-pro-b60", "h100-sxm"]


def test_aiconfigurator_serving(aiconfigurator_folder: Path) -> None:
    rows = importers.load("aiconfigurator", aiconfigurator_folder).tables["models"]
    rows = rows.assign(name=rows["extra"].map(lambda text: json.loads(text)["id"]))
    dense = _one(rows, name="dense")
    assert (dense["mode"], dense["protocol"], dense["devices"]) == ("serving", "aiconfigurator/agg", 8)
    assert (dense["seq_len"], dense["tokens_out"], dense["batch"]) == (1024, 512, 16)
    assert (dense["ttft_ms"], dense["tpot_ms"], dense["dtype"], dense["family"]) == (200.0, 10.0, "fp8", "qwen3")
    assert json.loads(dense["parallel"]) == {"tp": 8, "pp": 1, "moe_tp": 1, "ep": 1}
    assert (dense["software"], dense["measured_at"]) == ('{"vllm":"0.12.0"}', "2026-01-02")
    # One GPU for attention but four for the experts: attention is four times data-parallel, which is not published.
    assert (_one(rows, name="glm")["model"], _one(rows, name="glm")["devices"]) == ("zai-org/GLM-5", 4)
    split = _one(rows, name="split")
    assert (split["devices"], split["protocol"]) == (2 * 4 + 4, "aiconfigurator/disagg")
    assert pd.isna(split["software"]) and split["batch"] == 16
    unsaid = _one(rows, name="unsaid")
    assert pd.isna(unsaid["devices"]) and unsaid["batch"] == 32


def test_aiconfigurator_drops_what_is_known_to_be_wrong(aiconfigurator_folder: Path) -> None:
    dropped = importers.load("aiconfigurator", aiconfigurator_folder).dropped
    assert {reason.split(":")[0]: count for reason, count in dropped.items() if "serving" not in reason} == {
        "SGLang rows of the B300 that are copies of the GB300's": 1,
        "TensorRT-LLM decoding on A100 and L40S": 2,
        "custom all-reduce": 2,
    }
    assert dropped["serving: exact duplicate"] == 1
    assert dropped["serving: tp_size is tp times ep, so the layout is not known"] == 1


def test_aiconfigurator_twice_and_wrong(aiconfigurator_folder: Path, tmp_path: Path) -> None:
    _stable("aiconfigurator", aiconfigurator_folder, tmp_path / "store")
    _write(aiconfigurator_folder, "moe", [{"system": "h100_sxm"}])
    with pytest.raises(ForerunError, match="not laid out as expected"):
        importers.load("aiconfigurator", aiconfigurator_folder)
