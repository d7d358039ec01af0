"""Front door: our own families of networks by their parameters: `cnn:depth=6,filters=32`, `unet:base=44,levels=3`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.sources import cnn_family, unet_family
from forerun.graph.sources.torch_module import capture
from forerun.workload import Workload

_FAMILIES: dict[str, Any] = {module.PREFIX: module for module in (cnn_family, unet_family)}


def matches(model: Any) -> bool:
    return isinstance(model, str) and model.startswith(tuple(_FAMILIES))


def family_of(model: str) -> Any:
    return next(module for prefix, module in _FAMILIES.items() if model.startswith(prefix))


def key(model: str, workload: Workload) -> dict[str, Any]:
    family = family_of(model)
    return {family.PREFIX.rstrip(":"): family.parse(model), "torch": version("torch")}


def load(model: str, workload: Workload) -> list[Graph]:
    import torch

    from forerun.graph.capture import TORCH_DTYPES

    family = family_of(model)
    settings = family.parse(model)
    if workload.input_shape is not None or workload.seq_len is not None:
        raise ForerunError(f"a {family.PREFIX} model says its own input: change it in its name")

    def build() -> Any:
        with torch.device("meta"):
            return family.build(**settings).to(device="meta", dtype=TORCH_DTYPES[workload.weight_dtype])

    return capture(build, {"": (family.input_shape(settings), "float")}, workload, family.name(**settings))
