"""Operator rows of the store as graphs: the operator is built on meta and recorded like any model, so it is seen with
the same eyes."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

from forerun.graph.ir import Graph

#: Ops of published sets in the words of ours.
_ALSO = {"add_scalar": "scale", "div_scalar": "scale", "mul_scalar": "scale", "pow_scalar": "exp", "div": "mul",
         "pow": "mul"}  # fmt: skip
KNOWN = frozenset(
    "matmul linear bmm conv2d sdpa softmax layer_norm rms_norm batch_norm batch_norm_train group_norm relu gelu silu "
    "sigmoid exp tanh hardswish copy scale add mul bias_add cast transpose cat sum max_pool avg_pool global_pool "
    "upsample bicubic unfold lstm embedding gather scatter_add sgd adamw cross_entropy".split()
)


def known(op: str) -> bool:
    return _ALSO.get(op, op) in KNOWN


@functools.lru_cache(maxsize=200_000)
def graph_of(op: str, shape: str, dtype: str, direction: str) -> Graph:
    """What one call of an operator launches."""
    import torch

    from forerun.graph.capture import record
    from forerun.measure.core.operators import build

    said = {k: int(v) for k, v in json.loads(shape).items()}
    kind = {"fp8": "fp16"}.get(dtype, dtype)
    case = {"op": _ALSO.get(op, op), "shape": said, "dtype": kind, "direction": direction}
    if case["op"] == "sdpa" and said.get("kv_heads", said["heads"]) != said["heads"]:
        return _grouped_attention(said, kind)
    with torch.device("meta"):
        if case["op"] in ("sgd", "adamw"):
            step: Any = _optimizer(case["op"], said, kind)
        else:
            forward, inputs = build(case, "meta")
            step = _step(forward, inputs, direction)
        graph = record(torch.nn.Module(), step, repeats={}, held=lambda: iter(()))
    if direction == "backward":
        kept = [op for op in graph.ops if op.phase == "backward"]
        graph = replace(graph, ops=kept)
    if dtype in ("int8", "int4"):
        tensors = list(graph.tensors)
        weight = graph.ops[0].inputs[1]
        tensors[weight] = replace(tensors[weight], dtype=dtype)
        return replace(graph, tensors=tensors)
    return _in_fp8(graph) if dtype == "fp8" else graph


def _step(forward: Any, inputs: list[Any], direction: str) -> Any:
    import torch

    def run(recorder: Any, emulation: Any) -> Any:
        if direction != "backward":
            with torch.no_grad():
                return forward()
        out = forward()
        recorder.phase = "backward"
        return torch.autograd.grad(out, inputs, torch.empty_like(out))

    return run


def _optimizer(op: str, said: dict[str, int], dtype: str) -> Any:
    """The step of measure.core.operators, foreach as on a GPU."""
    import torch

    from forerun.graph.capture import TORCH_DTYPES

    parameters = []
    for i in range(said["tensors"]):
        size = max(8, int((1.98 if i % 2 == 0 else 0.02) * said["n"] / said["tensors"]))
        p = torch.nn.Parameter(torch.empty(size, dtype=TORCH_DTYPES[dtype.replace("tf32", "fp32")], device="meta"))
        p.grad = torch.empty_like(p)
        parameters.append(p)
    optimizer: Any
    if op == "adamw":
        optimizer = torch.optim.AdamW(parameters, lr=1e-6, foreach=True, capturable=False)
    else:
        optimizer = torch.optim.SGD(parameters, lr=1e-6, momentum=0.9, foreach=True)

    def run(recorder: Any, emulation: Any) -> Any:
        recorder.phase = "optimizer"
        optimizer.step()

    return run


def _grouped_attention(said: dict[str, int], dtype: str) -> Graph:
    """Attention with fewer key heads, which fused kernels read as they are."""
    from forerun.graph.ir import DTYPE_BYTES, Op, Storage, Tensor

    b, h, d = said["b"], said["heads"], said["d"]
    q, kv = (b, h, said["q"], d), (b, said["kv_heads"], said["kv"], d)
    tensors, storages = [], []
    for i, shape in enumerate((q, kv, kv, q)):
        size = 1
        for n in shape:
            size *= n
        storages.append(Storage(int(size * DTYPE_BYTES[dtype]), "activation"))
        tensors.append(Tensor(shape, dtype, i))
    op = Op("attention", "attention", (0, 1, 2), (3,), {"causal": bool(said.get("causal"))})
    return Graph("sdpa", [op], tensors, storages, 0, 0)


def _in_fp8(graph: Graph) -> Graph:
    """The same with its halves as 8-bit numbers: inputs and weights, not the result."""
    outputs = {t for op in graph.ops for t in op.outputs}
    tensors = [
        replace(t, dtype="fp8") if t.dtype == "fp16" and i not in outputs else t for i, t in enumerate(graph.tensors)
    ]
    return replace(graph, tensors=tensors)
