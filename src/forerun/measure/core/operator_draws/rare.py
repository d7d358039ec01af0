"""Draws for a few families of networks that the plain draw hardly covers."""

from __future__ import annotations

import random

from .plain import sized
from .registry import DRAWS, Drawn, draw, log_uniform

VOCABULARIES = (32000, 30522, 50257, 50304, 50265, 128256, 151936, 250002)


def _images(rng: random.Random) -> tuple[int, int]:
    """A batch and an image side. Every draw of this file begins with them, even if unused, so that specs still draw the
    cases of existing rows."""
    return log_uniform(rng, 1, 256, (1, 4)), rng.choice([7, 7, 14, 14, 28, 56])


@draw("linear_vocabulary")
def linear_vocabulary(rng: random.Random) -> Drawn:
    _images(rng)
    m, n, k = log_uniform(rng, 1, 16384), rng.choice(VOCABULARIES), log_uniform(rng, 256, 5120, (64,))
    return sized("linear", {"m": m, "n": n, "k": k})


@draw("matmul_int4")
def matmul_int4(rng: random.Random) -> Drawn:
    _images(rng)
    k, n = log_uniform(rng, 512, 16384, (128,)), log_uniform(rng, 512, 32768, (64,))
    return sized("matmul", {"m": log_uniform(rng, 1, 16384), "n": -(-n // 64) * 64, "k": -(-k // 128) * 128})


@draw("matmul_nf4")
def matmul_nf4(rng: random.Random) -> Drawn:
    return matmul_int4(rng)


@draw("matmul_llm_int8")
def matmul_llm_int8(rng: random.Random) -> Drawn:
    return matmul_int4(rng)


@draw("bicubic")
def bicubic(rng: random.Random) -> Drawn:
    b, size = _images(rng)
    to = rng.choice([size // 2, size * 2, 112, 224])
    return sized("bicubic", {"b": b, "c": rng.choice([3, 3, 8, 64, 256]), "h": size * 4, "w": size * 4, "to": to})


@draw("unfold")
def unfold(rng: random.Random) -> Drawn:
    b, _ = _images(rng)
    c, length = log_uniform(rng, 32, 1024, (8, 64)), log_uniform(rng, 16, 512)
    return sized("unfold", {"b": b, "c": c, "length": length, "r": rng.choice([3, 9])})


@draw("lstm")
def lstm(rng: random.Random) -> Drawn:
    _images(rng)
    shape = {"b": log_uniform(rng, 8, 8192, (8, 32)), "length": rng.choice([8, 14, 16, 28, 32, 64, 128])}
    shape |= {"cin": rng.choice([64, 128, 192, 384, 512]), "hidden": rng.choice([48, 96, 128, 512])}
    return sized("lstm", shape | {"both": int(rng.random() < 0.7)})


@draw("conv_patch")
def conv_patch(rng: random.Random) -> Drawn:
    """Patch embedding, the first layer of vision transformers."""
    b, _ = _images(rng)
    patch = rng.choice([2, 4, 4, 8, 14, 16, 16, 16, 32, 32])
    size, cout = patch * rng.choice([4, 6, 7, 8, 10, 12, 14, 14, 16, 18]), log_uniform(rng, 32, 1408, (8, 16, 64))
    shape = {"b": b, "cin": 3, "cout": cout, "h": size, "w": size, "r": patch, "stride": patch}
    return sized("conv2d", shape | {"groups": 1, "padding": 0})


@draw("conv_head")
def conv_head(rng: random.Random) -> Drawn:
    """A window as large as its image, as in VGG's first classifier layer."""
    b, _ = _images(rng)
    size = rng.choice([2, 4, 7, 7, 7, 8])
    cin, cout = rng.choice([128, 256, 512, 512]), rng.choice([512, 1024, 4096, 4096])
    shape = {"b": b, "cin": cin, "cout": cout, "h": size, "w": size, "r": size, "stride": 1}
    return sized("conv2d", shape | {"groups": 1, "padding": 0})


@draw("conv_multiplier")
def conv_multiplier(rng: random.Random) -> Drawn:
    """Depthwise with several outputs per channel, as between the stages of PiT."""
    b, size = _images(rng)
    cin = log_uniform(rng, 16, 768, (8, 32))
    shape = {"b": b, "cin": cin, "cout": cin * rng.choice([2, 2, 2, 4]), "h": size, "w": size, "r": 3}
    return sized("conv2d", shape | {"stride": rng.choice([1, 2, 2]), "groups": cin})


@draw("conv_wide")
def conv_wide(rng: random.Random) -> Drawn:
    """Depthwise with wide windows."""
    b, size = _images(rng)
    stride = rng.choice([1, 1, 1, 2])
    c = log_uniform(rng, 16, 1536, (8, 32))
    shape = {"b": b, "cin": c, "cout": c, "h": size, "w": size, "r": rng.choice([7, 9, 9, 11, 11, 13, 21, 31])}
    return sized("conv2d", shape | {"stride": stride, "groups": c})


@draw("conv_groups")
def conv_groups(rng: random.Random) -> Drawn:
    """Groups of many widths, as in RegNet."""
    b, size = _images(rng)
    stride = rng.choice([1, 1, 1, 2])
    width = rng.choice([8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 112, 120, 128, 232, 264])
    groups = max(2, round(log_uniform(rng, 64, 3072, (8,)) / width))
    c = groups * width
    return sized(
        "conv2d", {"b": b, "cin": c, "cout": c, "h": size, "w": size, "r": 3, "stride": stride, "groups": groups}
    )


#: The labels of this file.
RARE = tuple(label for label, function in DRAWS.items() if function.__module__ == __name__)
