"""Properties of an aten call by its name and signature, computed once: captures make the same calls many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.capture.torch_ops import FREE, classify
from forerun.graph.op_names import base_name

#: aten calls whose result is a value or a data-dependent size, and whose kernel is negligible.
_ASKS = frozenset({"_local_scalar_dense", "nonzero", "equal", "allclose"})
#: Calls that take a list of indices, some of which may be masks.
INDEXING = ("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put")


@dataclass(slots=True, frozen=True)
class AtenCall:
    """One overload of an aten call."""

    func: Any  # referenced, so that no other call can get its id
    full_name: str  # 'aten::add_.Tensor'
    name: str  # 'add_'
    plain: str  # 'add'
    kind: str  # one of kinds.KINDS
    mutates: bool
    free: bool  # accesses no device memory
    asks: bool  # its result depends on values
    indexes: bool
    results: int
    makes_new: bool  # each result is a tensor of its own memory
    in_place: bool  # it writes into its first argument and returns it


_known: dict[int, AtenCall] = {}


def aten_call(func: Any) -> AtenCall:
    """The properties of a call that PyTorch dispatches."""
    known = _known.get(id(func))  # the hash of a call is Python code, and slower than the lookup
    return known if known is not None else _known.setdefault(id(func), _described(func))


def _described(func: Any) -> AtenCall:
    name, schema = base_name(func.name()), func._schema
    given, returned = schema.arguments, schema.returns
    plain, free = name.removesuffix("_"), name in FREE
    of_tensors = bool(returned) and all(str(argument.type) == "Tensor" for argument in returned)
    aliased = [i for i, argument in enumerate((*given, *returned)) if argument.alias_info is not None]
    return AtenCall(
        func,
        full_name=func.name(),
        name=name,
        plain=plain,
        kind=classify(name),
        mutates=schema.is_mutable,
        free=free,
        asks=name in _ASKS,
        indexes=plain in INDEXING,
        results=len(returned),
        makes_new=of_tensors and not aliased,
        in_place=of_tensors and not free and schema.is_mutable and aliased == [0, len(given)] and len(returned) == 1,
    )
