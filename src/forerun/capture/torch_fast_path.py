"""PyTorch's fast path of its transformer layers, which it takes in inference on a GPU but not on meta tensors.

In inference, `nn.TransformerEncoderLayer` and `nn.MultiheadAttention` over one batch-first sequence run a fused
program of fewer kernels: one GEMM projects the inputs, the activation is its epilogue, nothing is transposed.
In a thread that captures a model the layers make the same calls; all other calls run as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch user knows
from torch import nn

from forerun.capture.thread_patches import ThreadPatch

_TORCH = str(Path(torch.__file__).parent)


@contextlib.contextmanager
def fast_path(amp: Any) -> Iterator[None]:
    """Enables the fast path of PyTorch's transformer layers in this thread; under autocast there is none."""
    if amp is not None:
        yield
        return
    with _LAYER, _ATTENTION:
        yield


def _is_foreign(forward: Any) -> bool:
    """Whether other code has patched a layer's `forward`: that one then runs on every path."""
    code = getattr(forward, "__code__", None)
    return code is None or not code.co_filename.startswith(_TORCH)


def _layer(
    plain: Any, self: Any, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
) -> Any:
    able = self.activation_relu_or_gelu and self.norm1.eps == self.norm2.eps and self.self_attn.in_proj_bias is not None
    if not able or src_mask is not None or src_key_padding_mask is not None or not _able(self.self_attn, src):
        return plain(self, src, src_mask, src_key_padding_mask, is_causal)

    def attended(x: Any) -> Any:
        return _attended(self.self_attn, x)

    def feed_forward(x: Any) -> Any:
        rows, weight = x.reshape(-1, x.shape[-1]), self.linear1.weight.t()
        gelu = self.activation_relu_or_gelu == 2
        hidden = torch._addmm_activation(self.linear1.bias, rows, weight, use_gelu=gelu)
        return self.linear2(hidden).reshape(x.shape)

    if self.norm_first:
        src = src + attended(self.norm1(src))
        return src + feed_forward(self.norm2(src))
    src = self.norm1(src + attended(src))
    return self.norm2(src + feed_forward(src))


def _attention(plain: Any, self: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    masked = args or any(kwargs.get(name) is not None for name in ("attn_mask", "key_padding_mask"))
    able = query is key and key is value and self.bias_k is None and self.bias_v is None and not self.add_zero_attn
    if not able or masked or kwargs.get("is_causal") or self.in_proj_bias is None or not _able(self, query):
        return plain(self, query, key, value, *args, **kwargs)
    if not kwargs.get("need_weights", True):
        return _attended(self, query), None
    return _with_weights(self, query, averaged=kwargs.get("average_attn_weights", True))


def _able(attention: Any, x: Any) -> bool:
    """The conditions shared by both layers."""
    learns = torch.is_grad_enabled() and any(p.requires_grad for p in attention.parameters())
    supported = attention._qkv_same_embed_dim and attention.batch_first and attention.num_heads % 2 == 0
    return x.dim() == 3 and not attention.training and supported and not learns and x.device.type == "meta"


def _attended(attention: Any, x: Any) -> Any:
    """One projection, the fused kernel on views of it, one projection."""
    batch, length, width = x.shape
    heads = attention.num_heads
    qkv = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    q, k, v = qkv.view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
    return attention.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))


def _with_weights(attention: Any, x: Any, averaged: bool) -> Any:
    """The same with attention weights returned: one kernel adds biases, scales and splits heads; two batched
    matmuls."""
    batch, length, width = x.shape
    heads = attention.num_heads
    each = width // heads
    qkv = F.linear(x, attention.in_proj_weight).view(batch, length, 3, heads, each).permute(2, 0, 3, 1, 4)
    bias = attention.in_proj_bias.view(3, 1, heads, 1, each)
    parted = torch.add(qkv, bias, out=qkv.new_empty(qkv.shape))
    q, k, v = (part.view(batch * heads, length, each) for part in parted.unbind(0))
    weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1)
    attended = torch.bmm(weights, v).view(batch, heads, length, each).transpose(1, 2).reshape(batch, length, width)
    by_head = weights.view(batch, heads, length, length)
    return attention.out_proj(attended), by_head.mean(dim=1) if averaged else by_head


_LAYER = ThreadPatch(nn.TransformerEncoderLayer, "forward", _layer, unless=_is_foreign)
_ATTENTION = ThreadPatch(nn.MultiheadAttention, "forward", _attention, unless=_is_foreign)
