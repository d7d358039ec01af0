"""What is known of an aten call by its name and signature, worked out once: captures make the same calls many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forerun.graph.op_names import base_name
from forerun.graph.torch_ops import FREE, classify

#: aten calls whose answer is a value or a size that depends on values, and which are no kernel to speak of.
_ASKS = frozenset({"_local_scalar_dense", "nonzero", "equal", "allclose"})
#: Calls that take a list of indices, some of which may be masks.
INDEXING = ("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put")


@dataclass(slots=True, frozen=True)
class AtenCall:
    """One overload of an aten call."""

    func: Any  # kept, so that no other call can get its id
    full_name: str  # 'aten::add_.Tensor'
    name: str  # 'add_'
    plain: str  # 'add'
    kind: str  # one of kinds.KINDS
    mutates: bool
    free: bool  # it touches no memory on the device
    asks: bool  # its answer depends on values
    indexes: bool
    results: int
    makes_new: bool  # each result is a tensor of its own memory
    in_place: bool  # it writes into its first argument, and that is its result


_known: dict[int, AtenCall] = {}


def aten_call(func: Any) -> AtenCall:
    """What is known of a call that PyTorch dispatches."""
    found = _known.get(id(func))  # the hash of a call is Python code, and slower than the lookup
    return found if found is not None else _known.setdefault(id(func), _described(func))


def _described(func: Any) -> AtenCall:
    name, schema = base_name(func.name()), func._schema
    given, returned = schema.arguments, schema.returns
    plain, free = name.removesuffix("_"), name in FREE
    of_tensors = bool(returned) and all(str(one.type) == "Tensor" for one in returned)
    aliased = [i for i, one in enumerate((*given, *returned)) if one.alias_info is not None]
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
