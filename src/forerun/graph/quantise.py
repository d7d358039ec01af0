"""Linear weights in 8 or 4 bits: cast before use, or multiplied directly in fp8."""

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
#: Up to this many rows bitsandbytes multiplies by 4-bit weights in one kernel; with more it unpacks them first
#: (bitsandbytes 0.50 on an H200; between 5 and some 300 rows it takes whichever it expects to be faster).
FEW_ROWS = 4
#: Methods whose kernels (Marlin and its kin) unpack 4-bit weights while they multiply, however many rows there are.
MARLIN = ("gptq", "awq", "compressed-tensors", "mxfp4")
TORCHAO = ("torchao",)  # PyTorch's own kernel, _weight_int4pack_mm


def quantise(
    graph: Graph, dtype: str, *, method: str = "", fused: bool = False, skip: Sequence[str] = (),
    any_batch: bool = False,
) -> Graph:  # fmt: skip
    """`graph` with its linear and expert weights stored in `dtype`, one of FORMATS; embeddings and convolutions stay.

    8-bit weights are cast before each use, which a compiler makes part of the matmul (`fused`), or multiplied as 8-bit
    numbers by `method` bitsandbytes. 4-bit ones are unpacked where there are many rows, or in a graph that is asked for
    `any_batch`. A weight that is also looked up as an embedding (a tied output layer) stays too, as quantising
    libraries leave it, and so do the modules that `skip` names (a part of their path).
    """
    chosen = _linear_weights(graph, skip)
    tensors, storages = _stored_in(graph, chosen, dtype)
    ops = list(graph.ops)
    before: dict[int, list[Op]] = {}
    after: dict[int, Op] = {}
    for i, op in enumerate(graph.ops):
        if op.kind not in ("matmul", "moe_matmul") or graph.tensors[op.inputs[1]].storage not in chosen:
            continue
        if dtype == "int8" and method == "bitsandbytes" and op.kind == "matmul":
            ops[i], before[i], after[i] = _llm_int8(i, op, graph, tensors, storages)
        elif dtype == "int4" and method in MARLIN:
            ops[i] = replace(op, attrs={**op.attrs, "unpacks": "as_read"})
        elif dtype == "int4" and method in TORCHAO:
            continue
        elif dtype == "int4" and op.kind == "matmul" and not any_batch and _rows(op, graph) <= FEW_ROWS:
            ops[i] = replace(op, attrs={**op.attrs, "unpacks": "slowly"})
        elif dtype == "int4" or not fused:
            weight = graph.tensors[op.inputs[1]]
            storage = graph.storages[weight.storage]
            tensors.append(replace(weight, storage=len(storages)))
            storages.append(Storage(storage.bytes, "activation", i, i, op.repeat))
            cast = Op("copy", "aten::_to_copy", (op.inputs[1],), (len(tensors) - 1,), {}, op.scope, op.phase, op.repeat)
            before[i] = [cast]
            ops[i] = replace(op, inputs=(op.inputs[0], len(tensors) - 1, *op.inputs[2:]))
    notes = [*graph.notes, _stored_note(graph, chosen, dtype), _kernel_note(dtype, method, bool(before))]
    facts = {**graph.facts, "quantised": dtype}
    return splice(replace(graph, ops=ops, notes=notes, facts=facts), tensors, storages, before, after)


