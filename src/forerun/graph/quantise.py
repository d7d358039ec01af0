"""Linear weights in 8 or 4 bits: stored so and cast before use, or, in fp8, multiplied so."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from dataclasses import replace

from forerun.graph.ir import DTYPE_BYTES, Graph, Op, Storage, Tensor
from forerun.graph.splice import splice, storage_of

#: Formats that weights can be stored in.
FORMATS = ("int8", "int4", "fp8")
#: Rows that PyTorch's kernel for 4-bit weights takes for one reading of them.
ROWS_PER_READING = 16


def quantise(graph: Graph, dtype: str, *, fused: bool = False, skip: Sequence[str] = ()) -> Graph:
    """`graph` with its linear and expert weights stored in `dtype`, one of FORMATS; embeddings and convolutions stay.

    8-bit weights are cast before each use, which a compiler makes part of the matmul (`fused`). A weight that is also
    looked up as an embedding (a tied output layer) stays too, as quantising libraries leave it, and so do the modules
    that `skip` names (a part of their path).
    """
    chosen = _linear_weights(graph, skip)
    tensors, storages = _stored_in(graph, chosen, dtype)
    ops, casts = list(graph.ops), {}
    for i, op in enumerate(graph.ops):
        if (
            dtype != "int4"
            and not fused
            and op.kind in ("matmul", "moe_matmul")
            and graph.tensors[op.inputs[1]].storage in chosen
        ):
            # 8-bit weights are cast before they are used; 4-bit ones have kernels that read them as they are.
            weight = graph.tensors[op.inputs[1]]
            whole = graph.storages[weight.storage]
            tensors.append(replace(weight, storage=len(storages)))
            storages.append(Storage(whole.bytes, "activation", i, i, op.repeat))
            casts[i] = Op(
                "copy", "aten::_to_copy", (op.inputs[1],), (len(tensors) - 1,), {}, op.scope, op.phase, op.repeat
            )
            ops[i] = replace(op, inputs=(op.inputs[0], len(tensors) - 1, *op.inputs[2:]))
    note = _stored_note(graph, chosen, dtype)
    if casts:
        note += "; without a compiler they are cast at every call, which saves memory and costs time"
    notes = [*graph.notes, note, *_kernel_notes(graph, chosen, dtype)]
    facts = {**graph.facts, "quantised": dtype}
    return splice(
        replace(graph, ops=ops, notes=notes, facts=facts),
        tensors,
        storages,
        {i: [cast] for i, cast in casts.items()},
        {},
    )


def in_fp8(graph: Graph) -> Graph:
    """`graph` with its linear and expert products in fp8: weights stored so, activations cast before each product."""
    chosen = _linear_weights(graph, ())
    tensors, storages = _stored_in(graph, chosen, "fp8")
    ops, casts = list(graph.ops), {}
    for i, op in enumerate(graph.ops):
        if op.kind not in ("matmul", "moe_matmul") or graph.tensors[op.inputs[1]].storage not in chosen:
            continue
        rows = graph.tensors[op.inputs[0]]
        tensors.append(replace(rows, dtype="fp8", storage=len(storages)))
        storages.append(storage_of(rows, "fp8", i, op.repeat))
        casts[i] = Op("copy", "aten::_to_copy", (op.inputs[0],), (len(tensors) - 1,), {}, op.scope, op.phase, op.repeat)
        ops[i] = replace(op, inputs=(len(tensors) - 1, *op.inputs[1:]))
    notes = [
        *graph.notes,
        _stored_note(graph, chosen, "fp8"),
        "fp8: priced are products of two fp8 matrices, their result in bf16, and a cast of the activations before each",
    ]
    facts = {**graph.facts, "quantised": "fp8"}
    return splice(
        replace(graph, ops=ops, notes=notes, facts=facts),
        tensors,
        storages,
        {i: [cast] for i, cast in casts.items()},
        {},
    )


def _linear_weights(graph: Graph, skip: Sequence[str]) -> set[int]:
    """Storages of the weights that are stored in fewer bits."""
    weights: set[int] = set()
    looked_up: set[int] = set()
    for op in graph.ops:
        int8 = "unit" in op.attrs  # 8-bit products keep the weights they have
        if op.kind in ("matmul", "moe_matmul") and not int8 and not any(_names(word, op.scope) for word in skip):
            weights |= {graph.tensors[t].storage for t in op.inputs[1:2]}
        if op.kind == "embedding":
            looked_up |= {graph.tensors[t].storage for t in op.inputs[:1]}
    return {s for s in weights - looked_up if graph.storages[s].role == "parameter"}


def _names(word: str, scope: str) -> bool:
    """Whether an entry of a list of modules means the module at `scope`."""
    return f".{word}." in f".{scope}."


def without_patterns(words: Sequence[str], graph: Graph) -> list[str]:
    """A list of modules with every pattern ("re:" and an expression) replaced by the modules that it means.

    A pattern of anybody's can take for ever: call this where the time is limited.
    """
    found = {word for word in words if not word.startswith("re:")}
    for word in words:
        if word.startswith("re:"):
            with contextlib.suppress(re.error):
                pattern = re.compile(word.removeprefix("re:"))
                found |= {scope for scope in {op.scope for op in graph.ops} if scope and pattern.search(scope)}
    return sorted(found)


def _stored_in(graph: Graph, chosen: set[int], dtype: str) -> tuple[list[Tensor], list[Storage]]:
    """Tensors and storages of the graph, those chosen in `dtype`."""
    tensors = [replace(t, dtype=dtype) if t.storage in chosen else t for t in graph.tensors]
    storages = list(graph.storages)
    for t in graph.tensors:
        if t.storage in chosen:
            whole = graph.storages[t.storage]
            storages[t.storage] = replace(whole, bytes=round(whole.bytes * DTYPE_BYTES[dtype] / DTYPE_BYTES[t.dtype]))
    return tensors, storages


def linear_share(graph: Graph) -> float:
    """The share of all weight bytes that would be stored in fewer bits."""
    return _share(graph, _linear_weights(graph, ()))


def _share(graph: Graph, chosen: set[int]) -> float:
    held = sum(graph.storages[s].bytes * graph.storages[s].repeat for s in chosen)
    return held / max(sum(s.bytes * s.repeat for s in graph.storages if s.role == "parameter"), 1)


def _stored_note(graph: Graph, chosen: set[int], dtype: str) -> str:
    before = {t.dtype for t in graph.tensors if t.storage in chosen}
    rest = "half precision" if before <= {"fp16", "bf16"} else ", ".join(sorted(before))
    return (
        f"{dtype}: weights of linear layers ({_share(graph, chosen):.0%} of all weight bytes) are stored in {dtype}; "
        f"activations, embeddings and convolutions stay in {rest}"
    )


def _kernel_notes(graph: Graph, chosen: set[int], dtype: str) -> list[str]:
    """Which kernel is priced for weight-only products, and where another one would be taken."""
    if dtype != "int4":
        return [f"{dtype}: priced is an ordinary product after the cast; kernels that cast while they read are faster"]
    rows = 0
    for op in graph.ops:
        if op.kind == "matmul" and graph.tensors[op.inputs[1]].storage in chosen:
            shape = graph.tensors[op.inputs[0]].shape
            rows = max(rows, math.prod(shape[:-1]))
    note = "int4: priced is PyTorch's weight-only kernel (_weight_int4pack_mm), made for few rows as in decode"
    if rows <= 4 * ROWS_PER_READING:
        return [note]
    readings = math.ceil(rows / ROWS_PER_READING)
    return [
        f"{note}; with {rows:,} rows it reads all weights {readings:,} times, which makes a prefill many times slower "
        "than bf16: engines unpack the weights first there, so take the time of dtype bf16 "
        "and the memory of int4"
    ]
