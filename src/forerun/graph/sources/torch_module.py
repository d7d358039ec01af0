"""Front door: any torch.nn.Module the user built."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.sources.door import Door
from forerun.graph.sources.torch_inputs import input_spec
from forerun.graph.sources.torch_wrappers import check_initialised, unwrap_inside, unwrapped
from forerun.workload import Workload, own_dtype


class TorchDoor(Door):
    """A live torch.nn.Module. It has no cache key: what a module does is code, and code has no content key."""

    takes = "a torch.nn.Module"
    priority = 100

    def matches(self, model: Any) -> bool:
        modules = [c.__module__ for c in type(model).__mro__]
        is_keras = any(m.split(".")[0] == "keras" for m in modules)  # which can run on PyTorch
        return any(m.startswith("torch.nn.") for m in modules) and not is_keras

    def load(self, model: Any, workload: Workload) -> list[Graph]:
        from forerun.graph.capture import TORCH_DTYPES
        from forerun.graph.fold import meta_copy

        inner, notes = unwrapped(model)
        if type(inner).__module__.startswith("torch.jit"):
            from forerun.graph.sources.torchscript_file import capture_script, copies_of

            return capture_script(copies_of(inner), workload, inner.original_name)
        check_initialised(inner)
        inputs = input_spec(inner, workload)
        # In its own dtype a module is taken as it is: some of its layers may be in another.
        dtype = None if own_dtype(inner) == workload.weight_dtype else TORCH_DTYPES[workload.weight_dtype]
        graphs = capture(lambda: unwrap_inside(meta_copy(inner)).to(dtype), inputs, workload, type(inner).__name__)
        return [replace(graph, notes=notes + graph.notes) for graph in graphs] if notes else graphs


def capture(
    build: Any,
    inputs: dict[str, tuple[tuple[int, ...], str]],
    workload: Workload,
    name: str,
    mask_density: float = 1.0,
) -> list[Graph]:
    """Captures a module on meta; a failure inside the model becomes one sentence.

    `mask_density` is the share of a mask that is set, where a model asks for it (tokens that go to one expert).
    """
    import torch

    from forerun.graph.capture import TORCH_DTYPES

    dtype = TORCH_DTYPES[workload.weight_dtype]

    def make_inputs(batch: int) -> dict[str, Any]:
        return {
            arg: torch.empty((batch, *shape), device="meta", dtype=torch.int64 if kind == "token" else dtype)
            for arg, (shape, kind) in inputs.items()
        }

    if workload.mode in ("prefill", "decode") and "input_ids" not in inputs:
        raise ForerunError(f"{name} has no {workload.mode} mode: it is not a language model that forerun can step")
    shapes = ", ".join(f"{a or 'input'} {tuple(s)}" for a, (s, _) in inputs.items())
    return captured(build, make_inputs, workload, name, shapes, mask_density)


def captured(
    build: Any, make_inputs: Any, workload: Workload, name: str, shapes: str, mask_density: float = 1.0
) -> list[Graph]:
    """The graphs of a module on inputs that `make_inputs` makes; `shapes` names them in the sentence of a failure."""
    from forerun.graph.steps import capture_module

    try:
        return capture_module(build, make_inputs, workload, name, mask_density)
    except ForerunError:
        raise
    except Exception as e:
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ForerunError(f"{name} could not be run on {shapes}: {reason}") from e
