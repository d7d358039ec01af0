"""Weight-only quantisation: matmul weights stored in 8 or 4 bits, everything else as it was captured."""

from __future__ import annotations

from dataclasses import replace

from forerun.graph.ir import DTYPE_BYTES, Graph, Op, Storage
from forerun.graph.splice import splice


def quantise(graph: Graph, dtype: str, *, fused: bool = False) -> Graph:
    """`graph` with its linear and expert weights in `dtype` ('int8' or 'int4'); embeddings and convolutions stay.

    8-bit weights are cast before each use, which a compiler makes part of the matmul (`fused`). A weight that is also
    looked up as an embedding (a tied output layer) stays too, as quantising libraries leave it.
    """
    weights: set[int] = set()
    looked_up: set[int] = set()
    for op in graph.ops:
        if op.kind in ("matmul", "moe_matmul") and "unit" not in op.attrs:  # 8-bit products keep the weights they have
            weights |= {graph.tensors[t].storage for t in op.inputs[1:2]}
        if op.kind == "embedding":
            looked_up |= {graph.tensors[t].storage for t in op.inputs[:1]}
    chosen = {s for s in weights - looked_up if graph.storages[s].role == "parameter"}
    tensors = [replace(t, dtype=dtype) if t.storage in chosen else t for t in graph.tensors]
    storages = list(graph.storages)
    for t in graph.tensors:
        if t.storage in chosen:
            whole = graph.storages[t.storage]
            storages[t.storage] = replace(whole, bytes=round(whole.bytes * DTYPE_BYTES[dtype] / DTYPE_BYTES[t.dtype]))
    ops, casts = list(graph.ops), {}
    for i, op in enumerate(graph.ops):
        if (
            dtype == "int8"
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
    share = sum(graph.storages[s].bytes * graph.storages[s].repeat for s in chosen)
    total = sum(s.bytes * s.repeat for s in graph.storages if s.role == "parameter")
    note = (
        f"{dtype}: weights of linear layers ({share / max(total, 1):.0%} of all weight bytes) are stored in {dtype}; "
        "activations, embeddings and convolutions stay in half precision"
    )
    if casts:
        note += "; without a compiler they are cast at every call, which saves memory and costs time"
    facts = {**graph.facts, "quantised": dtype}
    return splice(replace(graph, ops=ops, notes=[*graph.notes, note], facts=facts), tensors, storages, casts, {})
