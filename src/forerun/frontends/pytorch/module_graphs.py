"""The graphs of a PyTorch module that was built already: run once on meta with inputs of the workload's shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forerun.errors import ForerunError
from forerun.frontends.pytorch.arguments import Argument, tensors
from forerun.graph.ir import Graph
from forerun.workload import Workload

if TYPE_CHECKING:
    from forerun.capture.foldable import Folding, Stacks


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
    from forerun.capture.capture import TORCH_DTYPES

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
    from forerun.capture.capture import TORCH_DTYPES
    from forerun.capture.foldable import Folding

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
    count_python: bool = True,
) -> list[Graph]:
    """The graphs of a module on inputs that `make_inputs` makes; `shapes` names them in the sentence of a failure."""
    from forerun.capture.module_capture import capture_module
    from forerun.capture.recorder import TooManyCalls

    try:
        return capture_module(build, make_inputs, workload, name, mask_density, most_calls, stacks, count_python)
    except (ForerunError, TooManyCalls):
        raise
    except Exception as e:
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        if workload.mode == "training" and "does not require grad" in reason:
            reason = "no output depends on a parameter by operators that have a gradient, so there is nothing to train"
        raise ForerunError(f"{name} could not be run on {shapes}: {reason}") from e
