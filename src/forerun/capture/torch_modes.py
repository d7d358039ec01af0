"""The behaviour of a CUDA build of PyTorch where meta tensors differ: fused kernels and autocast."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from forerun.capture.assumed import Assumptions
from forerun.capture.python_calls import uncounted
from forerun.capture.torch_library import defined_once
from forerun.capture.torch_recurrent import lengths_on_cpu, recurrent

# ---------------------------------------------------------------------------------------------------------------------
# Attention. On CUDA, scaled_dot_product_attention runs as one fused kernel (flash in half precision, memory-efficient
# in fp32) for every shape that matters; on meta it would decompose into matmuls and a stored S x T matrix. These ops
# represent the fused kernel and its backward, without and with a gradient for the mask (a learned bias). Like the real
# ones, their output has the layout (B, S, H, D), so that the transpose that follows needs no copy, and save the
# log-sum-exp for the backward pass.


@defined_once
def _attention_op(library: Any) -> Any:
    library.define("attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal) -> (Tensor, Tensor)")
    library.define(
        "attention_backward(Tensor go, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? mask, bool causal)"
        " -> (Tensor, Tensor, Tensor)"
    )
    library.define(
        "attention_mask_backward(Tensor go, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor mask,"
        " bool causal) -> (Tensor, Tensor, Tensor, Tensor)"
    )

    def forward_meta(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
        batch, heads, length, _ = q.shape
        out = q.new_empty((batch, length, heads, v.shape[-1])).transpose(1, 2)
        return out, q.new_empty((batch, heads, length), dtype=torch.float32)

    def backward_meta(go: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, mask: Any, causal: bool) -> Any:
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

    def mask_backward_meta(go: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, mask: Any, causal: bool) -> Any:
        of_mask = mask.new_empty((*q.shape[:3], k.shape[2]))  # for every sample and head, even if they share the mask
        return *backward_meta(go, q, k, v, o, lse, mask, causal), of_mask

    library.impl("attention", forward_meta, "Meta")
    library.impl("attention_backward", backward_meta, "Meta")
    library.impl("attention_mask_backward", mask_backward_meta, "Meta")

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        q, k, v, mask, causal = inputs
        ctx.save_for_backward(q, k, v, mask, *output)
        ctx.causal = causal

    def backward(ctx: Any, go: Any, _glse: Any) -> Any:
        q, k, v, mask, o, lse = ctx.saved_tensors
        if not ctx.needs_input_grad[3]:
            grads = torch.ops.forerun.attention_backward(go, q, k, v, o, lse, mask, ctx.causal)
            return *grads, None, None
        *grads, of_mask = torch.ops.forerun.attention_mask_backward(go, q, k, v, o, lse, mask, ctx.causal)
        return *grads, of_mask.sum_to_size(mask.shape), None

    torch.library.register_autograd("forerun::attention", backward, setup_context=save, lib=library)
    return torch.ops.forerun.attention


def _fused_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """The fused op, or None where CUDA has no fused kernel and PyTorch really falls back to matmuls."""
    if query.dim() != 4 or key.dim() != 4 or query.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return None
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        return None  # one query for many samples: matmuls broadcast it, fused kernels do not
    grouped = enable_gqa and query.shape[1] != key.shape[1]
    if grouped and (query.dtype == torch.float32 or attn_mask is not None):
        return None  # flash takes grouped heads but neither fp32 nor a mask; memory-efficient takes no grouped heads
    if attn_mask is not None and attn_mask.shape[-1] > 1 and attn_mask.stride(-1) != 1:
        return None  # a bias looked up by head is strided in a way that no fused kernel takes
    return _attention_op()(query, key, value, attn_mask, is_causal)[0]


# ---------------------------------------------------------------------------------------------------------------------
# Grouped matmul. One GEMM per expert in one launch; its meta kernel takes bf16 only and rejects what CUDA accepts.


@defined_once
def _expert_op(library: Any) -> Any:
    library.define("moe_matmul(Tensor x, Tensor w, Tensor? offs) -> Tensor")
    library.define("moe_matmul_backward(Tensor x, Tensor gy, Tensor w) -> Tensor")
    library.impl("moe_matmul", lambda x, w, offs: x.new_empty((x.shape[0], w.shape[-1])), "Meta")
    library.impl("moe_matmul_backward", lambda x, gy, w: w.new_empty(w.shape), "Meta")

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, gy: Any) -> Any:
        x, w, offs = ctx.saved_tensors
        gx = torch.ops.forerun.moe_matmul(gy, w.transpose(-1, -2), offs)
        return gx, torch.ops.forerun.moe_matmul_backward(x, gy, w), None

    torch.library.register_autograd("forerun::moe_matmul", backward, setup_context=save, lib=library)
    return torch.ops.forerun.moe_matmul


def _grouped_matmul(x: Any, w: Any, offs: Any = None, **_: Any) -> Any:
    """The expert op for rows against a stack of weights; None for other forms of grouped matmul."""
    return _expert_op()(x, w, offs) if x.dim() == 2 and w.dim() == 3 else None


# ---------------------------------------------------------------------------------------------------------------------
# RMS norm. CUDA has one kernel for it; on meta it decomposes into eight.


@defined_once
def _rms_norm_op(library: Any) -> Any:
    library.define("_fused_rms_norm(Tensor x, Tensor? w, int places) -> (Tensor, Tensor)")
    library.define("_fused_rms_norm_backward(Tensor gy, Tensor x, Tensor rstd, Tensor? w) -> (Tensor, Tensor)")

    def forward_meta(x: Any, w: Any, places: int) -> Any:
        return torch.empty_like(x), x.new_empty(x.shape[: x.dim() - places], dtype=torch.float32)

    def backward_meta(gy: Any, x: Any, rstd: Any, w: Any) -> Any:
        return torch.empty_like(x), x.new_empty(()) if w is None else torch.empty_like(w)

    library.impl("_fused_rms_norm", forward_meta, "Meta")
    library.impl("_fused_rms_norm_backward", backward_meta, "Meta")

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], output[1], inputs[1])
        ctx.set_materialize_grads(False)

    def backward(ctx: Any, gy: Any, _grstd: Any) -> Any:
        x, rstd, w = ctx.saved_tensors
        gx, gw = torch.ops.forerun._fused_rms_norm_backward(gy, x, rstd, w)
        return gx, None if w is None else gw, None

    torch.library.register_autograd("forerun::_fused_rms_norm", backward, setup_context=save, lib=library)
    return torch.ops.forerun._fused_rms_norm


def _fused_rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """The fused op, or None where the weight has another dtype and PyTorch really computes step by step."""
    if weight is not None and weight.dtype != input.dtype:
        return None
    return _rms_norm_op()(input, weight, len(normalized_shape))[0]


# ---------------------------------------------------------------------------------------------------------------------
# Autocast. It works by dispatch key and meta tensors have none, so its rules are applied here, at the level of the
# torch functions a model calls: listed ones take half precision, listed ones take fp32, the rest take the dtype of
# their inputs.

_TO_HALF = frozenset(
    "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d matmul __matmul__ __rmatmul__ "
    "mm bmm addmm baddbmm addbmm mv einsum scaled_dot_product_attention prelu conv_tbc grouped_mm _grouped_mm "
    "lstm gru rnn_tanh rnn_relu chain_matmul".split()
)
_TO_FLOAT = frozenset(
    "softmax log_softmax layer_norm group_norm rms_norm cross_entropy cross_entropy_loss nll_loss nll_loss_nd mse_loss "
    "l1_loss smooth_l1_loss binary_cross_entropy_with_logits exp log log10 log2 log1p expm1 pow __pow__ __rpow__ rsqrt "
    "reciprocal sum cumsum cumprod prod norm softplus cosine_similarity kl_div erfinv sinh cosh tan acos asin cdist "
    "renorm logsumexp interpolate upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa".split()
)
#: These need inputs of one dtype and promote to the widest.
_TO_WIDEST = frozenset(
    "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot".split()
)


_FUSED: dict[str, Any] = {
    "scaled_dot_product_attention": _fused_attention, "grouped_mm": _grouped_matmul, "_grouped_mm": _grouped_matmul,
    "lstm": recurrent("lstm"), "gru": recurrent("gru"), "rnn_tanh": recurrent("rnn"), "rnn_relu": recurrent("rnn"),
    "rms_norm": _fused_rms_norm,
}  # fmt: skip

#: Calls that move values out of PyTorch.
_READS = frozenset({"__format__", "tolist", "numpy", "__array__"})


def _off_the_gpu(func: Any, name: str, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """A call that names a GPU, with meta in its place."""

    def moved(x: Any) -> Any:
        named = isinstance(x, (str, torch.device)) and str(x).startswith(("cuda", "mps", "xpu"))
        return torch.device("meta") if named else x

    if name == "cuda":
        return torch.Tensor.to, (args[0], torch.device("meta")), {}
    args = tuple(map(moved, args)) if name == "to" else args
    return func, args, {k: moved(v) if k == "device" else v for k, v in kwargs.items()}


class Emulation(TorchFunctionMode):
    """Sends attention and the like to the fused ops and, with `amp`, applies autocast's rules.

    Code that names a GPU gets meta tensors, and code that reads values gets those of `assumed`.
    """

    def __init__(self, amp: torch.dtype | None = None, assumed: Assumptions | None = None) -> None:
        super().__init__()
        self.amp = amp
        self.assumed = assumed or Assumptions()
        self._weights: dict[int, tuple[Any, Any]] = {}  # autocast casts each weight once per step

    def clear_weight_cache(self) -> None:
        self._weights.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.backward:  # in which functions of the model's own may run
            return func(*args, **(kwargs or {}))
        return self._called(func, args, kwargs or {})

    @uncounted
    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(func, "__name__", "").partition(".")[0]  # 'linear.default' is an exported program's linear
        if self.amp is not None and (cast := self._cast(name, (args, kwargs))) is not None:
            args, kwargs = torch.utils._pytree.tree_map(cast, (args, kwargs))
        if name in _READS and args[0].device.type == "meta" and (name != "__format__" or not args[0].dim()):
            return self._read(name, args)
        if name in ("cuda", "to") or kwargs.get("device") is not None:
            func, args, kwargs = _off_the_gpu(func, name, args, kwargs)
        if name == "_pack_padded_sequence":
            args = (args[0], lengths_on_cpu(self.assumed, *args), *args[2:])
        fused = _FUSED[name](*args, **kwargs) if name in _FUSED else None
        return func(*args, **kwargs) if fused is None else fused

    def _read(self, name: str, args: Any) -> Any:
        """Values that leave PyTorch as text, lists or arrays."""
        if name == "__format__":
            return format(1, args[1])  # a name built from a value: any expert represents every other
        ones = self.assumed.read(args[0])
        if name == "tolist":
            return ones
        import numpy as np

        dtype = torch.empty((), dtype=args[0].dtype, device="cpu").numpy().dtype
        return np.full(tuple(args[0].shape), args[0].dtype != torch.bool, dtype=dtype)

    def _cast(self, name: str, given: Any) -> Any:
        """The dtype to which autocast casts the inputs of a call; None: no cast."""
        if name in _TO_HALF:
            return self._to_half
        if name in _TO_FLOAT:
            return self._to_float
        if name in _TO_WIDEST:
            leaves = torch.utils._pytree.tree_leaves(given)
            wide = any(isinstance(x, torch.Tensor) and x.dtype == torch.float32 for x in leaves)
            return self._to_float if wide else None
        return None

    def _to_half(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float32:
            return x
        if x.is_leaf and x.requires_grad:
            if id(x) not in self._weights:
                self._weights[id(x)] = (x, x.to(self.amp))
            return self._weights[id(x)][1]
        return x.to(self.amp)

    def _to_float(self, x: Any) -> Any:
        half = isinstance(x, torch.Tensor) and x.dtype in (torch.float16, torch.bfloat16)
        return x.float() if half else x
