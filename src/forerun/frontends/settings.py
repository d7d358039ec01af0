"""Frontend: our own families of networks by their settings: `cnn:depth=6,filters=32`, `unet:base=44,levels=3`."""

from __future__ import annotations

from typing import Any

from forerun._util.installed import version
from forerun.errors import ForerunError
from forerun.frontends.base import Frontend
from forerun.frontends.pytorch.module_graphs import capture
from forerun.graph.ir import Graph
from forerun.networks import family_of, is_family, names
from forerun.workload import Workload


class FamilyFrontend(Frontend):
    """A member of a family of networks, named by its settings."""

    takes = "a family of networks with its settings, such as cnn:depth=6,filters=32"
    priority = 100

    def matches(self, model: Any) -> bool:
        return isinstance(model, str) and is_family(model)

    def knows(self, name: str) -> bool:
        return is_family(name)

    def key(self, model: Any, workload: Workload) -> dict[str, Any]:
        family = family_of(model)
        return {family.prefix: family.parse(model), "torch": version("torch")}

    def names(self) -> list[str]:
        return names()

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        from forerun.capture.capture import TORCH_DTYPES
        from forerun.capture.meta_build import on_meta

        family = family_of(model)
        settings = family.parse(model)
        if workload.input_shape is not None or workload.seq_len is not None:
            raise ForerunError(f"the name of a {family.prefix}: model gives its input: change it in the name")
        if workload.mode not in family.modes:
            raise ForerunError(f"{family.prefix}: has no {workload.mode} mode; it has {', '.join(family.modes)}")

        def build() -> Any:
            with on_meta():
                return family.build(**settings).to(device="meta", dtype=TORCH_DTYPES[workload.weight_dtype])

        inputs = {
            argument: (given.shape, "float" if given.below is None else "token")
            for argument, given in family.inputs(settings).items()
        }
        return capture(build, inputs, workload, family.name(**settings))
