"""Draws for networks over images, volumes and audio: convolutions, resizing, padding, norms, sampling."""

from __future__ import annotations

import random

from .registry import Drawn, draw, log_uniform


def _channels(rng: random.Random) -> tuple[int, int]:
    return log_uniform(rng, 1, 1024, (1, 8, 16)), log_uniform(rng, 8, 1024, (8, 16))


def _groups(rng: random.Random, cin: int, cout: int) -> tuple[int, int, int]:
    """Mostly dense, sometimes grouped, sometimes depthwise."""
    chance = rng.random()
    if chance < 0.65:
        return cin, cout, 1
    if chance < 0.8:
        return cout, cout, cout
    groups = rng.choice([2, 4, 8, 16, 32])
    width = max(1, round(cout / groups))
    return groups * width, groups * width, groups


#: Names of the spatial sizes of sequences, images and volumes in a shape.
_SIDES = {1: ("length",), 2: ("h", "w"), 3: ("depth", "h", "w")}


def _convolved(op: str, s: dict[str, int], space: float, out: float, window: int) -> Drawn:
    """`space` and `out`: spatial positions of the input and of the output."""
    flops = 2.0 * s["b"] * out * s["cout"] * s["cin"] / s["groups"] * window
    return Drawn(op, s, s["b"] * (space * s["cin"] + out * s["cout"]), flops)


@draw("conv_1d")
def conv_1d(rng: random.Random) -> Drawn:
    """Audio and text: long sequences, wide windows, dilation as in WaveNet."""
    cin, cout, groups = _groups(rng, *_channels(rng))
    r, dilation = rng.choice([1, 3, 3, 3, 5, 7, 9, 15, 31]), rng.choice([1, 1, 1, 2, 4, 8, 16])
    s = {"b": log_uniform(rng, 1, 128, (1, 4)), "cin": cin, "cout": cout, "length": log_uniform(rng, 16, 65536)}
    s |= {"r": r, "stride": rng.choice([1, 1, 1, 2, 4]), "groups": groups}
    if dilation > 1:
        s["dilation"] = dilation
    return _convolved("conv1d", s, s["length"], s["length"] / s["stride"], r)


@draw("conv_dilated")
def conv_dilated(rng: random.Random) -> Drawn:
    """Segmentation: dilated 3 x 3 windows."""
    cin, cout, groups = _groups(rng, *_channels(rng))
    size = log_uniform(rng, 7, 160, (1, 2, 7, 8))
    s = {"b": log_uniform(rng, 1, 64, (1, 4)), "cin": cin, "cout": cout, "h": size, "w": size, "r": 3, "stride": 1}
    s |= {"groups": groups, "dilation": rng.choice([2, 2, 3, 4, 6, 12, 18])}
    return _convolved("conv2d", s, size**2, size**2, 9)


@draw("conv_3d")
def conv_3d(rng: random.Random) -> Drawn:
    """Video (few frames of large images) and scans (cubes)."""
    cin, cout, groups = _groups(rng, log_uniform(rng, 1, 512, (1, 8)), log_uniform(rng, 8, 512, (8, 16)))
    size = log_uniform(rng, 4, 112, (1, 2, 4, 7))
    depth = size if rng.random() < 0.5 else rng.choice([1, 2, 4, 8, 16, 32])
    r, stride = rng.choice([1, 3, 3, 3, 5]), rng.choice([1, 1, 1, 2])
    s = {"b": log_uniform(rng, 1, 16, (1,)), "cin": cin, "cout": cout, "depth": depth, "h": size, "w": size, "r": r}
    s |= {"stride": stride, "groups": groups}
    if r > 1 and rng.random() < 0.15:
        s["dilation"] = 2
    space = float(depth * size**2)
    return _convolved("conv3d", s, space, space / stride**3, r**3)


