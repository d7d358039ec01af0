"""Single operators: how the call of a case is built."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from . import quantised
from .models import DTYPES

UNARY = ("relu", "gelu", "silu", "sigmoid", "exp", "tanh", "hardswish", "copy", "scale")


def build(case: dict[str, Any], device: str) -> tuple[Callable[[], Any], list[Any]]:
    """The forward call of an operator, and the tensors that its backward differentiates."""
    import torch
    from torch.nn import functional

    s, op = case["shape"], case["op"]
    packed = case["dtype"] in quantised.DTYPES
    named = quantised.ACTIVATIONS if packed else case["dtype"].replace("tf32", "fp32")
    dtype = getattr(torch, DTYPES[named])
    gradient = case["direction"] == "backward"

    def new(*shape: int, scale: float = 1.0) -> Any:
        return (torch.randn(shape, dtype=dtype, device=device) * scale).requires_grad_(gradient)

    def whole(high: int, *shape: int) -> Any:
        return torch.randint(0, high, shape, device=device)

    def images(channels: int) -> tuple[Any, Any]:
        """Images and how the operator sees them: with `last`, tokens with their channels last, as ConvNeXt's blocks."""
        if not s.get("last"):
            x = new(s["b"], channels, s["h"], s["w"])
            return x, x
        x = new(s["b"], s["h"], s["w"], channels)
        return x, x.permute(0, 3, 1, 2)

    if op == "matmul" and packed and device != "meta":
        a = new(s["m"], s["k"])
        return quantised.matmul(a, s["n"], case["dtype"]), [a]
    if op == "matmul":
        a, b = new(s["m"], s["k"]), new(s["k"], s["n"])
        return lambda: torch.mm(a, b), [a, b]
    if op == "linear":
        x, w, bias = new(s["m"], s["k"]), new(s["n"], s["k"], scale=s["k"] ** -0.5), new(s["n"])
        return lambda: functional.linear(x, w, bias), [x, w, bias]
    if op == "bmm":
        a, b = new(s["b"], s["m"], s["k"]), new(s["b"], s["k"], s["n"])
        return lambda: torch.bmm(a, b), [a, b]
    if op == "conv2d":
        x, image = images(s["cin"])
        w = new(s["cout"], s["cin"] // s["groups"], s["r"], s["r"], scale=0.05)
        padding = s.get("padding", s["r"] // 2)
        return lambda: functional.conv2d(image, w, None, s["stride"], padding, 1, s["groups"]), [x, w]
    if op == "unfold":
        x = new(s["b"], s["c"], s["length"], 1)
        return lambda: functional.unfold(x, (s["r"], 1), padding=(s["r"] // 2, 0)), [x]
    if op == "lstm":
        x = new(s["b"], s["length"], s["cin"])
        both = bool(s["both"])
        lstm = torch.nn.LSTM(s["cin"], s["hidden"], batch_first=True, bidirectional=both, device=device, dtype=dtype)
        return lambda: lstm(x)[0], [x, *lstm.parameters()]
    if op == "sdpa":
        q = new(s["b"], s["heads"], s["q"], s["d"])
        k, v = new(s["b"], s["heads"], s["kv"], s["d"]), new(s["b"], s["heads"], s["kv"], s["d"])
        causal = bool(s["causal"])
        return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal), [q, k, v]
    if op == "softmax":
        x = new(s["rows"], s["cols"])
        return lambda: torch.softmax(x, -1), [x]
    if op == "cross_entropy":
        x, labels = new(s["rows"], s["cols"]), whole(s["cols"], s["rows"])
        return lambda: functional.cross_entropy(x, labels), [x]
    if op in ("layer_norm", "rms_norm"):
        x, w = new(s["rows"], s["cols"]), new(s["cols"])
        if op == "rms_norm":
            return lambda: functional.rms_norm(x, (s["cols"],), w), [x, w]
        b = new(s["cols"])
        return lambda: functional.layer_norm(x, (s["cols"],), w, b), [x, w, b]
    if op in ("batch_norm", "batch_norm_train", "group_norm"):
        x, w, b = new(s["b"], s["c"], s["h"], s["w"]), new(s["c"]), new(s["c"])
        if op == "group_norm":
            return lambda: functional.group_norm(x, s["groups"], w, b), [x, w, b]
        mean, var = torch.zeros(s["c"], device=device, dtype=dtype), torch.ones(s["c"], device=device, dtype=dtype)
        training = op == "batch_norm_train"
        return lambda: functional.batch_norm(x, mean, var, w, b, training), [x, w, b]
    if op in UNARY:
        x = new(s["n"])
        unary = _unary(op)
        return lambda: unary(x), [x]
    if op in ("add", "mul"):
        x, y = new(s["n"]), new(s["n"])
        binary = torch.add if op == "add" else torch.mul
        return lambda: binary(x, y), [x, y]
    if op == "bias_add":
        x, y = new(s["rows"], s["cols"]), new(s["cols"])
        return lambda: x + y, [x, y]
    if op == "cast":
        x = new(s["n"])
        other = torch.float16 if dtype == torch.float32 else torch.float32
        return lambda: x.to(other), [x]
    if op == "transpose":
        x = new(s["b"], s["rows"], s["cols"])
        return lambda: x.transpose(1, 2).contiguous(), [x]
    if op == "cat":
        x, y = new(s["b"], s["rows"], s["cols"]), new(s["b"], s["more"], s["cols"])
        return lambda: torch.cat([x, y], 1), [x, y]
    if op == "sum":
        x = new(s["rows"], s["cols"])
        return lambda: x.sum(-1), [x]
    if op in ("max_pool", "avg_pool", "global_pool"):
        x = new(s["b"], s["c"], s["h"], s["w"])
        if op == "global_pool":
            return lambda: functional.adaptive_avg_pool2d(x, 1), [x]
        pool = functional.max_pool2d if op == "max_pool" else functional.avg_pool2d
        return lambda: pool(x, s["r"], s["stride"], s["r"] // 2), [x]
    if op == "upsample":
        x, image = images(s["c"])
        return lambda: functional.interpolate(image, scale_factor=2, mode="bilinear"), [x]
    if op == "bicubic":
        (x, image), to = images(s["c"]), (s["to"], s["to"])
        return lambda: functional.interpolate(image, size=to, mode="bicubic", align_corners=False), [x]
    if op == "embedding":
        table, ids = new(s["vocab"], s["cols"]), whole(s["vocab"], s["rows"])
        return lambda: functional.embedding(ids, table), [table]
    if op in ("gather", "scatter_add"):
        x, ids = new(s["rows"], s["cols"]), whole(s["rows"], s["picked"]).unsqueeze(1).expand(s["picked"], s["cols"])
        if op == "gather":
            return lambda: torch.gather(x, 0, ids), [x]
        source = new(s["picked"], s["cols"])
        return lambda: torch.scatter_add(x, 0, ids, source), [x, source]
    if op in ("sgd", "adamw"):
        return _optimizer(op, s, dtype, device), []
    raise ValueError(f"unknown operator {op!r}")


def _unary(op: str) -> Callable[[Any], Any]:
    import torch
    from torch.nn import functional

    found: dict[str, Callable[[Any], Any]] = {
        **{"relu": torch.relu, "gelu": functional.gelu, "silu": functional.silu, "sigmoid": torch.sigmoid},
        **{"exp": torch.exp, "tanh": torch.tanh, "hardswish": functional.hardswish, "copy": torch.clone},
        "scale": lambda x: x * 0.5,
    }
    return found[op]


def _optimizer(op: str, s: dict[str, int], dtype: Any, device: str) -> Callable[[], Any]:
    import torch

    parameters = []
    for i in range(s["tensors"]):
        # Half the tensors hold nearly all the numbers, as weights and biases do.
        size = max(8, int(1.98 * s["n"] / s["tensors"])) if i % 2 == 0 else max(8, int(0.02 * s["n"] / s["tensors"]))
        p = torch.nn.Parameter(torch.randn(size, dtype=dtype, device=device))
        p.grad = torch.randn_like(p)
        parameters.append(p)
    optimizer: Any
    if op == "adamw":
        optimizer = torch.optim.AdamW(parameters, lr=1e-6)
    else:
        optimizer = torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)
    return lambda: optimizer.step()


@contextlib.contextmanager
def with_tf32(on: bool) -> Iterator[None]:
    """Single precision on tensor cores, or not at all: PyTorch's default would use it for convolutions only."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = on
    torch.backends.cudnn.allow_tf32 = on
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = True


def call_of(case: dict[str, Any], device: str) -> Callable[[], Any]:
    """The call that is measured: forward alone, backward alone (its forward is done here), or an optimizer step."""
    import torch

    forward, inputs = build(case, device)
    if case["direction"] != "backward":
        if case["op"] in ("sgd", "adamw"):
            return forward

        def run() -> Any:
            with torch.no_grad():
                return forward()

        return run
    with with_tf32(case["dtype"] == "tf32"):
        out = forward()
    upstream = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, upstream, retain_graph=True)
