"""Rules of `gradients` for layers: convolutions, products, norms, pools, attention, recurrent layers and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from forerun.frontends.onnx.calls import LINEAR
from forerun.frontends.onnx.gradient_call import Call
from forerun.frontends.onnx.values import no_gradient


def _padding(c: Call, kernel: Sequence[int], step: Sequence[int]) -> tuple[Any, list[int]]:
    """The input, padded first where its two sides differ, and the padding that the layer does itself."""
    x, rank = c.args[0], len(kernel)
    pads = list(c.get("pads") or [0] * (2 * rank))
    auto, grid = c.get("auto_pad", "NOTSET"), c.get("dilations") or [1] * rank
    if auto.startswith("SAME"):
        for i in range(rank):
            size = x.shape[2 + i]
            whole = max(0, (-(-size // step[i]) - 1) * step[i] + grid[i] * (kernel[i] - 1) + 1 - size)
            pads[i], pads[i + rank] = whole // 2, whole - whole // 2
            if auto == "SAME_LOWER":
                pads[i], pads[i + rank] = pads[i + rank], pads[i]
    if pads[:rank] == pads[rank:]:
        return x, pads[:rank]
    around = [n for i in reversed(range(rank)) for n in (pads[i], pads[i + rank])]
    return functional.pad(x, around), [0] * rank


def conv(c: Call) -> Any:
    w, bias = c.args[1], c.arg(2)
    rank = w.dim() - 2
    step, grid = c.get("strides") or [1] * rank, c.get("dilations") or [1] * rank
    groups = int(c.get("group", 1))
    if c.node.op == "Conv":
        x, pads = _padding(c, w.shape[2:], step)
        return (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1](x, w, bias, step, pads, grid, groups)
    pads = list(c.get("pads") or [0] * (2 * rank))
    function = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    plain = [(n - 1) * s - 2 * p + g * (k - 1) + 1 for n, s, p, g, k in
             zip(c.args[0].shape[2:], step, pads, grid, w.shape[2:], strict=False)]  # fmt: skip
    more = [max(0, wanted - got) for wanted, got in zip(c.shape[2:], plain, strict=True)]
    return function(c.args[0], w, bias, step, pads[:rank], more, groups, grid)


def linear(c: Call) -> Any:
    a, b, bias = c.args[0], c.args[1], c.arg(2)
    if c.linear or c.node.op == LINEAR:
        return functional.linear(a, b if c.linear else b.t(), bias)
    out = torch.matmul(a, b)
    return out if bias is None else out + bias


def gemm(c: Call) -> Any:
    a, b, bias = c.args[0], c.args[1], c.arg(2)
    a, alpha, beta = (a.t() if c.get("transA") else a), c.get("alpha", 1.0), c.get("beta", 1.0)
    if c.get("transB") and alpha == 1 and (bias is None or (beta == 1 and getattr(bias, "dim", lambda: 0)() == 1)):
        return functional.linear(a, b, bias)
    b = b.t() if c.get("transB") else b
    if isinstance(bias, torch.Tensor):
        return torch.addmm(bias, a, b, beta=beta, alpha=alpha)
    out = a @ b
    out = out if alpha == 1 else out * alpha
    return out if bias is None else out + bias * beta


def batch_norm(c: Call) -> Any:
    """With the statistics of the batch, as in training, whatever mode the file was exported in."""
    x, weight, bias, mean, spread, count = c.args[:6]
    count.add_(1)
    return functional.batch_norm(x, mean, spread, weight, bias, True, 0.1, c.get("epsilon", 1e-5))


def layer_norm(c: Call) -> Any:
    x = c.args[0]
    over = tuple(x.shape[int(c.get("axis", -1)) % x.dim() :])
    if c.node.op == "LayerNormalization":
        return functional.layer_norm(x, over, c.args[1], c.arg(2), c.get("epsilon", 1e-5))
    return functional.rms_norm(x, over, c.args[1], c.get("epsilon", 1e-5))


def group_norm(c: Call) -> Any:
    x, weight, bias = c.args[0], c.args[1].reshape(-1), c.args[2].reshape(-1)
    groups = int(c.get("num_groups"))
    if weight.shape[0] != x.shape[1]:  # before opset 21 a weight was that of a group
        weight, bias = (w.repeat_interleave(x.shape[1] // groups) for w in (weight, bias))
    return functional.group_norm(x, groups, weight, bias, c.get("epsilon", 1e-5))


def instance_norm(c: Call) -> Any:
    weight, bias = (a if isinstance(a, torch.Tensor) else None for a in c.args[1:3])
    return functional.instance_norm(c.args[0], None, None, weight, bias, True, 0.1, c.get("epsilon", 1e-5))


def pool(c: Call) -> Any:
    kernel = list(c.get("kernel_shape"))
    step = list(c.get("strides") or [1] * len(kernel))
    x, pads = _padding(c, kernel, step)
    ceil, rank = bool(c.get("ceil_mode")), len(kernel)
    if c.node.op == "MaxPool":
        function = getattr(functional, f"max_pool{rank}d")
        return function(x, kernel, step, pads, c.get("dilations") or 1, ceil)
    return getattr(functional, f"avg_pool{rank}d")(x, kernel, step, pads, ceil, bool(c.get("count_include_pad")))


def global_pool(c: Call) -> Any:
    kind = "avg" if "Average" in c.node.op else "max"
    return getattr(functional, f"adaptive_{kind}_pool{c.args[0].dim() - 2}d")(c.args[0], 1)


def attention(c: Call) -> Any:
    q, k, v, mask = c.args[0], c.args[1], c.args[2], c.arg(3)
    if c.arg(4) is not None or any(c.node.outputs[1:]):
        raise no_gradient(c.node, "with a cache")
    heads = c.get("q_num_heads")
    if heads:
        q, k, v = (x.unflatten(-1, (int(n), -1)).transpose(1, 2) for x, n in
                   ((q, heads), (k, c.get("kv_num_heads", heads)), (v, c.get("kv_num_heads", heads))))  # fmt: skip
    out = functional.scaled_dot_product_attention(
        q, k, v, mask, c.get("dropout", 0.0), bool(c.get("is_causal")), scale=c.get("scale"),
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    return out.transpose(1, 2).flatten(2) if heads else out


def rnn(c: Call) -> Any:
    """The layer itself (`training.recurrent_layer`) comes as the second input."""
    x, layer = c.args[0], c.args[1]
    out, states = layer(x.transpose(0, 1) if c.get("layout") else x)
    y = out.unflatten(-1, (2 if layer.bidirectional else 1, -1)).transpose(1, 2)
    return (y, *(states if isinstance(states, tuple) else (states,)))


def cross_entropy(c: Call) -> Any:
    function = functional.cross_entropy if c.node.op == "SoftmaxCrossEntropyLoss" else functional.nll_loss
    return function(c.args[0], c.args[1], c.arg(2), reduction=c.get("reduction", "mean"))
