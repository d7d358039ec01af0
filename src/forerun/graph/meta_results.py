"""What an aten call gives on meta tensors, remembered: shapes decide it, and PyTorch takes milliseconds to work it out.

A network repeats the same call on the same shapes, and a capture runs it several times. A call is remembered by its
arguments, tensors by shape, strides and dtype, when each result is a tensor of its own memory: no view, nothing
written in place.
"""

from __future__ import annotations

from typing import Any

import torch

from forerun.graph.nested import tensors_in

Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]
_MOST = 20_000
_known: dict[Any, tuple[Layout | None, ...] | None] = {}  # None: run it
_whole: dict[Any, bool] = {}  # by op: whether all it gives is new


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """`func(*args, **kwargs)`, from memory where the same call was seen before."""
    if not _gives_new_tensors(func):
        return func(*args, **kwargs)
    try:
        key = (func, _described(args), _described(kwargs), torch.get_default_dtype())
        layouts = _known.get(key, ())
    except TypeError:  # an argument that cannot be a key, or values that decide the result
        return func(*args, **kwargs)
    if layouts:
        made = tuple(
            None if one is None else torch.empty_strided(*one[:2], dtype=one[2], device="meta") for one in layouts
        )
        return made if len(func._schema.returns) > 1 else made[0]
    out = func(*args, **kwargs)
    if layouts == () and len(_known) < _MOST:
        _known[key] = _layouts(out, (args, kwargs))
    return out


def _gives_new_tensors(func: Any) -> bool:
    if func not in _whole:
        schema = func._schema
        aliased = [*schema.arguments, *schema.returns]
        _whole[func] = bool(schema.returns) and all(
            one.alias_info is None for one in aliased
        ) and all(str(one.type) == "Tensor" for one in schema.returns)  # fmt: skip
    return _whole[func]


def _described(tree: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        if not tree.is_meta or type(tree) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError
        return (tree.shape, tree.stride(), tree.dtype)
    if isinstance(tree, (list, tuple)):
        return tuple(_described(item) for item in tree)
    if isinstance(tree, dict):
        return tuple((name, _described(item)) for name, item in tree.items())
    return (type(tree), tree)  # 1, 1.0 and True are one key and three results


def _layouts(out: Any, given: Any) -> tuple[Layout | None, ...] | None:
    results = out if isinstance(out, tuple) else (out,)
    seen = {t.untyped_storage()._cdata for t in tensors_in(given)}
    for t in results:
        if t is None:
            continue
        storage = t.untyped_storage()
        whole = t.storage_offset() == 0 and storage.nbytes() == _span(t)
        if not t.is_meta or type(t) is not torch.Tensor or not whole or storage._cdata in seen:
            return None
        seen.add(storage._cdata)
    return tuple(None if t is None else (t.shape, t.stride(), t.dtype) for t in results)


def _span(t: torch.Tensor) -> int:
    if not t.numel():
        return 0
    return (1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True))) * t.element_size()
