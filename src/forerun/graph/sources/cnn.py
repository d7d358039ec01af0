"""Front door: the plain CNN family by parameters, `cnn:depth=6,filters=32,classes=10`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.sources import cnn_family
from forerun.graph.sources.torch_module import capture
from forerun.workload import Workload


def matches(model: Any) -> bool:
    return isinstance(model, str) and model.startswith(cnn_family.PREFIX)


def key(model: str, workload: Workload) -> dict[str, Any]:
    return {"cnn": cnn_family.parse(model), "torch": version("torch")}


def load(model: str, workload: Workload) -> list[Graph]:
    import torch

    from forerun.graph.capture import TORCH_DTYPES

    settings = cnn_family.parse(model)
    if workload.input_shape is not None or workload.seq_len is not None:
        raise ForerunError("a cnn: model says its own input: use image= and channels= in its name")
    shape = (settings["channels"], settings["image"], settings["image"])

    def build() -> Any:
        with torch.device("meta"):
            return cnn_family.build(**settings).to(device="meta", dtype=TORCH_DTYPES[workload.weight_dtype])

    return capture(build, {"": (shape, "float")}, workload, cnn_family.name(**settings))
