"""Frontend: any torch.nn.Module the user built."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from forerun.frontends.base import Frontend
from forerun.frontends.pytorch.module_graphs import capture
from forerun.frontends.pytorch.torch_inputs import input_spec
from forerun.frontends.pytorch.torch_wrappers import check_initialised, unwrap_inside, unwrapped
from forerun.frontends.pytorch.torchscript_file import capture_script, copies_of
from forerun.graph.ir import Graph
from forerun.workload import Workload, own_dtype


class TorchFrontend(Frontend):
    """A live torch.nn.Module. It has no cache key: what a module does is code, and code has no content key."""

    takes = "a torch.nn.Module"
    priority = 100

    def matches(self, model: Any) -> bool:
        modules = [c.__module__ for c in type(model).__mro__]
        is_keras = any(m.split(".")[0] == "keras" for m in modules)  # which can run on PyTorch
        return any(m.startswith("torch.nn.") for m in modules) and not is_keras

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        from forerun.capture.capture import TORCH_DTYPES
        from forerun.capture.fold import meta_copy

        inner, notes = unwrapped(model)
        if type(inner).__module__.startswith("torch.jit"):
            return capture_script(copies_of(inner), workload, inner.original_name)
        check_initialised(inner)
        inputs = input_spec(inner, workload)
        # In its own dtype a module is taken as it is: some of its layers may be in another.
        dtype = None if own_dtype(inner) == workload.weight_dtype else TORCH_DTYPES[workload.weight_dtype]
        graphs = capture(lambda: unwrap_inside(meta_copy(inner)).to(dtype), inputs, workload, type(inner).__name__)
        return [replace(graph, notes=notes + graph.notes) for graph in graphs] if notes else graphs
