"""Draws for networks over tables, graphs and signals: embeddings, scattering, sorting, Fourier transforms."""

from __future__ import annotations

import random

from .plain import sized
from .registry import Drawn, draw, log_uniform


def _table(rng: random.Random) -> dict[str, int]:
    """Tables of categories (many narrow rows) and of words (fewer, wider rows)."""
    if rng.random() < 0.5:
        return {"vocab": log_uniform(rng, 1e4, 5e6, (1,)), "cols": rng.choice([4, 8, 10, 16, 32, 64, 128])}
    return {"vocab": log_uniform(rng, 1e4, 3e5, (1,)), "cols": log_uniform(rng, 64, 4096, (8, 64))}


@draw("embedding_large")
def embedding_large(rng: random.Random) -> Drawn:
    s = _table(rng) | {"rows": log_uniform(rng, 16, 5e5, (1,))}
    return Drawn("embedding", s, 2.0 * s["vocab"] * s["cols"] + 2.0 * s["rows"] * s["cols"])


@draw("embedding_step")
def embedding_step(rng: random.Random) -> Drawn:
    s = _table(rng)
    return Drawn(rng.choice(["embedding_sgd", "embedding_adamw"]), s, 4.0 * s["vocab"] * s["cols"])


@draw("embedding_bag")
def embedding_bag(rng: random.Random) -> Drawn:
    s = _table(rng) | {"bags": log_uniform(rng, 8, 65536, (1, 8)), "each": rng.choice([1, 2, 5, 10, 20, 50, 100])}
    held = s["vocab"] * s["cols"] + 2.0 * s["bags"] * (s["cols"] + s["each"])
    return Drawn("embedding_bag", s | {"mean": int(rng.random() < 0.4)}, held)


@draw("scatter")
def scatter(rng: random.Random) -> Drawn:
    """Message passing of graph networks: nodes, features, and several edges per node."""
    nodes = log_uniform(rng, 64, 1e6, (1,))
    edges = max(1, round(nodes * rng.choice([0.5, 1, 2, 5, 10, 20, 50])))
    s = {"rows": nodes, "cols": rng.choice([1, 4, 8, 16, 32, 64, 100, 128, 256, 512]), "picked": edges}
    op = rng.choice(["gather", "index_select", "scatter_add", "index_add", "scatter_mean", "scatter_max"])
    return Drawn(op, s, (2.0 * nodes + 2.0 * edges) * s["cols"])


def _rows(rng: random.Random, most: float) -> dict[str, int]:
    return {"rows": log_uniform(rng, 1, 65536, (1, 8)), "cols": log_uniform(rng, 8, most, (1, 8, 64))}


@draw("sort")
def sort(rng: random.Random) -> Drawn:
    s = _rows(rng, 2e6)
    return Drawn(rng.choice(["sort", "sort", "argsort"]), s, 6.0 * s["rows"] * s["cols"])


@draw("topk")
def topk(rng: random.Random) -> Drawn:
    """Experts of a router (small rows), words of a decoder, boxes of a detector."""
    s = _rows(rng, 2e5)
    if rng.random() < 0.4:
        s["cols"] = rng.choice([8, 16, 32, 64, 128, 256])
    s["k"] = min(s["cols"], rng.choice([1, 2, 4, 8, 20, 50, 100, 300, 1000]))
    return Drawn("topk", s, 2.0 * s["rows"] * s["cols"])


@draw("cumsum")
def cumsum(rng: random.Random) -> Drawn:
    s = _rows(rng, 1e6)
    return Drawn("cumsum", s, 2.0 * s["rows"] * s["cols"])


@draw("cumsum_down")
def cumsum_down(rng: random.Random) -> Drawn:
    s = {"b": log_uniform(rng, 1, 256, (1, 4)), "rows": log_uniform(rng, 4, 4096, (1, 8))}
    s |= {"cols": log_uniform(rng, 1, 65536, (1, 8, 64))}
    return Drawn("cumsum_down", s, 2.0 * s["b"] * s["rows"] * s["cols"])


@draw("cat_features")
def cat_features(rng: random.Random) -> Drawn:
    """Concatenation of short runs of all lengths: features of points beside those of a network."""
    s = {"b": log_uniform(rng, 64, 2e6, (1, 8)), "rows": log_uniform(rng, 2, 512), "more": log_uniform(rng, 1, 512)}
    return Drawn("cat", s | {"cols": 1}, 2.0 * s["b"] * (s["rows"] + s["more"]))


