"""Nested inputs and outputs of a model. Inputs are given flat, by path (`batch.image`, `frames.0`), and nested when the
model is called."""

from __future__ import annotations

from typing import Any

import torch


def call_arguments(flat: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments of a call: '' and numbers are positional, a path indexes dicts and lists."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *way, last = path.split(".")
        place = tree
        for step in way:
            place = place.setdefault(step, {})
        place[last] = value
    positional = [_listed(tree[k]) for k in sorted((k for k in tree if not k or k.isdigit()), key=_place)]
    return positional, {k: _listed(v) for k, v in tree.items() if k and not k.isdigit()}


def _listed(value: Any) -> Any:
    """Dicts whose keys are numbers become lists."""
    if not isinstance(value, dict):
        return value
    inside = {k: _listed(v) for k, v in value.items()}
    if not all(k.isdigit() for k in inside):
        return inside
    return [inside[k] for k in sorted(inside, key=_place)]


def _place(name: str) -> int:
    """The sort key of an argument or an item: '' before all numbers."""
    return int(name) if name else -1


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Every tensor in nested lists, tuples and dicts, in order."""
    tensors: list[torch.Tensor] = []
    _gather(tree, tensors)
    return tensors


#: The most common argument types besides tensors: checked first, since every call of a capture passes here.
_LEAVES = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.Size})


def _gather(tree: Any, tensors: list[torch.Tensor]) -> None:
    if type(tree) in _LEAVES:
        return
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            _gather(item, tensors)
    elif hasattr(tree, "values") and hasattr(tree, "keys"):  # dicts, and Hugging Face outputs, which are dict-like
        for item in tree.values():
            _gather(item, tensors)
