"""Propagates the values of small tensors through a run on meta, for models that depend on them.

Meta tensors have shapes and no values. Some models depend on values: where the image tokens of a prompt are, how many
patches an image has. For such inputs a tensor with real values accompanies the meta tensor, and every op whose operands
are all known is also computed on the CPU. Ops on weights and activations stay unknown, so this costs little.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from forerun.capture.assumed import SIZED
from forerun.capture.aten_calls import aten_call
from forerun.capture.nested import tensors_in
from forerun.capture.python_calls import uncounted

#: Results with more elements than this are not propagated: they are activations or masks, and no code branches on them.
MOST_ELEMENTS = 2**25
#: Ops whose result does not depend on values.
_VALUELESS = ("empty", "rand", "bernoulli", "multinomial", "dropout", "normal", "uniform", "exponential")
_ATTRIBUTE = "_forerun_values"


def with_values(values: torch.Tensor) -> torch.Tensor:
    """A meta tensor with known values."""
    out = torch.empty_like(values, device="meta")
    setattr(out, _ATTRIBUTE, values)
    return out


def has_values(tree: Any) -> bool:
    """Whether any of a model's inputs was made by `with_values`."""
    return any(getattr(t, _ATTRIBUTE, None) is not None for t in tensors_in(tree))


def value_of(t: torch.Tensor) -> torch.Tensor | None:
    """The values of a tensor on the CPU; None where they are unknown."""
    return t if t.device.type == "cpu" else getattr(t, _ATTRIBUTE, None)


def _on_cpu(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return value_of(x)
    return torch.device("cpu") if isinstance(x, torch.device) else x


class KnownValues(TorchDispatchMode):
    """Propagates values from op to op. Enter it last, so that it sees a call before the recorder does."""

    @uncounted
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = aten_call(func)
        name = call.name
        operands = tensors_in((args, kwargs))
        known = all(value_of(t) is not None for t in operands) and not name.startswith(_VALUELESS)
        known = known and not name.startswith("new_empty")
        if known and any(t.device.type == "meta" for t in operands):
            if name == "_local_scalar_dense":
                return value_of(operands[0]).item()  # type: ignore[union-attr]
            if name in ("equal", "allclose") or (name == "_to_copy" and str(kwargs.get("device")) == "cpu"):
                return self._second(func, args, kwargs)
            if name in ("nonzero", "repeat_interleave", *SIZED):  # without values their size would be assumed
                return tree_map(self._remade, self._second(func, args, kwargs))
        if name == "cat":
            args = (_rejoined(*args), *args[1:])
        if call.indexes:
            args = (args[0], [i for mask in args[1] for i in _as_indices(mask)], *args[2:])
        try:
            out = func(*args, **kwargs)
        except (NotImplementedError, RuntimeError):
            if not known or not operands:
                raise
            return tree_map(self._remade, self._second(func, args, kwargs))  # its size depends on values
        if known and self._is_small(out):
            self._attach(out, self._second(func, args, kwargs))
        elif call.mutates and operands and hasattr(operands[0], _ATTRIBUTE):
            delattr(operands[0], _ATTRIBUTE)
        return out

    @staticmethod
    def _is_small(out: Any) -> bool:
        results = tensors_in(out)
        return bool(results) and all(t.device.type == "meta" and t.numel() <= MOST_ELEMENTS for t in results)

    @staticmethod
    def _second(func: Any, args: Any, kwargs: Any) -> Any:
        """The same call on the values."""
        with _disable_current_modes():
            return func(*tree_map(_on_cpu, args), **tree_map(_on_cpu, kwargs))

    @staticmethod
    def _attach(out: Any, values: Any) -> None:
        for t, value in zip(tensors_in(out), tensors_in(values), strict=True):
            setattr(t, _ATTRIBUTE, value)

    @staticmethod
    def _remade(value: Any) -> Any:
        return with_values(value) if isinstance(value, torch.Tensor) else value


def _as_indices(index: Any) -> list[Any]:
    """A mask with known values as the positions it selects; the recorder does the same for one without values."""
    value = value_of(index) if isinstance(index, torch.Tensor) and index.dtype is torch.bool else None
    return [index] if value is None else [with_values(column) for column in value.nonzero().unbind(1)]


def _rejoined(parts: Any, dim: int = 0) -> Any:
    """One tensor where `parts` are all of its rows in order: a batch that was split into images.

    A copy of the whole costs the same, and the graph keeps its structure at every batch size.
    """
    first, count = parts[0], len(parts)
    size = first.numel()
    in_order = all(
        p.is_contiguous() and p.shape == first.shape and p.storage_offset() == first.storage_offset() + i * size
        and p.untyped_storage()._cdata == first.untyped_storage()._cdata
        for i, p in enumerate(parts)
    )  # fmt: skip
    if dim or count < 2 or not size or not first.dim() or not in_order or first.device.type != "meta":
        return parts
    shape = (count * first.shape[0], *first.shape[1:])
    return [first.as_strided(shape, first.stride(), first.storage_offset())]


class _Literals(TorchFunctionMode):
    """`torch.tensor([...], device="meta")` does not dispatch, nor does reading a tensor as a list or an array."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("tolist", "numpy", "__array__") and has_values(args[:1]):
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                return func(value_of(args[0]), *args[1:], **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        known = all(value_of(t) is not None for t in tensors_in(args))
        if func in (torch.tensor, torch.as_tensor) and out.device.type == "meta" and known:
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                setattr(out, _ATTRIBUTE, func(*tree_map(_on_cpu, args), **{**(kwargs or {}), "device": "cpu"}))
        return out


@contextlib.contextmanager
def following(active: bool) -> Iterator[None]:
    """Propagates values while a model runs, where requested."""
    if not active:
        yield
        return
    with _Literals(), KnownValues():
        yield
