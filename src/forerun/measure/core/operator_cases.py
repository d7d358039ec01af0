"""Which operator shapes are measured: drawn log-uniformly with a seed, and taken from real models."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from .operator_draws import DRAWS, Drawn
from .operator_draws import log_uniform as _log
from .operators import find
from .specs import key_of

# Relative numbers of rows; what costs models most of their time gets most of the rows.
WEIGHTS = {
    **{"matmul": 9, "linear": 14, "bmm": 6, "conv_dense": 12, "conv_1x1": 9, "conv_strided": 6, "conv_grouped": 5},
    **{"conv_depthwise": 8, "sdpa": 9, "softmax": 3, "layer_norm": 4, "rms_norm": 2, "batch_norm": 3, "cast": 1},
    **{"batch_norm_train": 3, "group_norm": 2, "unary": 7, "add": 2, "mul": 2, "bias_add": 1, "transpose": 2},
    **{"cat": 2, "sum": 2, "max_pool": 2, "avg_pool": 1, "global_pool": 1, "upsample": 1, "embedding": 2},
    **{"gather": 1, "scatter_add": 1, "sgd": 2, "adamw": 2, "cross_entropy": 1},
}
#: What the label `unary` draws from.
UNARY = ("relu", "gelu", "silu", "sigmoid", "exp", "tanh", "hardswish", "copy", "scale")
# What a spec can ask for by name (`only`) and the plain draw does not hold.
RARE = ("conv_wide", "conv_groups", "conv_head", "conv_patch", "conv_multiplier", "bicubic", "unfold", "lstm",
        "matmul_int4", "linear_vocabulary")  # fmt: skip
LAST, LAID_OUT = (
    "_last",
    ("conv_", "upsample", "bicubic", "resize"),
)  # after a label that begins so: the same, channels last
FORWARD_ONLY = ("lstm",)  # labels whose operator has a backward pass that other labels draw
VOCABULARIES = (32000, 30522, 50257, 50304, 50265, 128256, 151936, 250002)
MAX_FLOPS, MAX_NUMBERS = 2e12, 4e8
# (hidden, intermediate, heads, head width, key/value heads) of models that people run.
TRANSFORMERS = (
    *((768, 3072, 12, 64, 12), (1024, 4096, 16, 64, 16), (384, 1536, 6, 64, 6), (2048, 8192, 32, 64, 8)),
    *((4096, 14336, 32, 128, 8), (3584, 18944, 28, 128, 4), (896, 4864, 14, 64, 2), (5120, 13824, 40, 128, 40)),
    *((2560, 10240, 32, 80, 32), (1280, 5120, 20, 64, 20), (192, 768, 3, 64, 3), (576, 1536, 9, 64, 3)),
)
# (in, out, size, kernel, stride, groups) of the convolutions of ResNet, MobileNet, EfficientNet, ConvNeXt, RegNet, VGG.
CONVOLUTIONS = (
    *((3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1)),
    *((256, 128, 56, 1, 1, 1), (128, 128, 56, 3, 2, 1), (128, 512, 28, 1, 1, 1), (128, 128, 28, 3, 1, 1)),
    *((256, 256, 28, 3, 2, 1), (256, 256, 14, 3, 1, 1), (256, 1024, 14, 1, 1, 1), (1024, 512, 14, 1, 1, 1)),
    *((512, 512, 14, 3, 2, 1), (512, 512, 7, 3, 1, 1), (512, 2048, 7, 1, 1, 1), (3, 32, 224, 3, 2, 1)),
    *((32, 32, 112, 3, 1, 32), (96, 96, 112, 3, 2, 96), (144, 144, 56, 3, 1, 144), (192, 192, 28, 3, 1, 192)),
    *((384, 384, 14, 3, 1, 384), (576, 576, 14, 5, 1, 576), (960, 960, 7, 3, 1, 960), (1152, 1152, 7, 5, 1, 1152)),
    *((96, 96, 56, 7, 1, 96), (192, 192, 28, 7, 1, 192), (384, 384, 14, 7, 1, 384), (768, 768, 7, 7, 1, 768)),
    *((3, 96, 224, 4, 4, 1), (96, 192, 56, 2, 2, 1), (3, 768, 224, 16, 16, 1), (64, 64, 224, 3, 1, 1)),
    *((128, 128, 56, 3, 1, 32), (256, 256, 28, 3, 1, 32), (512, 512, 14, 3, 1, 32), (1024, 1024, 7, 3, 1, 32)),
    *((128, 128, 112, 3, 1, 1), (256, 256, 56, 3, 1, 1), (512, 512, 28, 3, 1, 1), (3, 64, 32, 3, 1, 1)),
)


def cases(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """`n` distinct operator cases, in the order they were drawn (already a shuffle)."""
    rng = random.Random(f"operators/{spec.get('seed', 0)}")
    weights = spec.get("only") or {**WEIGHTS, **spec.get("weights", {})}
    _check(weights)
    dtypes, wanted = spec.get("dtypes", ["fp32", "tf32", "fp16", "bf16"]), int(spec["n"])
    max_flops, max_numbers = float(spec.get("max_flops", MAX_FLOPS)), float(spec.get("max_numbers", MAX_NUMBERS))
    out: dict[str, dict[str, Any]] = {}
    for _ in range(50 * wanted):
        if len(out) >= wanted:
            break
        label = rng.choices(list(weights), list(weights.values()))[0]
        drawn = _drawn(label, rng, float(spec.get("real", 0.35)))
        if drawn.flops > max_flops or drawn.numbers > max_numbers:
            continue
        case = {"kind": "op", "op": drawn.op, "shape": drawn.shape, **_manner(label, drawn.op, dtypes, rng)}
        out.setdefault(key_of(case), case)
    return list(out.values())


def _check(labels: Iterable[str]) -> None:
    known = {*WEIGHTS, *RARE, *DRAWS}
    for label in labels:
        plain = label.removesuffix(LAST)
        if plain not in known or (plain != label and not plain.startswith(LAID_OUT)):
            raise ValueError(
                f"unknown operator {label!r}: known are {', '.join(sorted(known))}; those of images also with {LAST}"
            )


def _drawn(label: str, rng: random.Random, real: float) -> Drawn:
    """A shape for a label; `real` is the share of those taken from real models."""
    plain = label.removesuffix(LAST)
    if plain in DRAWS:
        drawn = DRAWS[plain](rng)
    else:
        from_model = plain not in RARE and rng.random() < real
        op, shape = (_real if from_model else _rare if plain in RARE else _draw)(plain, rng)
        flops, numbers = _size(op, shape)
        drawn = Drawn(op, shape, numbers, flops)
    if label != plain:
        drawn.shape["last"] = 1
    return drawn


def _manner(label: str, op: str, dtypes: list[str], rng: random.Random) -> dict[str, str]:
    """The dtype and the direction of a case."""
    operator = find(op)
    dtype = rng.choice(dtypes)
    if label == "matmul_int4":
        dtype = "int4"
    if dtype == "tf32" and not operator.tf32:
        dtype = "fp32"
    if dtype not in (*operator.dtypes, "tf32", "int4"):
        dtype = operator.dtypes[0]
    one_way = not operator.backward or label in FORWARD_ONLY or dtype == "int4"
    direction = "forward" if one_way or rng.random() < 0.6 else "backward"
    return {"dtype": dtype, "direction": direction, "family": label}


def _draw(label: str, rng: random.Random) -> tuple[str, dict[str, int]]:
    def log(low: float, high: float, align: tuple[int, ...] = (1, 8, 64)) -> int:
        return _log(rng, low, high, align)

    if label in ("matmul", "linear"):
        return label, {"m": log(1, 32768), "n": log(8, 32768), "k": log(8, 16384)}
    if label == "bmm":
        return label, {"b": log(2, 1024, (1, 4)), "m": log(1, 2048), "n": log(8, 2048), "k": log(8, 1024)}
    if label.startswith("conv_"):
        return "conv2d", _draw_conv(label, rng)
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
        return label, _draw_image(label, rng)
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


def _draw_conv(label: str, rng: random.Random) -> dict[str, int]:
    size = _log(rng, 4, 256, (1, 2, 7, 8))
    cin, cout = _log(rng, 3, 2048, (1, 8, 16)), _log(rng, 8, 2048, (8, 16))
    r, stride, groups = rng.choice([3, 3, 3, 5, 7]), 1, 1
    if label == "conv_1x1":
        r = 1
    elif label == "conv_strided":
        stride = 2
        r = rng.choice([1, 2, 3, 3, 7])
    elif label == "conv_depthwise":
        cin = cout = groups = _log(rng, 8, 2048, (8,))
        stride = rng.choice([1, 1, 1, 2])
    elif label == "conv_grouped":
        groups = rng.choice([2, 4, 8, 16, 32, 64])
        width = _log(rng, 4, 128, (4, 8))
        cin = cout = groups * width
    shape = {"b": _log(rng, 1, 256, (1, 4)), "cin": cin, "cout": cout, "h": size, "w": size, "r": r}
    return {**shape, "stride": stride, "groups": groups}


def _rare(label: str, rng: random.Random) -> tuple[str, dict[str, int]]:
    """Shapes of a few families that the plain draw hardly meets."""
    b, size = _log(rng, 1, 256, (1, 4)), rng.choice([7, 7, 14, 14, 28, 56])
    if label == "linear_vocabulary":
        return "linear", {"m": _log(rng, 1, 16384), "n": rng.choice(VOCABULARIES), "k": _log(rng, 256, 5120, (64,))}
    if label == "matmul_int4":
        k, n = _log(rng, 512, 16384, (128,)), _log(rng, 512, 32768, (64,))
        return "matmul", {"m": _log(rng, 1, 16384), "n": -(-n // 64) * 64, "k": -(-k // 128) * 128}
    if label == "bicubic":
        to = rng.choice([size // 2, size * 2, 112, 224])
        return label, {"b": b, "c": rng.choice([3, 3, 8, 64, 256]), "h": size * 4, "w": size * 4, "to": to}
    if label == "unfold":
        return label, {"b": b, "c": _log(rng, 32, 1024, (8, 64)), "length": _log(rng, 16, 512), "r": rng.choice([3, 9])}
    if label == "lstm":
        shape = {"b": _log(rng, 8, 8192, (8, 32)), "length": rng.choice([8, 14, 16, 28, 32, 64, 128])}
        return label, {**shape, "cin": rng.choice([64, 128, 192, 384, 512]), "hidden": rng.choice([48, 96, 128, 512]),
                       "both": int(rng.random() < 0.7)}  # fmt: skip
    if label == "conv_patch":  # images cut into patches, the first layer of vision transformers
        patch = rng.choice([2, 4, 4, 8, 14, 16, 16, 16, 32, 32])
        size, cout = patch * rng.choice([4, 6, 7, 8, 10, 12, 14, 14, 16, 18]), _log(rng, 32, 1408, (8, 16, 64))
        return "conv2d", {"b": b, "cin": 3, "cout": cout, "h": size, "w": size, "r": patch, "stride": patch,
                          "groups": 1, "padding": 0}  # fmt: skip
    if label == "conv_head":  # a window as large as its image, as VGG's first classifier layer
        size = rng.choice([2, 4, 7, 7, 7, 8])
        cin, cout = rng.choice([128, 256, 512, 512]), rng.choice([512, 1024, 4096, 4096])
        return "conv2d", {"b": b, "cin": cin, "cout": cout, "h": size, "w": size, "r": size, "stride": 1, "groups": 1,
                          "padding": 0}  # fmt: skip
    if label == "conv_multiplier":  # depthwise with several results a channel, as between PiT's stages
        cin = _log(rng, 16, 768, (8, 32))
        return "conv2d", {"b": b, "cin": cin, "cout": cin * rng.choice([2, 2, 2, 4]), "h": size, "w": size, "r": 3,
                          "stride": rng.choice([1, 2, 2]), "groups": cin}  # fmt: skip
    stride = rng.choice([1, 1, 1, 2])
    if label == "conv_wide":
        cin = groups = _log(rng, 16, 1536, (8, 32))
        r = rng.choice([7, 9, 9, 11, 11, 13, 21, 31])
    else:
        r, width = 3, rng.choice([8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 112, 120, 128, 232, 264])
        groups = max(2, round(_log(rng, 64, 3072, (8,)) / width))
        cin = groups * width
    shape = {"b": b, "cin": cin, "cout": cin, "h": size, "w": size, "r": r}
    return "conv2d", {**shape, "stride": stride, "groups": groups}


def _draw_image(label: str, rng: random.Random) -> dict[str, int]:
    size = _log(rng, 4, 224, (1, 2, 7))
    shape = {"b": _log(rng, 1, 256, (1, 4)), "c": _log(rng, 8, 2048, (8,)), "h": size, "w": size}
    if label == "group_norm":
        shape["groups"] = rng.choice([g for g in (1, 2, 4, 8, 32) if shape["c"] % g == 0])
    if label in ("max_pool", "avg_pool"):
        shape.update(r=rng.choice([2, 3, 3]), stride=2)
    return shape


def _real(label: str, rng: random.Random) -> tuple[str, dict[str, int]]:
    """A shape from a real model; a drawn one where real models say nothing special."""
    hidden, inner, heads, width, kv = rng.choice(TRANSFORMERS)
    batch, length = (
        rng.choice([1, 1, 2, 4, 8, 16, 32, 64]),
        rng.choice([1, 16, 64, 128, 197, 256, 512, 1024, 2048, 4096]),
    )
    tokens = batch * length
    if label in ("matmul", "linear"):
        pairs = ((hidden, (heads + 2 * kv) * width), (hidden, hidden), (hidden, inner), (inner, hidden))
        k, n = rng.choice(pairs)
        return label, {"m": tokens, "n": n, "k": k}
    if label == "bmm":
        m, n, k = rng.choice([(length, length, width), (length, width, length)])
        return label, {"b": batch * heads, "m": m, "n": n, "k": k}
    if label == "sdpa":
        q = 1 if rng.random() < 0.3 else length
        shape = {"b": batch, "heads": heads, "q": q, "kv": length, "d": width}
        return label, {**shape, "causal": int(q > 1 and rng.random() < 0.5)}
    if label == "softmax":
        return label, {"rows": batch * heads * length, "cols": length}
    if label in ("layer_norm", "rms_norm", "bias_add", "sum"):
        return label, {"rows": tokens, "cols": hidden}
    if label in ("add", "mul", "cast"):
        return label, {"n": tokens * rng.choice([hidden, inner])}
    if label == "unary":
        return rng.choice(UNARY), {"n": tokens * rng.choice([hidden, inner])}
    if label.startswith("conv_"):
        kinds = {
            "conv_dense": [c for c in CONVOLUTIONS if c[3] > 1 and c[4] == 1 and c[5] == 1],
            "conv_1x1": [c for c in CONVOLUTIONS if c[3] == 1],
            "conv_strided": [c for c in CONVOLUTIONS if c[4] > 1 and c[5] == 1],
            "conv_depthwise": [c for c in CONVOLUTIONS if c[5] == c[0]],
            "conv_grouped": [c for c in CONVOLUTIONS if 1 < c[5] < c[0]],
        }
        cin, cout, size, r, stride, groups = rng.choice(kinds[label])
        b = rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 256])
        shape = {"b": b, "cin": cin, "cout": cout, "h": size, "w": size, "r": r}
        return "conv2d", {**shape, "stride": stride, "groups": groups}
    if label in ("batch_norm", "batch_norm_train", "max_pool", "avg_pool", "global_pool"):
        _, cout, size, _, stride, _ = rng.choice(CONVOLUTIONS)
        shape = {"b": batch, "c": cout, "h": max(2, size // stride), "w": max(2, size // stride)}
        return label, {**shape, "r": 3, "stride": 2} if label in ("max_pool", "avg_pool") else shape
    return _draw(label, rng)


def _size(op: str, s: dict[str, int]) -> tuple[float, float]:
    """Rough FLOPs and numbers held, to leave out what would not fit or would take too long."""
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