@draw("topk_points")
def topk_points(rng: random.Random) -> Drawn:
    """The nearest points of each point of a cloud: many rows."""
    s = {"rows": log_uniform(rng, 512, 3e5, (1, 64)), "cols": log_uniform(rng, 128, 8192, (1, 64))}
    s["k"] = rng.choice([4, 8, 16, 20, 32, 64])
    return Drawn("topk", s, 6.0 * s["rows"] * s["cols"])


@draw("over_points")
def over_points(rng: random.Random) -> Drawn:
    """Maxima and sums over points (rows, or single numbers) and over the neighbours of a point."""
    cols = 1 if rng.random() < 0.4 else log_uniform(rng, 2, 1024, (1, 8))
    s = {"b": log_uniform(rng, 1, 65536, (1, 8)), "rows": log_uniform(rng, 2, 8192, (1, 8)), "cols": cols}
    return Drawn(rng.choice(["max_place", "max_place", "sum_down"]), s, 2.0 * s["b"] * s["rows"] * cols)


@draw("linear_points")
def linear_points(rng: random.Random) -> Drawn:
    """Layers over points, pixels or edges: many rows of a few, possibly unaligned, features."""
    s = {"m": log_uniform(rng, 4096, 2e6, (1, 64)), "n": log_uniform(rng, 1, 512, (1, 2, 4, 8))}
    s["k"] = log_uniform(rng, 2, 512, (1, 1, 2, 4, 8))
    return sized("linear", s)


@draw("bias_points")
def bias_points(rng: random.Random) -> Drawn:
    """A bias of few features over many rows; its gradient is their sum."""
    s = {"rows": log_uniform(rng, 4096, 4e6, (1, 64)), "cols": log_uniform(rng, 1, 512, (1, 4, 8))}
    return sized("bias_add", s)


@draw("messages")
def messages(rng: random.Random) -> Drawn:
    """Gathering of node rows for edges and back: many edges per node, tables smaller and larger than a cache."""
    nodes = log_uniform(rng, 64, 3e5, (1, 64))
    s = {"rows": nodes, "cols": log_uniform(rng, 1, 1024, (1, 4, 8, 64))}
    s["picked"] = max(1, round(nodes * rng.choice([1, 2, 4, 8, 16, 32])))
    op = rng.choice(["index_select", "index_select", "index_add", "scatter_max", "gather"])
    return Drawn(op, s, (2.0 * nodes + 2.0 * s["picked"]) * s["cols"])


@draw("lookups")
def lookups(rng: random.Random) -> Drawn:
    """Lookups in tables of relative positions (one number per head), and of rows of points and nodes."""
    if rng.random() < 0.5:
        side, heads = rng.choice([7, 8, 12, 14, 16, 24, 28]), rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 24, 32])
        s = {"rows": (2 * side - 1) ** 2, "cols": heads, "picked": side**4}
    else:
        s = {"rows": log_uniform(rng, 16, 3e5, (1, 64)), "cols": log_uniform(rng, 1, 1024, (1, 4, 64))}
        s["picked"] = log_uniform(rng, 64, 5e5, (1, 64))
    return Drawn("index_rows", s, (2.0 * s["rows"] + 2.0 * s["picked"]) * s["cols"])


@draw("fft_1d")
def fft_1d(rng: random.Random) -> Drawn:
    """Half the lengths are powers of two, as for audio windows; the others are arbitrary."""
    n = 2 ** rng.randint(5, 20) if rng.random() < 0.5 else log_uniform(rng, 16, 1e6, (1, 2, 10))
    s = {"rows": log_uniform(rng, 1, 16384, (1, 8)), "n": n}
    return Drawn(rng.choice(["rfft", "irfft"]), s, 4.0 * s["rows"] * n)


@draw("fft_2d")
def fft_2d(rng: random.Random) -> Drawn:
    """Channel by channel of an image, as in Fourier operators and global filters."""
    side = rng.choice([7, 14, 28, 32, 56, 64, 85, 112, 128, 224, 256, 512, 1024])
    s = {"b": log_uniform(rng, 1, 16384, (1, 8)), "h": side, "w": side}
    return Drawn(rng.choice(["rfft2", "irfft2"]), s, 4.0 * s["b"] * side**2)
