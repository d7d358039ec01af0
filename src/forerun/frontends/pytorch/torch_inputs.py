"""What a user's module is called with: the shapes that are given, under the names that its `forward` has."""

from __future__ import annotations

import inspect
import re
from typing import Any

from forerun.errors import ForerunError, did_you_mean
from forerun.workload import Workload

#: Argument, or the path of a nested one -> (shape without the batch, 'float' or 'token').
Spec = dict[str, tuple[tuple[int, ...], str]]
#: Words in the name of an input that is whole numbers.
_WHOLE = frozenset("id ids inputids token tokens idx index indices".split())


def input_spec(model: Any, workload: Workload) -> Spec:
    """The inputs of a module, from the workload or from what the module shows."""
    shape = workload.input_shape
    tokens = _first_layer_is_embedding(model)
    if isinstance(shape, dict):
        only = len(shape) == 1 and tokens
        return {
            path: (tuple(sizes), "token" if only or _is_whole(path) else "float")
            for path, sizes in _paths(model, shape).items()
        }
    if shape is not None:
        return {"": (shape, "token" if tokens else "float")}
    if tokens and workload.seq_len:
        return {"": ((workload.seq_len,), "token")}
    raise ForerunError(
        f"the input of {type(model).__name__} is not known: give input_shape without the batch, such as (3, 224, 224)"
        + (", or seq_len" if tokens else "")
    )


def _paths(model: Any, shapes: dict[str, Any]) -> dict[str, Any]:
    """The shapes by the names of `forward`; names that it does not have are keys of a dict that it takes."""
    parameters = _parameters(model)
    if parameters is None:
        return shapes
    unknown = [name for name in shapes if not _leads_to(name.split(".")[0], parameters)]
    if not unknown:
        return shapes
    required = [p for p in parameters if p.default is p.empty]
    if len(unknown) == len(shapes) and (len(required) == 1 or len(parameters) == 1):
        only = (required or parameters)[0].name
        return {f"{only}.{name}": sizes for name, sizes in shapes.items()}
    names = [p.name for p in parameters]
    raise ForerunError(
        f"{type(model).__name__} has no input called {unknown[0]!r}; its forward takes {', '.join(names)}."
        + did_you_mean(unknown[0], names)
    )


def _parameters(model: Any) -> list[inspect.Parameter] | None:
    """The parameters of `forward`; None where it takes any, or does not say."""
    try:
        found = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError, AttributeError):
        return None
    return None if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in found) else found


def _leads_to(name: str, parameters: list[inspect.Parameter]) -> bool:
    if name.isdigit():
        return int(name) < len(parameters)
    return not name or any(p.name == name and p.kind is not p.POSITIONAL_ONLY for p in parameters)


def _is_whole(path: str) -> bool:
    """Whether a name is that of tokens or indices; numbers at the end of a path are places in a list."""
    words = [word for word in re.split(r"[^a-z]+", path.lower()) if word]
    return bool(_WHOLE.intersection(words))


def _first_layer_is_embedding(model: Any) -> bool:
    leaves = [m for m in model.modules() if not list(m.children()) and type(m).__name__ not in ("Dropout", "Identity")]
    return bool(leaves) and type(leaves[0]).__name__ in ("Embedding", "EmbeddingBag")
