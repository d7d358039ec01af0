"""The questions of the gate: models that are captured in seconds, in every mode, runtime, dtype, and kind of device.

Questions that the shipped store has a measurement of are taken from its rows; the others are written here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

#: Models whose every measured case is asked. Their names are those of the store.
MEASURED = (
    "timm/resnet18", "timm/mobilenetv3_small_050", "timm/vit_tiny_patch16_224", "torchvision/alexnet",
    "hf/gpt2", "hf/smollm2-135m", "hf/llama-3.2-1b", "unet:base=44,levels=3", "cnn:depth=3,filters=32,classes=10",
    "nerf:samples=128,width=64,depth=4", "recurrent:cell=0,hidden=128,layers=2,both_ways=1,length=128",
    "graph_network:design=2,width=128,depth=3,nodes=512,degree=4", "seq2seq:biased=1,width=512,depth=4",
    "recommender:tables=8,rows=10000,width=32", "autoencoder:image=32,width=16,latent=512,norm=0",
    "state_space:design=0,width=512,depth=4,state=64,length=2048,vocab=256",
    "mixture_of_experts:design=1,width=256,depth=4,length=256,vocab=32000",
)  # fmt: skip
#: ONNX files that onnxruntime ran; their graphs come with the package.
MEASURED_ONNX = (
    "alexnet", "bert_mini", "bert_tiny_int8_dynamic", "convnext_atto", "convnext_atto_int8_static",
    "vit_tiny_patch16_224_int8_dynamic",
)  # fmt: skip
#: GPUs of several vendors and generations, SoCs, TPUs, ASICs and CPUs.
DEVICES = (
    "h200", "b200", "h100-sxm", "a100-sxm4-40gb", "t4", "l4", "v100-16gb", "rtx4090", "rtx5090", "mi300x", "mi210",
    "rx7900xtx", "intel-max-1550", "jetson-agx-orin-64gb", "apple-m2-max", "tpu-v5e", "tpu-v6e", "gaudi2",
    "trainium1", "ascend-910b", "xeon-emr-2vcpu",
)  # fmt: skip
MODULE, ONNX_FILE = "a PyTorch module", "an ONNX file"
LLAMA = {"seq_len": 1024, "mode": "decode"}
#: Asked of every device; what a device cannot run is refused, and stays so.
EVERYWHERE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("timm/resnet18", {"batch": 32, "dtype": "fp16"}),
    ("timm/resnet18", {"batch": 64, "dtype": "fp32", "mode": "training", "optimizer": "momentum"}),
    ("timm/vit_tiny_patch16_224", {"batch": 8, "dtype": "fp32"}),
    ("gpt2", {"batch": 2, "seq_len": 128, "mode": "prefill", "dtype": "bf16"}),
    ("gpt2", {"batch": 16, "seq_len": 512, "mode": "decode", "dtype": "fp16"}),
    ("meta-llama/Llama-3.1-8B", {"batch": 8, **LLAMA, "dtype": "bf16"}),
    (MODULE, {"batch": 4, "dtype": "fp32", "input_shape": (3, 32, 32)}),
    (ONNX_FILE, {"batch": 16}),
)
#: Asked of a few.
SOMEWHERE: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("meta-llama/Llama-3.1-8B", {"batch": 4, **LLAMA, "dtype": "int8"}, ("h200", "l4", "rtx4090", "mi300x")),
    ("meta-llama/Llama-3.1-8B", {"batch": 4, **LLAMA, "dtype": "int4"}, ("h200", "l4", "rtx4090", "mi300x")),
    ("meta-llama/Llama-3.1-8B", {"batch": 4, **LLAMA, "dtype": "fp8"}, ("h200", "h100-sxm", "l4", "b200", "a100")),
    ("gpt2", {"batch": 4, "seq_len": 128, "dtype": "fp32", "mode": "training", "optimizer": "adamw", "amp": "bf16"},
     ("h200", "a100", "rtx4090", "mi300x", "t4")),
    ("timm/resnet18", {"batch": 32, "dtype": "fp32", "channels_last": True, "amp": "fp16"}, ("h200", "t4", "rtx4090")),
    ("timm/resnet18", {"batch": 4, "dtype": "fp16", "runtime": "cudagraph"}, ("h200", "a100", "t4", "rtx4090")),
    ("timm/resnet18", {"batch": 4, "dtype": "fp16", "runtime": "compile"}, ("h200", "a100", "t4", "rtx4090")),
    ("timm/resnet18", {"batch": 4, "dtype": "fp16", "runtime": "compile-reduce-overhead"}, ("h200", "a100", "l4")),
    ("timm/resnet18", {"batch": 8, "dtype": "fp32-ieee"}, ("h200", "a100", "v100-16gb")),
    ("timm/resnet18", {"batch": 8, "dtype": "tf32"}, ("h200", "a100")),
    ("torchvision/alexnet", {"batch": 8, "dtype": "fp64"}, ("h200", "a100", "v100-16gb")),
    (ONNX_FILE, {"batch": 2, "runtime": "onnxruntime"}, ("xeon-clx-1vcpu", "xeon-clx-2vcpu", "xeon-emr-2vcpu")),
    ("timm/resnet18", {"batch": 16, "dtype": "fp16"}, ("h200/1g.18gb", "a100/3g.20gb")),
)  # fmt: skip
#: Asked of every other predictor that has weights or laws of its own.
OTHERS: tuple[tuple[str, dict[str, Any], str], ...] = tuple(
    (model, {"batch": 32, "dtype": "fp32", **settings}, device)
    for model, device in (("timm/resnet18", "h200"), ("cnn:depth=3,filters=32,classes=10", "h200"))
    for settings in ({}, {"mode": "training", "optimizer": "momentum"})
) + (("timm/resnet18", {"batch": 4, "dtype": "fp32"}, "xeon-emr-2vcpu"), ("timm/resnet18", {"batch": 4}, "t4"))
OTHER_PREDICTORS = ("dippm", "dummy", "mlp", "one-ratio", "regressors", "roofline", "trappm", "trees")


class Mixed(nn.Module):
    """A network of one's own: convolutions, attention, a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU())
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.steps = nn.LSTM(64, 96, batch_first=True)
        self.head = nn.Linear(96, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        tokens = self.layer(self.stem(image).flatten(2).transpose(1, 2))
        return self.head(self.steps(tokens)[0][:, -1])


def onnx_file(folder: Path) -> str:
    """A small ONNX file: two convolutions, a pool and a product, at any batch."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    sizes = {"a": (32, 3, 3, 3), "b": (64, 32, 3, 3), "c": (64, 10)}
    weights = [numpy_helper.from_array(np.full(size, 0.01, dtype=np.float32), name) for name, size in sizes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["1"], ["2"]),
        helper.make_node("Conv", ["2", "b"], ["3"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Sigmoid", ["3"], ["4"]),
        helper.make_node("GlobalAveragePool", ["4"], ["5"]),
        helper.make_node("Flatten", ["5"], ["6"]),
        helper.make_node("Gemm", ["6", "c"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *size])
            for name, size in (("x", (3, 64, 64)), ("y", (10,)))]  # fmt: skip
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], weights)
    path = folder / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def questions() -> Iterator[dict[str, Any]]:
    """Every question, and what was measured of it where the shipped store knows."""
    yield from _measured()
    for model, settings in EVERYWHERE:
        yield from ({"model": model, "settings": settings, "device": device} for device in DEVICES)
    for model, settings, devices in SOMEWHERE:
        yield from ({"model": model, "settings": settings, "device": device} for device in devices)
    for predictor in OTHER_PREDICTORS:
        for model, settings, device in OTHERS:
            yield {"model": model, "settings": settings, "device": device, "predictor": predictor}


def _measured() -> Iterator[dict[str, Any]]:
    """The cases of rows of the shipped store, each once, with the means of what was measured."""
    from forerun.data.measured import in_priced_format
    from forerun.data.store import Store
    from forerun.measure.cases import workload_of

    rows = Store().read("models")
    rows = rows[in_priced_format(rows)]
    rows = rows[(rows["status"] == "ok") & rows["protocol"].str.startswith("forerun/")]
    exported = rows["source"] == "onnx"
    rows = rows[(rows["model"].isin(MEASURED) & ~exported) | (rows["model"].isin(MEASURED_ONNX) & exported)]
    results = ["latency_ms", "device_ms", "memory_mb", "memory_allocated_mb", "energy_j", "graph_ms"]
    for (_, device), each in rows.groupby(["case_key", "device"], sort=True):
        row, case = each.iloc[0], json.loads(each["case"].iloc[0])
        means = {name: value for name, value in each[results].mean().items() if value == value}
        replayed = means.pop("graph_ms", None)
        if case["source"] == "onnx":
            settings = {"batch": int(row["batch"]), "dtype": "fp32", "runtime": "onnxruntime"}
            yield {"model": f"graph {row['graph_hash']}", "settings": settings, "device": device, "measured": means}
            continue
        work = workload_of(case)
        settings = {name: value for name, value in vars(work).items() if name != "model" and value}
        asked = {"model": work.model, "settings": settings, "device": device}
        yield {**asked, "measured": means}
        if replayed is not None and case["mode"] == "inference" and case["name"] == "resnet18":
            graph = {**settings, "runtime": "cudagraph"}
            yield {**asked, "settings": graph, "measured": {"latency_ms": float(replayed)}}
