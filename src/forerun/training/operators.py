"""Operator rows of the store as graphs: the operator is built on meta and recorded as any model is."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

from forerun.graph.ir import Graph

#: Our names for ops of published sets.
_ALSO = {"add_scalar": "scale", "div_scalar": "scale", "mul_scalar": "scale", "pow_scalar": "exp", "div": "mul",
         "pow": "mul"}  # fmt: skip


@functools.cache
def known_operators() -> frozenset[str]:
    """The operators whose graph can be recorded: all that are measured."""
    from forerun.measure.core.operators import OPERATORS

    return frozenset(OPERATORS)


def known(op: str) -> bool:
    return _ALSO.get(op, op) in known_operators()


@functools.lru_cache(maxsize=200_000)
def graph_of(op: str, shape: str, dtype: str, direction: str) -> Graph:
    """The graph of one call of an operator."""
    import torch

    from forerun.capture.capture import record
    from forerun.graph.splice import with_hidden_ops
    from forerun.measure.core.operators import build, find

    sizes = {k: int(v) for k, v in json.loads(shape).items()}
    kind = {"fp8": "fp16"}.get(dtype, dtype)
    name = _ALSO.get(op, op)
    case = {"op": name, "shape": sizes, "dtype": kind, "direction": direction}
    if name == "sdpa" and sizes.get("kv_heads", sizes["heads"]) != sizes["heads"]:
        return _grouped_attention(sizes, kind)
    with torch.device("meta"):
        forward, inputs = build(case, "meta")
        phase = "optimizer" if find(name).is_step else direction
        step = _step(forward, inputs, phase)
        graph = with_hidden_ops(record(torch.nn.Module(), step, repeats={}, held=lambda: iter(())))
    unknown = [op.name for op in graph.ops if op.kind == "unknown"]
    if unknown:
        raise ValueError(f"no class of op for {', '.join(unknown)}")
    if direction == "backward":
        backward_ops = [op for op in graph.ops if op.phase == "backward"]
        graph = replace(graph, ops=backward_ops)
    if dtype in ("int8", "int4"):
        tensors = list(graph.tensors)
        weight = graph.ops[0].inputs[1]
        tensors[weight] = replace(tensors[weight], dtype=dtype)
        return replace(graph, tensors=tensors)
    return _in_fp8(graph) if dtype == "fp8" else graph


def _step(forward: Any, inputs: list[Any], phase: str) -> Any:
    import torch

    def run(recorder: Any, emulation: Any) -> Any:
        if phase == "optimizer":
            recorder.phase = phase
            return forward()
        if phase != "backward":
            with torch.no_grad():
                return forward()
        out = forward()
        recorder.phase = phase
        return torch.autograd.grad(out, inputs, torch.empty_like(out))

    return run


def _grouped_attention(sizes: dict[str, int], dtype: str) -> Graph:
    """Attention with fewer key heads than query heads, which fused kernels read without copies."""
    from forerun.graph.ir import DTYPE_BYTES, Op, Storage, Tensor

    b, h, d = sizes["b"], sizes["heads"], sizes["d"]
    q, kv = (b, h, sizes["q"], d), (b, sizes["kv_heads"], sizes["kv"], d)
    tensors, storages = [], []
    for i, shape in enumerate((q, kv, kv, q)):
        size = 1
        for n in shape:
            size *= n
        storages.append(Storage(int(size * DTYPE_BYTES[dtype]), "activation"))
        tensors.append(Tensor(shape, dtype, i))
    attrs = {"causal": bool(sizes.get("causal")), **({"cached": True} if sizes["kv"] != sizes["q"] else {})}
    op = Op("attention", "attention", (0, 1, 2), (3,), attrs)
    return Graph("sdpa", [op], tensors, storages, 0, 0)


def _in_fp8(graph: Graph) -> Graph:
    """The same graph with FP16 inputs and weights as FP8; the result stays FP16."""
    outputs = {t for op in graph.ops for t in op.outputs}
    tensors = [
        replace(t, dtype="fp8") if t.dtype == "fp16" and i not in outputs else t for i, t in enumerate(graph.tensors)
    ]
    return replace(graph, tensors=tensors)
