"""Every kind of op that the cost law knows, and the required attributes of each.

`x, w -> y` names inputs and outputs by position. Only those that are listed matter to the law; further inputs and
outputs count by their bytes. How to add a kind: docs/EXTEND.md, "An op".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Kind:
    """The requirements of an op kind: its signature in words, its least number of tensors, and its attributes."""

    signature: str
    inputs: int = 0  # the fewest that the laws read; a constant scalar is no input
    outputs: int = 1
    #: Attribute -> the type of its value, or the values it may have. Every one of them must be there.
    attrs: Mapping[str, type | tuple[str, ...]] = field(default_factory=dict)


_CONV: dict[str, Any] = {"groups": int, "transposed": bool, "stride": list, "dilation": list}
_RNN: dict[str, Any] = {"cell": ("lstm", "gru", "rnn"), "hidden": int, "layers": int, "directions": int, "steps": int}
_NORMS = ("batch", "layer", "group", "instance", "rms", "lrn")

KINDS: dict[str, Kind] = {
    "conv": Kind(
        "x[N,C,*], w, bias? -> y; w is [Cout, Cin/groups, *k] ([Cin, Cout/groups, *k] when transposed)", 2, 1, _CONV
    ),
    "conv_backward": Kind("gy, x, w -> gx?, gw?, gb?; wants: [bool, bool, bool]", 3, 1, {**_CONV, "wants": list}),
    "matmul": Kind(
        "a[..., M, K], b[..., K, N], bias? -> y[..., M, N]; one GEMM, or one per leading index (batched). "
        "shared_b: one b serves every leading index (a linear layer). unpacks: as_read | slowly, where one kernel "
        "unpacks 4-bit weights and multiplies", 2, 1, {"shared_b": bool},
    ),
    "moe_matmul": Kind("x[T*top_k, K], w[E, K, N] -> y[T*top_k, N]; one GEMM per expert hit", 2, 1, {"experts": int}),
    "moe_matmul_backward": Kind("x[T*top_k, K], gy[T*top_k, N], w -> gw[E, K, N]", 2),
    "attention": Kind(
        "q[B,H,S,D], k[B,Hk,T,D], v[B,Hk,T,Dv], mask? -> o[B,H,S,Dv]; window:int? (keys each query may see). causal: "
        "query i sees keys 0 to i; with cached:bool? a cache holds T - S keys before the first query, which it sees, "
        "too. Fused: no S x T matrix is stored", 3, 1, {"causal": bool},
    ),
    "attention_backward": Kind(
        "go, q, k, v, o, lse, mask? -> gq, gk, gv, gmask?; window, cached as in attention", 4, 1, {"causal": bool}
    ),
    "rnn": Kind(
        "x[T,N,I] -> y; x[sum of lengths, I] where sequences are packed:bool?; proj:int? (an LSTM's hidden state is "
        "projected to this size)", 1, 1, _RNN,
    ),
    "rnn_backward": Kind("gy, y, x, weights... -> gx, gw...", 3, 1, _RNN),
    "embedding": Kind("table[V,D], index -> y: reads only the rows it looks up", 1),
    "embedding_backward": Kind("gy, index -> gtable: writes the whole table", 1),
    "gather": Kind("x, index -> y: reads as much as it writes, whole rows once"),
    "scatter": Kind(
        "x, index, src -> y: reads and writes as much as src holds (index_put, scatter_add, caches); accumulate:bool? "
        "(sorts its indices, and adds up what belongs to equal ones)"
    ),
    "softmax": Kind("x -> y", 1),
    "softmax_backward": Kind("gy, y -> gx", 1),
    "norm": Kind("x, weight?, bias? -> y; groups:int where it is known", 1, 1, {"type": _NORMS, "training": bool}),
    "norm_backward": Kind("gy, x, ... -> gx, gw?, gb?", 1),
    "elementwise": Kind("... -> y: one pass, one operation an element; flops:int? per element when not 1"),
    "reduce": Kind("x -> y: sum, mean, max, norm, cumsum; axis:int? that a cumsum runs along (the last)"),
    "sort": Kind("x -> ...: sort, topk, unique, nms; flops:int? per element when not 10"),
    "pool": Kind("x -> y; window: elements read per output (adaptive: in/out)", 1, 1, {"window": int}),
    "pool_backward": Kind("gy, x -> gx", 1),
    "resize": Kind("x -> y; taps: elements read per output (4 for bilinear, 16 for bicubic)", 1, 1, {"taps": int}),
    "copy": Kind("... -> y: memory moved and nothing computed: cat, contiguous, cast, pad, clone, repeat"),
    "fill": Kind("-> y: zeros, ones, arange: writes only"),
    "random": Kind("-> y: dropout masks, samples"),
    "fft": Kind(
        "x -> y; axes:list? that are transformed (the last); pairs:bool? (a last axis holds real and imaginary part), "
        "frame:int? (length of a transform of pieces of x)", 1,
    ),
    "optimizer": Kind(
        "params, grads, states... -> params...: one launch over lists of tensors; tensors:int? and lists:int? say how "
        "many, flops:int? per parameter", 0, 0, {"bytes_read": int, "bytes_written": int},
    ),
    "all_reduce": Kind("x -> y: the sum over `devices` of what each holds", 1, 1, {"devices": int}),
    "all_gather": Kind("x -> y: the parts of `devices`, whole on each", 1, 1, {"devices": int}),
    "reduce_scatter": Kind("x -> y: the sum over `devices`, each with a part of it", 1, 1, {"devices": int}),
    "all_to_all": Kind("x -> y: each of `devices` gives every other a part", 1, 1, {"devices": int}),
    "send_recv": Kind("x -> y: from one device to the next", 1, 1, {"devices": int}),
    "unknown": Kind("an op of no other kind: its bytes count, its FLOPs do not; a note names it", 0, 0),
}  # fmt: skip

#: Kinds whose work is multiply-accumulates: matrix units do it, and `Graph.work_hash` holds their shapes.
CONTRACTIONS = frozenset({
    "conv", "conv_backward", "matmul", "moe_matmul", "moe_matmul_backward", "attention", "attention_backward", "rnn",
    "rnn_backward",
})  # fmt: skip

#: Kinds that move data between devices: priced by the link between these, not by a device's own bandwidth.
COLLECTIVES = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"})
