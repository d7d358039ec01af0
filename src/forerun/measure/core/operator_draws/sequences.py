"""Draws for networks over sequences: attention of many forms, recurrent layers, einsum, gates, residuals."""

from __future__ import annotations

import math
import random

from ..operators.matmuls import EINSUMS
from .registry import Drawn, draw, log_uniform

HEAD_SIZES = (32, 40, 64, 64, 64, 80, 96, 128, 128)
ODD_HEAD_SIZES = (8, 16, 20, 24, 25, 36, 48, 50, 56, 72, 88, 100, 112, 144, 160, 192, 320, 512)
LENGTHS = (16, 49, 64, 77, 128, 197, 256, 257, 384, 512, 577, 1024, 1500, 2048, 4096)


def _attention(rng: random.Random, heads: tuple[int, ...] = ()) -> dict[str, int]:
    """Half the lengths are those of real models; some queries attend to keys of a different length."""
    length = rng.choice(LENGTHS) if rng.random() < 0.5 else log_uniform(rng, 8, 6000)
    shape = {"b": log_uniform(rng, 1, 128, (1, 4)), "heads": rng.choice(heads or (1, 2, 4, 6, 8, 12, 12, 16, 20, 32))}
    shape |= {"q": length, "kv": length, "d": rng.choice(HEAD_SIZES)}
    if rng.random() < 0.2:
        shape["kv"] = rng.choice([77, 128, 256, 1500])
    return shape


def _attending(op: str, s: dict[str, int], scores: float = 0.0) -> Drawn:
    """`scores`: numbers of masks, and of scores where unfused matmuls write them to memory."""
    pairs = s["b"] * s["heads"] * s["q"] * s["kv"]
    numbers = s["b"] * s["heads"] * s["d"] * 2.0 * (s["q"] + s["kv"])
    return Drawn(op, s, numbers + scores, 4.0 * pairs * s["d"])


@draw("sdpa_odd")
def sdpa_odd(rng: random.Random) -> Drawn:
    s = _attention(rng) | {"d": rng.choice(ODD_HEAD_SIZES)}
    causal = int(s["q"] == s["kv"] and rng.random() < 0.4)
    # With a head size that no fused kernel supports, scores are written to memory twice.
    return _attending("sdpa", s | {"causal": causal}, 2.0 * s["b"] * s["heads"] * s["q"] * s["kv"])


@draw("sdpa_causal")
def sdpa_causal(rng: random.Random) -> Drawn:
    s = _attention(rng)
    return _attending("sdpa", s | {"kv": s["q"], "causal": 1})


@draw("sdpa_mask")
def sdpa_mask(rng: random.Random) -> Drawn:
    s = _attention(rng)
    return _attending("sdpa_mask", s | {"per_query": int(rng.random() < 0.6)}, 3.0 * s["b"] * s["q"] * s["kv"])


@draw("sdpa_bias")
def sdpa_bias(rng: random.Random) -> Drawn:
    s = _attention(rng)
    s |= {
        "per_sample": int(rng.random() < 0.3),
        "per_head": int(rng.random() < 0.6),
        "learned": int(rng.random() < 0.5),
    }
    biases = (s["b"] if s["per_sample"] else 1) * (s["heads"] if s["per_head"] else 1)
    # The gradient of a bias is the sum of gradients over samples and heads.
    held = s["b"] * s["heads"] if s["learned"] else biases
    return _attending("sdpa_bias", s, (biases + held) * float(s["q"]) * s["kv"])


@draw("sdpa_window")
def sdpa_window(rng: random.Random) -> Drawn:
    s = _attention(rng)
    s["q"] = s["kv"] = max(s["q"], 64)
    window = min(s["kv"], rng.choice([32, 64, 128, 256, 512, 1024, 4096]))
    return _attending("sdpa_window", s | {"window": window}, 3.0 * s["q"] * s["kv"])


