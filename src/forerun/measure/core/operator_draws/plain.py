"""The plain draw: shapes of the operators of most networks, log-uniform in every size."""

from __future__ import annotations

import random

from .registry import Drawn, log_uniform

#: The operators of the label `unary`.
UNARY = ("relu", "gelu", "silu", "sigmoid", "exp", "tanh", "hardswish", "copy", "scale")


def plain_shape(label: str, rng: random.Random) -> tuple[str, dict[str, int]]:
    """The operator of a label, and a shape for it."""

    def log(low: float, high: float, align: tuple[int, ...] = (1, 8, 64)) -> int:
        return log_uniform(rng, low, high, align)

    if label in ("matmul", "linear"):
        return label, {"m": log(1, 32768), "n": log(8, 32768), "k": log(8, 16384)}
    if label == "bmm":
        return label, {"b": log(2, 1024, (1, 4)), "m": log(1, 2048), "n": log(8, 2048), "k": log(8, 1024)}
    if label.startswith("conv_"):
        return "conv2d", _convolution(label, rng)
    if label == "sdpa":
        length = log(1, 8192)
        shape = {"b": log(1, 128, (1, 4)), "heads": log(1, 64, (1, 4)), "q": length, "kv": length}
        if rng.random() < 0.25:
            shape.update(q=1, kv=log(16, 16384))
        causal = shape["q"] > 1 and rng.random() < 0.5
        return label, {**shape, "d": rng.choice([32, 40, 64, 64, 80, 96, 128, 128, 256]), "causal": int(causal)}
    if label in ("softmax", "layer_norm", "rms_norm", "bias_add", "sum"):
        return label, {"rows": log(1, 2**20), "cols": log(16, 16384)}
    if label == "cross_entropy":
        return label, {"rows": log(4, 16384), "cols": rng.choice([10, 100, 1000, 30522, 50257, 128256])}
    if label in ("batch_norm", "batch_norm_train", "group_norm", "max_pool", "avg_pool", "global_pool", "upsample"):
        return label, _image(label, rng)
    if label == "unary":
        return rng.choice(UNARY), {"n": log(256, 4e8, (1, 1024))}
    if label in ("add", "mul", "cast"):
        return label, {"n": log(256, 4e8, (1, 1024))}
    if label == "transpose":
        return label, {"b": log(1, 256, (1,)), "rows": log(8, 4096), "cols": log(8, 4096)}
    if label == "cat":
        more = 1 if rng.random() < 0.5 else log(1, 2048)
        return label, {"b": log(1, 512, (1,)), "rows": log(8, 8192), "more": more, "cols": log(16, 2048)}
    if label == "embedding":
        return label, {"vocab": log(1000, 2e5, (1,)), "cols": log(64, 8192), "rows": log(1, 65536, (1,))}
    if label in ("gather", "scatter_add"):
        return label, {"rows": log(64, 2e5, (1,)), "cols": log(16, 4096), "picked": log(16, 65536, (1,))}
    return label, {"n": log(1e4, 4e8, (1,)), "tensors": log(2, 400, (1,))}  # optimizers


def _convolution(label: str, rng: random.Random) -> dict[str, int]:
    size = log_uniform(rng, 4, 256, (1, 2, 7, 8))
    cin, cout = log_uniform(rng, 3, 2048, (1, 8, 16)), log_uniform(rng, 8, 2048, (8, 16))
    r, stride, groups = rng.choice([3, 3, 3, 5, 7]), 1, 1
    if label == "conv_1x1":
        r = 1
    elif label == "conv_strided":
        stride = 2
        r = rng.choice([1, 2, 3, 3, 7])
    elif label == "conv_depthwise":
        cin = cout = groups = log_uniform(rng, 8, 2048, (8,))
        stride = rng.choice([1, 1, 1, 2])
    elif label == "conv_grouped":
        groups = rng.choice([2, 4, 8, 16, 32, 64])
        width = log_uniform(rng, 4, 128, (4, 8))
        cin = cout = groups * width
    shape = {"b": log_uniform(rng, 1, 256, (1, 4)), "cin": cin, "cout": cout, "h": size, "w": size, "r": r}
    return {**shape, "stride": stride, "groups": groups}


def _image(label: str, rng: random.Random) -> dict[str, int]:
    size = log_uniform(rng, 4, 224, (1, 2, 7))
    shape = {"b": log_uniform(rng, 1, 256, (1, 4)), "c": log_uniform(rng, 8, 2048, (8,)), "h": size, "w": size}
    if label == "group_norm":
        shape["groups"] = rng.choice([g for g in (1, 2, 4, 8, 32) if shape["c"] % g == 0])
    if label in ("max_pool", "avg_pool"):
        shape.update(r=rng.choice([2, 3, 3]), stride=2)
    return shape


def size_of(op: str, s: dict[str, int]) -> tuple[float, float]:
    """Rough FLOPs and numbers in memory, to skip shapes that would not fit or take too long."""
    if op in ("matmul", "linear", "bmm"):
        b = s.get("b", 1)
        return 2.0 * b * s["m"] * s["n"] * s["k"], b * (s["m"] * s["k"] + s["k"] * s["n"] + s["m"] * s["n"])
    if op == "conv2d":
        area, out = s["h"] * s["w"], (s["h"] // s["stride"]) * (s["w"] // s["stride"])
        flops = 2.0 * s["b"] * out * s["cout"] * s["cin"] / s["groups"] * s["r"] ** 2
        return flops, s["b"] * (area * s["cin"] + out * s["cout"])
    if op == "sdpa":
        return 4.0 * s["b"] * s["heads"] * s["q"] * s["kv"] * s["d"], s["b"] * s["heads"] * s["d"] * (
            s["q"] + 2 * s["kv"]
        )
    if op == "lstm":
        steps = s["b"] * s["length"] * (1 + s["both"])
        return 8.0 * steps * s["hidden"] * (s["cin"] + s["hidden"]), steps * (s["cin"] + 6.0 * s["hidden"])
    if op == "bicubic":
        return 0.0, s["b"] * s["c"] * (s["h"] * s["w"] + s["to"] ** 2)
    if op in ("gather", "scatter_add", "embedding"):
        picked = s.get("picked", s["rows"])
        return 0.0, (s.get("vocab", s["rows"]) + 2 * picked) * s["cols"]
    numbers = 2.0
    for name, value in s.items():
        if name not in ("r", "stride", "groups", "tensors", "more"):
            numbers *= value
    return 0.0, numbers * (4 if op in ("upsample", "adamw") else 1)


def sized(op: str, shape: dict[str, int]) -> Drawn:
    """An operator with its shape and size."""
    flops, numbers = size_of(op, shape)
    return Drawn(op, shape, numbers, flops)