def _transposed(rng: random.Random, dims: int, size: int, most: int) -> Drawn:
    """Windows and strides of decoders: 2/2, 4/2 and 3/2 with output padding, in 1-D up to 16/8."""
    r, stride, padding, more = rng.choice(
        [(2, 2, 0, 0), (2, 2, 0, 0), (4, 2, 1, 0), (4, 2, 1, 0), (3, 2, 1, 1), (3, 1, 1, 0)]
    )
    if dims == 1 and rng.random() < 0.5:
        r, stride, padding, more = rng.choice([(16, 8, 4, 0), (8, 4, 2, 0), (4, 4, 0, 0)])
    cin, cout, groups = log_uniform(rng, 8, most, (8, 16)), log_uniform(rng, 1, most, (1, 8, 16)), 1
    if rng.random() < 0.12:
        groups = rng.choice([2, 4, 8])
        cin, cout = -(-cin // groups) * groups, -(-cout // groups) * groups
    s = {"b": log_uniform(rng, 1, 64 if dims < 3 else 8, (1, 4)), "cin": cin, "cout": cout}
    s |= dict.fromkeys(_SIDES[dims], size)
    s |= {"r": r, "stride": stride, "groups": groups, "padding": padding, "more": more}
    space = float(size) ** dims
    flops = 2.0 * s["b"] * space * cin * cout / groups * r**dims
    return Drawn(f"conv_transpose{dims}d", s, s["b"] * space * (cin + cout * stride**dims), flops)


@draw("conv_transposed_1d")
def conv_transposed_1d(rng: random.Random) -> Drawn:
    return _transposed(rng, 1, log_uniform(rng, 16, 16384), 768)


@draw("conv_transposed_2d")
def conv_transposed_2d(rng: random.Random) -> Drawn:
    return _transposed(rng, 2, log_uniform(rng, 2, 256, (1, 2, 8)), 1024)


@draw("conv_transposed_3d")
def conv_transposed_3d(rng: random.Random) -> Drawn:
    return _transposed(rng, 3, log_uniform(rng, 2, 64, (1, 2, 4)), 384)


def _image(rng: random.Random, most: int = 256) -> dict[str, int]:
    size = log_uniform(rng, 4, most, (1, 2, 7, 8))
    return {"b": log_uniform(rng, 1, 128, (1, 4)), "c": log_uniform(rng, 1, 1024, (1, 8, 16)), "h": size, "w": size}


def _volume(rng: random.Random) -> dict[str, int]:
    size = log_uniform(rng, 4, 128, (1, 2, 4))
    depth = size if rng.random() < 0.6 else rng.choice([2, 4, 8, 16, 32])
    s = {"b": log_uniform(rng, 1, 16, (1,)), "c": log_uniform(rng, 1, 512, (1, 8, 16)), "depth": depth}
    return s | {"h": size, "w": size}


def _numbers(s: dict[str, int]) -> float:
    return float(s["b"] * s["c"] * s.get("depth", 1) * s["h"] * s["w"])


@draw("norm_images")
def norm_images(rng: random.Random) -> Drawn:
    """Group norm and instance norm, half of each over volumes."""
    s = _image(rng) if rng.random() < 0.5 else _volume(rng)
    if rng.random() < 0.5:
        return Drawn("instance_norm", s, 3.0 * _numbers(s))
    s["groups"] = rng.choice([g for g in (1, 2, 4, 8, 16, 32, 32) if s["c"] % g == 0])
    return Drawn("group_norm", s, 2.0 * _numbers(s))


@draw("softmax_channels")
def softmax_channels(rng: random.Random) -> Drawn:
    s = _image(rng, 512) | {"c": rng.choice([2, 3, 5, 19, 21, 64, 150, 256, 1000])}
    return Drawn("softmax_channels", s, 2.0 * _numbers(s))


@draw("batch_norm_any")
def batch_norm_any(rng: random.Random) -> Drawn:
    """Also few channels of large images and volumes; in half precision with weights of either precision."""
    s = _image(rng, 512) if rng.random() < 0.5 else _volume(rng)
    if rng.random() < 0.4:
        s["c"] = rng.choice([4, 8, 8, 16, 16, 32])
    if rng.random() < 0.5:
        s["mixed"] = 1
    return Drawn(rng.choice(["batch_norm", "batch_norm_train", "batch_norm_train"]), s, 2.0 * _numbers(s))


@draw("conv_1d_grouped")
def conv_1d_grouped(rng: random.Random) -> Drawn:
    """Speech: groups of many widths, windows up to those of convolutional position embeddings."""
    groups, width = rng.choice([2, 4, 8, 16, 32]), log_uniform(rng, 4, 128, (4, 8))
    r, dilation = rng.choice([3, 3, 5, 9, 15, 31, 64, 128]), rng.choice([1, 1, 1, 2, 4, 8])
    s = {"b": log_uniform(rng, 1, 64, (1, 4)), "cin": groups * width, "cout": groups * width}
    s |= {"length": log_uniform(rng, 16, 32768), "r": r, "stride": 1, "groups": groups}
    if dilation > 1 and r < 64:
        s["dilation"] = dilation
    return _convolved("conv1d", s, s["length"], s["length"], r)


@draw("conv_video")
def conv_video(rng: random.Random) -> Drawn:
    """Windows over space only or time only, and first layers over a few channels."""
    cin, cout = log_uniform(rng, 1, 512, (1, 8)), log_uniform(rng, 8, 512, (8, 16))
    if rng.random() < 0.25:
        cin = rng.choice([1, 3, 3, 4])
    r_depth, r = rng.choice([(1, 3), (1, 3), (3, 1), (3, 1), (3, 3), (1, 7), (3, 7), (1, 1)])
    stride_depth, stride = rng.choice([(1, 1), (1, 1), (1, 2), (2, 2)])
    size = log_uniform(rng, 4, 160, (1, 2, 7, 8))
    s = {"b": log_uniform(rng, 1, 16, (1,)), "cin": cin, "cout": cout, "depth": rng.choice([1, 2, 4, 8, 16, 32, 64])}
    s |= {"h": size, "w": size, "r": r, "r_depth": r_depth, "stride": stride, "stride_depth": stride_depth, "groups": 1}
    space = float(s["depth"] * size**2)
    return _convolved("conv3d", s, space, space / stride**2 / stride_depth, r**2 * r_depth)


@draw("conv_body")
def conv_body(rng: random.Random) -> Drawn:
    """Backbones of vision networks: dozens to hundreds of channels, with as many, twice or half as many outputs."""
    cin = log_uniform(rng, 16, 512, (8, 16))
    size, stride, r = log_uniform(rng, 7, 256, (1, 2, 7, 8)), rng.choice([1, 1, 1, 2]), rng.choice([1, 3, 3, 3, 5])
    s = {"b": log_uniform(rng, 1, 128, (1, 4)), "cin": cin, "cout": int(cin * rng.choice([0.5, 1, 1, 1, 2]))}
    s |= {"h": size, "w": size, "r": r, "stride": stride, "groups": 1}
    return _convolved("conv2d", s, size**2, size**2 / stride**2, r**2)


@draw("conv_few")
def conv_few(rng: random.Random) -> Drawn:
    """Few channels over many positions: both ends of U-Nets over scans, layers of neural operators."""
    dims = rng.choice([2, 3])
    size = log_uniform(rng, 48, 512, (8, 16)) if dims == 2 else log_uniform(rng, 24, 128, (8, 16))
    s = {"b": log_uniform(rng, 1, 64 if dims == 2 else 4, (1,)), "cin": log_uniform(rng, 1, 48, (1, 2, 4, 8))}
    s |= {"cout": log_uniform(rng, 4, 64, (1, 4, 8))} | dict.fromkeys(_SIDES[dims], size)
    s |= {"r": rng.choice([1, 1, 3, 3, 3]), "stride": rng.choice([1, 1, 1, 2]), "groups": 1}
    space = float(size) ** dims
    return _convolved(f"conv{dims}d", s, space, space / s["stride"] ** dims, s["r"] ** dims)


@draw("conv_to_image")
def conv_to_image(rng: random.Random) -> Drawn:
    """Last layers of decoders: many channels to a few, by plain or transposed convolutions."""
    dims = rng.choice([2, 2, 2, 3])
    size = log_uniform(rng, 8, 256 if dims == 2 else 64, (1, 2, 8))
    s = {"b": log_uniform(rng, 1, 128 if dims == 2 else 8, (1, 4)), "cin": log_uniform(rng, 8, 256, (8, 16))}
    s |= {"cout": rng.choice([1, 2, 3, 3, 3, 4, 8, 14, 21])} | dict.fromkeys(_SIDES[dims], size)
    space = float(size) ** dims
    if rng.random() < 0.6:
        r, stride, padding, more = rng.choice([(4, 2, 1, 0), (4, 2, 1, 0), (2, 2, 0, 0), (3, 2, 1, 1), (3, 1, 1, 0)])
        s |= {"r": r, "stride": stride, "groups": 1, "padding": padding, "more": more}
        held = s["b"] * space * (s["cin"] + s["cout"] * stride**dims)
        return Drawn(f"conv_transpose{dims}d", s, held, 2.0 * s["b"] * space * s["cin"] * s["cout"] * r**dims)
    r = rng.choice([1, 3, 3, 7])
    return _convolved(f"conv{dims}d", s | {"r": r, "stride": 1, "groups": 1}, space, space, r**dims)


@draw("adaptive_pool")
def adaptive_pool(rng: random.Random) -> Drawn:
    s = _image(rng, 256)
    return Drawn("adaptive_pool", s | {"to": rng.choice([1, 2, 3, 6, 7, 8])}, 2.0 * _numbers(s))


@draw("resize_far")
def resize_far(rng: random.Random) -> Drawn:
    """Small maps of classes or features resized to the image, as at the end of segmentation."""
    s = _image(rng, 128)
    if rng.random() < 0.5:
        s["c"] = rng.choice([2, 19, 21, 64, 128, 150, 256])
    s["to"] = s["h"] * rng.choice([4, 8, 8, 16, 32])
    return Drawn("resize_bilinear", s | {"corners": 0}, _numbers(s) + float(s["b"] * s["c"]) * s["to"] ** 2)


@draw("resize")
def resize(rng: random.Random) -> Drawn:
    """Mostly twice the size; sometimes to the size of the image, or down."""
    s = _image(rng, 160)
    s["to"] = rng.choice([2 * s["h"]] * 4 + [4 * s["h"], max(1, s["h"] // 2), 224, 512])
    held = _numbers(s) + float(s["b"] * s["c"]) * s["to"] ** 2
    if rng.random() < 0.5:
        return Drawn("resize_nearest", s, held)
    return Drawn("resize_bilinear", s | {"corners": int(rng.random() < 0.4)}, held)


@draw("trilinear")
def trilinear(rng: random.Random) -> Drawn:
    s = _volume(rng) | {"corners": int(rng.random() < 0.4)}
    return Drawn("resize_trilinear", s, 9.0 * _numbers(s))


@draw("pixel_shuffle")
def pixel_shuffle(rng: random.Random) -> Drawn:
    s = _image(rng, 256) | {
        "c": rng.choice([1, 3, 3, 16, 32, 64, 96, 128, 256]),
        "factor": rng.choice([2, 2, 2, 3, 4, 8]),
    }
    return Drawn(
        rng.choice(["pixel_shuffle", "pixel_shuffle", "pixel_unshuffle"]), s, 2.0 * _numbers(s) * s["factor"] ** 2
    )


@draw("reflection_pad")
def reflection_pad(rng: random.Random) -> Drawn:
    s = _image(rng, 512)
    s["pad"] = min(s["h"] - 1, rng.choice([1, 1, 1, 2, 3, 3, 4, 8, 16]))
    return Drawn("reflection_pad", s, _numbers(s) * (1 + (1 + 2 * s["pad"] / s["h"]) ** 2))


@draw("grid_sample")
def grid_sample(rng: random.Random) -> Drawn:
    s = _image(rng, 256)
    s["to"] = rng.choice([s["h"], s["h"], 2 * s["h"], 7, 14, 64])
    return Drawn("grid_sample", s, _numbers(s) + float(s["b"]) * (s["c"] + 2) * s["to"] ** 2)


@draw("max_pool3d")
def max_pool3d(rng: random.Random) -> Drawn:
    s = _volume(rng) | {"r": rng.choice([2, 3, 3]), "stride": rng.choice([1, 2, 2, 2])}
    return Drawn("max_pool3d", s, _numbers(s) * (2 if s["stride"] == 2 else 4))


@draw("roll")
def roll(rng: random.Random) -> Drawn:
    window = rng.choice([7, 7, 8, 12])
    side = window * rng.choice([1, 2, 4, 8])
    s = {"b": log_uniform(rng, 1, 128, (1, 4)), "h": side, "w": side, "c": log_uniform(rng, 64, 1536, (32,))}
    return Drawn("roll", s | {"shift": window // 2}, 2.0 * _numbers(s))