def _llm_int8(i: int, op: Op, graph: Graph, tensors: list[Tensor], storages: list[Storage]) -> tuple[Op, list[Op], Op]:
    """LLM.int8() of bitsandbytes: (the 8-bit matmul, what is done to its input before, what to its result after).

    As its kernels were recorded: the input is cast to fp16, searched for outliers and quantised row by row; the 32-bit
    sums are scaled to fp16 and cast back.
    """
    x, y = op.inputs[0], op.outputs[0]

    def new(like: int, dtype: str) -> int:
        tensors.append(replace(graph.tensors[like], dtype=dtype, storage=len(storages)))
        storages.append(storage_of(graph.tensors[like], dtype, i, op.repeat))
        return len(tensors) - 1

    def extra(kind: str, name: str, source: int, target: int) -> Op:
        return Op(kind, name, (source,), (target,), {}, op.scope, op.phase, op.repeat)

    half, sums = new(x, "fp16"), new(y, "int32")
    activations = graph.tensors[x]
    grows = activations.per_sample and activations.per_sample[:-1]
    per_row = replace(activations, shape=activations.shape[:-1], dtype="bool", storage=len(storages), per_sample=grows)
    tensors.append(per_row)
    storages.append(storage_of(per_row, "bool", i, op.repeat))
    outliers = len(tensors) - 1
    small = new(x, "int8")
    before = [
        extra("copy", "aten::_to_copy", x, half),
        extra("reduce", "aten::any", half, outliers),
        extra("elementwise", "bitsandbytes::int8_vectorwise_quant", half, small),
    ]
    matmul = replace(op, inputs=(small, *op.inputs[1:2]), outputs=(sums,), attrs={**op.attrs, "unit": "int8"})
    return matmul, before, extra("elementwise", "bitsandbytes::int8_mm_dequant", sums, y)


def in_fp8(graph: Graph, skip: Sequence[str] = ()) -> Graph:
    """`graph` with its linear and expert matmuls in fp8: weights stored in fp8, activations cast before each matmul.
    The modules that `skip` names stay as they are."""
    chosen = _linear_weights(graph, skip)
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
        int8 = "unit" in op.attrs  # 8-bit matmuls keep their weights
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
    scopes = {word for word in words if not word.startswith("re:")}
    for word in words:
        if word.startswith("re:"):
            with contextlib.suppress(re.error):
                pattern = re.compile(word.removeprefix("re:"))
                scopes |= {scope for scope in {op.scope for op in graph.ops} if scope and pattern.search(scope)}
    return sorted(scopes)


def _stored_in(graph: Graph, chosen: set[int], dtype: str) -> tuple[list[Tensor], list[Storage]]:
    """Tensors and storages of the graph, those chosen in `dtype`."""
    tensors = [replace(t, dtype=dtype) if t.storage in chosen else t for t in graph.tensors]
    storages = list(graph.storages)
    for t in graph.tensors:
        if t.storage in chosen:
            storage = graph.storages[t.storage]
            storages[t.storage] = replace(
                storage, bytes=round(storage.bytes * DTYPE_BYTES[dtype] / DTYPE_BYTES[t.dtype])
            )
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


def _rows(op: Op, graph: Graph) -> int:
    return math.prod(graph.tensors[op.inputs[0]].shape[:-1])


def _kernel_note(dtype: str, method: str, spliced: bool) -> str:
    """Which kernel is priced."""
    if dtype == "int4" and method in MARLIN:
        return (
            f"int4: priced is a kernel that unpacks {method} weights while it multiplies (Marlin and its kin), at the "
            "speed of half precision or of reading the weights; no such kernel was measured"
        )
    if dtype == "int4" and method in TORCHAO:
        return "int4: priced is PyTorch's kernel (_weight_int4pack_mm), which reads all weights for every 16 rows"
    if dtype == "int4":
        how = (
            "unpacked to half precision before an ordinary matmul" if spliced
            else "multiplied by one kernel that takes as long as half precision does"
        )  # fmt: skip
        return f"int4: priced is NF4 as bitsandbytes runs it: weights are {how}"
    if dtype == "int8" and method == "bitsandbytes":
        return "int8: priced is LLM.int8() of bitsandbytes: activations are quantised at every call"
    if spliced:
        return (
            f"{dtype}: priced is an ordinary matmul after a cast of the weights, which without a compiler is made at "
            "every call: it saves memory and costs time"
        )
    return f"{dtype}: priced is a matmul in half precision that casts the weights while it reads them"