@draw("sdpa_gqa")
def sdpa_gqa(rng: random.Random) -> Drawn:
    s = _attention(rng, heads=(8, 12, 16, 24, 32, 40, 64))
    s["kv_heads"] = rng.choice([n for n in (1, 1, 2, 4, 8) if n < s["heads"] and s["heads"] % n == 0])
    if rng.random() < 0.3:
        s |= {"q": 1, "kv": log_uniform(rng, 16, 16384), "causal": 0}
    else:
        s |= {"kv": s["q"], "causal": int(rng.random() < 0.7)}
    return _attending("sdpa_gqa", s, 2.0 * s["b"] * s["heads"] * s["q"] * s["kv"])


@draw("transformer_layer")
def transformer_layer(rng: random.Random) -> Drawn:
    hidden, heads = rng.choice([(128, 4), (192, 4), (256, 4), (256, 8), (384, 6), (512, 8), (768, 12), (1024, 16)])
    inner = hidden * rng.choice([2, 4, 4, 4])
    s = {"b": log_uniform(rng, 1, 256, (1, 4)), "length": rng.choice([8, 16, 32, 50, 64, 100, 128, 197, 256, 512, 900])}
    s |= {"hidden": hidden, "heads": heads, "inner": inner, "norm_first": int(rng.random() < 0.5)}
    tokens = float(s["b"] * s["length"])
    flops = tokens * (8.0 * hidden**2 + 4.0 * hidden * inner + 4.0 * s["length"] * hidden)
    return Drawn("transformer_layer", s, tokens * (8.0 * hidden + 2.0 * inner), flops)


@draw("rotary")
def rotary(rng: random.Random) -> Drawn:
    s = {"b": log_uniform(rng, 1, 64, (1, 4)), "heads": rng.choice([1, 2, 4, 8, 12, 16, 32, 40])}
    s |= {"q": log_uniform(rng, 1, 8192), "d": rng.choice([32, 64, 64, 80, 96, 128, 128, 256])}
    return Drawn("rotary", s, 5.0 * s["b"] * s["heads"] * s["q"] * s["d"])


@draw("masked_fill")
def masked_fill(rng: random.Random) -> Drawn:
    length = rng.choice(LENGTHS)
    s = {"b": log_uniform(rng, 1, 64, (1, 4)), "heads": rng.choice([1, 4, 8, 12, 16]), "q": length, "kv": length}
    return Drawn("masked_fill", s, 2.0 * s["b"] * s["heads"] * s["q"] * s["kv"])


def _recurrent(op: str, gates: int, rng: random.Random) -> Drawn:
    hidden = rng.choice([32, 50, 64, 100, 128, 200, 256, 320, 512, 650, 768, 1024, 1500])
    cin = rng.choice([hidden, hidden, 1, 8, 32, 80, 128, 300, 512])
    s = {"b": log_uniform(rng, 1, 1024, (1, 8)), "length": log_uniform(rng, 4, 1024, (1, 4)), "cin": cin}
    s |= {"hidden": hidden, "both": int(rng.random() < 0.4), "layers": rng.choice([1, 1, 2, 2, 3, 4])}
    steps, directions = float(s["b"] * s["length"]), 1 + s["both"]
    deeper = (s["layers"] - 1) * hidden * (directions * hidden + hidden)
    flops = 2.0 * gates * steps * directions * (hidden * (cin + hidden) + deeper)
    return Drawn(op, s, steps * (cin + (gates + 2.0) * directions * s["layers"] * hidden), flops)


@draw("lstm_layers")
def lstm_layers(rng: random.Random) -> Drawn:
    return _recurrent("lstm", 4, rng)


@draw("gru")
def gru(rng: random.Random) -> Drawn:
    return _recurrent("gru", 3, rng)


