"""Fused nodes: ONNX Attention and the com.microsoft nodes that onnxruntime and its quantizer write.

ONNX has no shape rules for the com.microsoft nodes, so they are in `SHAPE_RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from forerun.frontends.onnx.calls import LINEAR
from forerun.frontends.onnx.trace import Trace
from forerun.frontends.onnx.values import Node, Value, groups_of

Rule = Callable[[Node], list[Value]]


def _pad(n: Node, *values: Value) -> list[Value]:
    """As many outputs as the node has; those without a rule are scalars."""
    known = list(values[: len(n.outputs)])
    return known + [Value((1,), values[0].dtype) for _ in n.outputs[len(known) :]]


def _same(n: Node) -> list[Value]:
    x = n.need(0)
    return _pad(n, Value(x.shape, x.dtype))


def _skip_norm_shape(n: Node) -> list[Value]:
    x = n.need(0)
    statistics, full = Value((*x.shape[:-1], 1), TensorProto.FLOAT), Value(x.shape, x.dtype)
    return _pad(n, Value(x.shape, x.dtype), statistics, Value(statistics.shape, statistics.dtype), full)


def _matmul_shape(n: Node) -> list[Value]:
    a, b = list(n.need(0).shape), list(n.need(1).shape)
    if n.attrs.get("transA"):
        a[-1], a[-2] = a[-2], a[-1]
    if n.attrs.get("transB"):
        b[-1], b[-2] = b[-2], b[-1]
    lead = np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2]))
    kind = n.need(0).dtype if n.op in ("FusedMatMul", "TransposeMatMul", LINEAR) else TensorProto.FLOAT
    return _pad(n, Value((*lead, *a[-2:-1], *b[-1:]), kind))


def _qgemm_shape(n: Node) -> list[Value]:
    a, b = n.need(0).shape, n.need(3).shape
    rows, columns = a[1 if n.attrs.get("transA") else 0], b[0 if n.attrs.get("transB") else 1]
    return _pad(n, Value((rows, columns), n.need(0).dtype if n.input(8) else TensorProto.FLOAT))


def _nbits_shape(n: Node) -> list[Value]:
    x = n.need(0)
    return _pad(n, Value((*x.shape[:-1], int(n.attrs["N"])), x.dtype))


def _binary_shape(n: Node) -> list[Value]:
    a, b = n.need(0), n.need(3)
    return _pad(n, Value(tuple(np.broadcast_shapes(a.shape, b.shape)), a.dtype))


def _qconcat_shape(n: Node) -> list[Value]:
    parts = [v for v in n.inputs[2::3] if v is not None]
    axis, shape = int(n.attrs.get("axis", 0)), list(parts[0].shape)
    shape[axis] = sum(v.shape[axis] for v in parts)
    return _pad(n, Value(tuple(shape), parts[0].dtype))


def _embed_shape(n: Node) -> list[Value]:
    ids, table = n.need(0), n.need(2)
    full = (*ids.shape, table.shape[-1])
    return _pad(n, Value(full, table.dtype), Value((ids.shape[0],), TensorProto.INT32), Value(full, table.dtype))


def _quantize_shape(n: Node) -> list[Value]:
    x, zero = n.need(0), n.input(2)
    kind = TensorProto.UINT8 if zero is None else zero.dtype
    return _pad(n, Value(x.shape, kind if n.op == "QuantizeLinear" else n.need(1).dtype))


def _half(n: Node) -> list[Value]:
    x = n.need(0)
    return _pad(n, Value((*x.shape[:-1], x.shape[-1] // 2), x.dtype))


# -- attention ---------------------------------------------------------------------------------------------------


class _Heads:
    """How an attention node splits its inputs: batch, heads, key heads, queries, keys, head sizes."""

    def __init__(self, n: Node) -> None:
        q = n.need(0)
        a = n.attrs
        self.batch = q.shape[0]
        self.heads = int(a.get("num_heads") or a.get("q_num_heads") or (q.shape[1] if len(q.shape) == 4 else 1))
        self.key_heads = int(a.get("kv_num_heads") or self.heads)
        self.queries = q.shape[2] if len(q.shape) == 4 else q.shape[1]
        self.keys = self.queries
        self.causal = bool(a.get("is_causal") or a.get("unidirectional"))
        window = int(a.get("local_window_size", -1))
        self.window = window if window > 0 else None
        self.past: Value | None = None
        k, v = (n.input(1), n.input(2)) if n.op not in ("Attention", "QAttention") or not n.domain else (None, None)
        if n.domain and n.op in ("Attention", "QAttention"):
            sizes = a.get("qkv_hidden_sizes")
            hidden = n.need(1).shape[-1] // 3
            self.head, self.value_head = ((sizes[0] if sizes else hidden) // self.heads,
                                          (sizes[2] if sizes else hidden) // self.heads)  # fmt: skip
            past = n.input(8 if n.op == "QAttention" else 4)
            self.past_keys = past.shape[3] if past is not None and len(past.shape) == 5 else 0
        else:
            if k is None:  # packed: [B, S, (H + 2 Hk) D] or [B, S, H, 3, D]
                width = math.prod(q.shape[2:])
                self.head = width // (self.heads + 2 * self.key_heads)
                self.value_head = self.head
            else:
                self.head = q.shape[-1] if len(q.shape) == 4 else q.shape[-1] // self.heads
                self.keys = k.shape[2] if len(k.shape) == 4 else k.shape[1]
                if len(k.shape) == 4 and n.domain == "":
                    self.key_heads = k.shape[1]
                if v is None:
                    self.value_head = self.head
                else:
                    self.value_head = v.shape[-1] if len(v.shape) == 4 else v.shape[-1] // self.key_heads
            place = {"GroupQueryAttention": 3, "Attention": 4, "MultiHeadAttention": 6}.get(n.op, 5)
            past = n.input(place)
            self.past_keys = past.shape[2] if past is not None and len(past.shape) == 4 else 0
        self.past = past if self.past_keys else None
        if n.op == "GroupQueryAttention":
            self.causal = True

        # The standard aligns a causal mask with the first key unless there is a cache; onnxruntime's own ops always
        # put the last query at the last key.
        self.cached = self.causal and self.total != self.queries and bool(self.past_keys or n.domain)

    @property
    def total(self) -> int:
        return self.keys + self.past_keys


def _attention_shape(n: Node) -> list[Value]:
    h, q = _Heads(n), n.need(0)
    kind = TensorProto.FLOAT if n.op == "QAttention" else q.dtype
    out = (
        (h.batch, h.heads, h.queries, h.value_head) if len(q.shape) == 4 and not n.domain
        else (h.batch, h.queries, h.heads * h.value_head)
    )  # fmt: skip
    cache = (h.batch, h.key_heads, h.total)
    if n.domain and n.op in ("Attention", "QAttention"):
        return _pad(n, Value(out, kind), Value((2, *cache, h.head), kind))
    return _pad(
        n, Value(out, kind), Value((*cache, h.head), kind), Value((*cache, h.value_head), kind),
        Value((h.batch, h.heads, h.queries, h.total), kind),
    )  # fmt: skip


def _attention(t: Trace, n: Node) -> None:
    h, q = _Heads(n), n.need(0)
    k: Value | None
    v: Value | None
    mask = None
    if n.domain and n.op in ("Attention", "QAttention"):
        # The projection is inside: [B, S, E] @ [E, 3 E] first.
        weight, bias = n.need(1), n.input(2)
        if n.op == "QAttention":
            t.mark_weight(weight)
        packed = Value((h.batch, h.queries, weight.shape[-1]), n.out[0].dtype)
        t.product(n, q, weight, bias, out=packed)
        q = k = v = packed
    elif n.input(1) is None:
        k = v = q
    else:
        k, v = n.need(1), n.input(2) or n.need(1)
        mask = n.input(3) if not n.domain else n.input(5) if n.op == "MultiHeadAttention" else None
    caches = [o for name, o in zip(n.outputs[1:3], n.out[1:3], strict=False) if name]
    full_k, full_v = t.alias(k, (h.batch, h.key_heads, h.keys, h.head)), t.alias(
        v, (h.batch, h.key_heads, h.keys, h.value_head)
    )  # fmt: skip
    if h.past is not None or caches:
        # The new keys and values are appended to the cached ones, and the cache is passed on.
        full_k = Value((h.batch, h.key_heads, h.total, h.head), k.dtype)
        full_v = Value((h.batch, h.key_heads, h.total, h.value_head), v.dtype)
        t.emit("copy", n, [h.past, k, v], [full_k, full_v])
        for cache, grown in zip(caches, (full_k, full_v), strict=False):
            cache.tensor = t.alias(grown, cache.shape).tensor
    out = Value((h.batch, h.heads, h.queries, h.value_head), n.out[0].dtype)
    attrs: dict[str, Any] = {"window": h.window} if h.window else {}
    if h.cached:
        attrs["cached"] = True
    t.emit("attention", n, [t.alias(q, (h.batch, h.heads, h.queries, h.head)), full_k, full_v, mask], [out],
           causal=h.causal, **attrs)  # fmt: skip
    n.out[0].tensor = t.alias(out, n.out[0].shape).tensor
    for name, extra in zip(n.outputs[3:], n.out[3:], strict=False):
        if name:
            t.emit("copy", n, [], [extra])


# -- other fused nodes -------------------------------------------------------------------------------------------


def _skip_norm(t: Trace, n: Node) -> None:
    kind = "rms" if "Simplified" in n.op else "group" if "Group" in n.op else "layer"
    x, skip = n.need(0), n.input(1)
    weights = n.inputs[2:]
    if n.op == "SkipGroupNorm":
        skip, weights = n.input(3), n.inputs[1:3]
    t.emit("norm", n, [x, *weights, skip], type=kind, training=False, **groups_of(n))


def _embed_norm(t: Trace, n: Node) -> None:
    ids, segments = n.need(0), n.input(1)
    parts = []
    for table, index in ((n.need(2), ids), (n.input(3), None), (n.input(4), segments)):
        if table is None or (table is n.input(4) and index is None):
            continue
        rows = ids.shape if index is not None else ids.shape[1:]
        out = Value((*rows, table.shape[-1]), table.dtype)
        t.emit("embedding", n, [table, index], [out])
        parts.append(out)
    t.emit("norm", n, [parts[0], n.input(5), n.input(6), *parts[1:]], type="layer", training=False)


def _nbits(t: Trace, n: Node) -> None:
    """Weights of `bits` bits in blocks, packed into bytes: [K, N] for the kernel, which unpacks them on the fly."""
    k, width, bits = int(n.attrs["K"]), int(n.attrs["N"]), int(n.attrs.get("bits", 4))
    weight = n.need(1)
    if weight.constant and weight.tensor is None:
        weight.role, weight.packed = "parameter", (k * width, "int8" if bits > 4 else "int4")
        t.elements.update(dict.fromkeys(weight.origin, k * width))
    t.product(n, n.need(0), t.alias(weight, (k, width)), n.input(5))


def _pairs(t: Trace, n: Node) -> None:
    """QLinearAdd, QLinearMul, QLinearConcat: every tensor comes with a scale and a zero point."""
    tensors = n.inputs[2::3] if n.op == "QLinearConcat" else [n.need(0), n.need(3)]
    t.emit("copy" if n.op == "QLinearConcat" else "elementwise", n, tensors)


_ATTENTION = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention", "DecoderMaskedMultiHeadAttention")
_SKIP = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SkipGroupNorm")
_MATMULS = (LINEAR, "FusedMatMul", "TransposeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")

HANDLERS: dict[str, Callable[[Trace, Node], None]] = {
    **dict.fromkeys(_ATTENTION, _attention),
    **dict.fromkeys(_SKIP, _skip_norm),
    "EmbedLayerNormalization": _embed_norm, "MatMulNBits": _nbits,
    **dict.fromkeys(("QLinearAdd", "QLinearMul", "QLinearConcat"), _pairs),
}  # fmt: skip
SHAPE_RULES: dict[str, Rule] = {
    **dict.fromkeys(("BiasGelu", "FastGelu", "QuickGelu", "Gelu", "BiasAdd", "SimplifiedLayerNormalization",
                     "RotaryEmbedding", "GroupNorm", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax",
                     "LayerNormalization", "RMSNormalization"), _same),
    **dict.fromkeys(_ATTENTION, _attention_shape),
    **dict.fromkeys(_SKIP, _skip_norm_shape),
    **dict.fromkeys(_MATMULS, _matmul_shape),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _binary_shape),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize_shape),
    "QLinearConcat": _qconcat_shape, "QGemm": _qgemm_shape, "MatMulNBits": _nbits_shape,
    "EmbedLayerNormalization": _embed_shape, "BiasSplitGelu": _half,
}  # fmt: skip
