"""Front door: any torch.nn.Module the user built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.sources.arguments import Argument, Arguments, tensors
from forerun.graph.sources.door import Door
from forerun.workload import Workload


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

        dtype = TORCH_DTYPES[workload.weight_dtype]
        inputs = input_spec(model, workload)
        return capture(lambda: meta_copy(model).to(dtype), inputs, workload, name=type(model).__name__)


def input_spec(model: Any, workload: Workload) -> Arguments:
    """What the module is called with, from the workload or from what the module shows."""
    shape = workload.input_shape
    if isinstance(shape, dict):
        return {k: Argument(tuple(v), "token" if _looks_like_tokens(k) else "float") for k, v in shape.items()}
    tokens = _first_layer_is_embedding(model)
    if shape is not None:
        return {"": Argument(shape, "token" if tokens else "float")}
    if tokens and workload.seq_len:
        return {"": Argument((workload.seq_len,), "token")}
    raise ForerunError(
        f"the input of {type(model).__name__} is not known: give input_shape without the batch, such as (3, 224, 224)"
        + (", or seq_len" if tokens else "")
    )


def _looks_like_tokens(name: str) -> bool:
    return any(word in name.lower() for word in ("ids", "token", "index", "indices"))


def _first_layer_is_embedding(model: Any) -> bool:
    leaves = [m for m in model.modules() if not list(m.children()) and type(m).__name__ not in ("Dropout", "Identity")]
    return bool(leaves) and type(leaves[0]).__name__ in ("Embedding", "EmbeddingBag")


def capture(
    build: Any,
    inputs: Mapping[str, tuple[Any, ...]],
    workload: Workload,
    name: str,
    mask_density: float = 1.0,
    most_calls: int | None = None,
) -> list[Graph]:
    """Captures a module on meta; a failure inside the model becomes one sentence.

    `inputs` gives every argument as an `Argument`, or as its first fields. `mask_density` is the share of a mask that
    is set, where a model asks for it (tokens that go to one expert). Beyond `most_calls` TooManyCalls is raised.
    """
    from forerun.graph.capture import TORCH_DTYPES
    from forerun.graph.module_capture import capture_module
    from forerun.graph.recorder import TooManyCalls

    arguments = {name: Argument(*fields) for name, fields in inputs.items()}
    dtype = TORCH_DTYPES[workload.weight_dtype]
    steps = workload.mode in ("prefill", "decode")
    if steps and not any(tokens in arguments for tokens in ("input_ids", "decoder_input_ids")):
        raise ForerunError(f"{name} has no {workload.mode} mode: it is not a language model that forerun can step")
    try:
        return capture_module(
            build, lambda batch: tensors(arguments, batch, dtype), workload, name, mask_density, most_calls
        )
    except (ForerunError, TooManyCalls):
        raise
    except Exception as e:
        shapes = ", ".join(f"{a or 'input'} {tuple(argument.shape)}" for a, argument in arguments.items())
        reason = (str(e).strip().splitlines() or [type(e).__name__])[0]
        raise ForerunError(f"{name} could not be run on {shapes}: {reason}") from e
