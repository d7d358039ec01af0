"""Shapes of operators in common models."""

from __future__ import annotations

import random

from .plain import UNARY, plain_shape

# (hidden, intermediate, heads, head width, key/value heads) of common models.
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


def real_shape(label: str, rng: random.Random) -> tuple[str, dict[str, int]]:
    """A shape from a real model; a drawn one for labels without a list of real shapes."""
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
    return plain_shape(label, rng)
