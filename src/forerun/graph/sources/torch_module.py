"""Front door: any torch.nn.Module the user built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.sources.arguments import Argument, tensors
from forerun.graph.sources.door import Door
from forerun.graph.sources.torch_inputs import input_spec
from forerun.graph.sources.torch_wrappers import check_initialised, unwrap_inside, unwrapped
from forerun.workload import Workload, own_dtype

if TYPE_CHECKING:
    from forerun.graph.foldable import Folding, Stacks


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
    inputs: Mapping[str, tuple[Any, ...]],
    workload: Workload,
    name: str,
    mask_density: float = 1.0,
    most_calls: int | None = None,
    stacks: Stacks | None = None,
) -> list[Graph]:
    """Captures a module on meta; a failure inside the model becomes one sentence.

    `inputs` gives every argument as an `Argument`, or as its first fields. `mask_density` is the share of a mask that
    is set, where a model asks for it (tokens that go to one expert). Beyond `most_calls` TooManyCalls is raised.
    `stacks` says which can be folded, where that is known or counted elsewhere (`folding`).
    """
    from forerun.graph.capture import TORCH_DTYPES

    arguments = {name: Argument(*fields) for name, fields in inputs.items()}
    dtype = TORCH_DTYPES[workload.weight_dtype]
    steps = workload.mode in ("prefill", "decode")
    if steps and not any(tokens in arguments for tokens in ("input_ids", "decoder_input_ids")):
        raise ForerunError(f"{name} has no {workload.mode} mode: it is not a language model that forerun can step")
    shapes = ", ".join(f"{a or 'input'} {tuple(argument.shape)}" for a, argument in arguments.items())

    def make_inputs(batch: int) -> dict[str, Any]:
        return tensors(arguments, batch, dtype)

    return captured(build, make_inputs, workload, name, shapes, mask_density, most_calls, stacks)


def folding(
    build: Any, inputs: Mapping[str, tuple[Any, ...]], workload: Workload, mask_density: float = 1.0
) -> Folding:
    """What finds the stacks of equal blocks of a module that can be folded, and counts its calls."""
    from forerun.graph.capture import TORCH_DTYPES
    from forerun.graph.foldable import Folding

    arguments = {name: Argument(*fields) for name, fields in inputs.items()}
    dtype = TORCH_DTYPES[workload.weight_dtype]
    return Folding(build, lambda batch: tensors(arguments, batch, dtype), workload, mask_density)


def captured(
    build: Any,
    make_inputs: Any,
    workload: Workload,
    name: str,
    shapes: str,
    mask_density: float = 1.0,
    most_calls: int | None = None,
    stacks: Stacks | None = None,
) -> list[Graph]:
    """The graphs of a module on inputs that `make_inputs` makes; `shapes` names them in the sentence of a failure."""
    from forerun.graph.module_capture import capture_module
    from forerun.graph.recorder import TooManyCalls

    try:
        return capture_module(build, make_inputs, workload, name, mask_density, most_calls, stacks)
    except (ForerunError, TooManyCalls):
        raise
    except Exception as e:
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ForerunError(f"{name} could not be run on {shapes}: {reason}") from e