@draw("einsum")
def einsum(rng: random.Random) -> Drawn:
    op = rng.choice(list(EINSUMS))
    pattern, left, right = EINSUMS[op]
    side, length = log_uniform(rng, 4, 128, (1, 2, 7, 8)), log_uniform(rng, 16, 2048)
    sizes = {"b": log_uniform(rng, 1, 64, (1, 4)), "heads": rng.choice([1, 4, 8, 12, 16]), "h": side, "w": side}
    sizes |= {
        "d": rng.choice([32, 64, 64, 128]),
        "q": length,
        "kv": length,
        "experts": rng.choice([2, 4, 8, 16, 32, 64]),
    }
    sizes |= {name: log_uniform(rng, 32, 4096) for name in ("m", "n", "c", "i", "j")}
    letters = dict(zip(pattern.replace(",", "").split("->")[0], [*left.split(), *right.split()], strict=True))
    shape = {name: sizes[name] for name in dict.fromkeys(letters.values())}
    parts = pattern.replace("->", ",").split(",")
    numbers = sum(math.prod(shape[letters[letter]] for letter in part) for part in parts)
    return Drawn(op, shape, float(numbers), 2.0 * math.prod(shape.values()))


@draw("gate")
def gate(rng: random.Random) -> Drawn:
    s = {"rows": log_uniform(rng, 1, 65536), "cols": log_uniform(rng, 16, 20000)}
    return Drawn(rng.choice(["glu", "swiglu"]), s, 4.0 * s["rows"] * s["cols"])


@draw("residual")
def residual(rng: random.Random) -> Drawn:
    s = {"rows": log_uniform(rng, 1, 2**18), "cols": log_uniform(rng, 16, 8192)}
    if rng.random() < 0.5:
        return Drawn("residual_norm", s, 4.0 * s["rows"] * s["cols"])
    s["steps"] = rng.choice([1, 2, 3, 4, 8])
    return Drawn("residual_chain", s, (2.0 + 2.0 * s["steps"]) * s["rows"] * s["cols"])


@draw("softmax_odd")
def softmax_odd(rng: random.Random) -> Drawn:
    """Unaligned sizes, such as lengths of sentences and numbers of classes."""
    s = {"rows": log_uniform(rng, 1, 2**18, (1,)), "cols": log_uniform(rng, 2, 30000, (1,)) | 1}
    return Drawn(rng.choice(["softmax", "softmax", "log_softmax"]), s, 2.0 * s["rows"] * s["cols"])


@draw("activation")
def activation(rng: random.Random) -> Drawn:
    op = rng.choice(
        ["gelu_tanh", "gelu_tanh", "gelu_tanh", "leaky_relu", "elu", "softplus", "mish", "relu6", "sin", "square"]
    )
    n = log_uniform(rng, 256, 2e8, (1, 1024))
    return Drawn(op, {"n": n}, 2.0 * n)


@draw("cast_int8")
def cast_int8(rng: random.Random) -> Drawn:
    """Weights of a layer or of a vocabulary."""
    n = log_uniform(rng, 1e5, 6e8, (1024,))
    return Drawn("cast_int8", {"n": n}, 2.0 * n)


@draw("cache_append")
def cache_append(rng: random.Random) -> Drawn:
    """A decode step, after a projection to keys only or to queries, keys and values at once."""
    s = {"b": log_uniform(rng, 1, 128, (1,)), "heads": rng.choice([1, 2, 4, 8, 12, 16, 20, 25, 32, 64])}
    s |= {"length": log_uniform(rng, 16, 8192, (1,)), "cols": rng.choice([32, 64, 64, 80, 96, 128, 128, 256])}
    return Drawn("cache_append", s | {"parts": rng.choice([1, 3])}, 2.0 * s["b"] * s["heads"] * s["length"] * s["cols"])


@draw("join_features")
def join_features(rng: random.Random) -> Drawn:
    """Rotary positions on a quarter or half of a head's features, of one token or of many."""
    s = {"b": log_uniform(rng, 1, 128, (1,)), "heads": rng.choice([8, 12, 16, 32, 64])}
    s |= {"cols": rng.choice([64, 80, 128])}
    s |= {"length": 1 if rng.random() < 0.4 else log_uniform(rng, 8, 4096, (1,))}
    s["first"] = s["cols"] // rng.choice([2, 4])
    return Drawn("join_features", s, 2.0 * s["b"] * s["heads"] * s["length"] * s["cols"])
