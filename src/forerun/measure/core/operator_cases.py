"""The cases of an operator spec: labels drawn by weight with a seed, each with a shape, a dtype and a direction."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from . import quantised
from .operator_draws import DRAWS, Drawn, plain_shape, real_shape, sized
from .operators import find
from .specs import key_of

# Relative numbers of rows: operators that dominate the time of models get most of the rows.
WEIGHTS = {
    **{"matmul": 9, "linear": 14, "bmm": 6, "conv_dense": 12, "conv_1x1": 9, "conv_strided": 6, "conv_grouped": 5},
    **{"conv_depthwise": 8, "sdpa": 9, "softmax": 3, "layer_norm": 4, "rms_norm": 2, "batch_norm": 3, "cast": 1},
    **{"batch_norm_train": 3, "group_norm": 2, "unary": 7, "add": 2, "mul": 2, "bias_add": 1, "transpose": 2},
    **{"cat": 2, "sum": 2, "max_pool": 2, "avg_pool": 1, "global_pool": 1, "upsample": 1, "embedding": 2},
    **{"gather": 1, "scatter_add": 1, "sgd": 2, "adamw": 2, "cross_entropy": 1},
}
LAST = "_last"  # suffix of a label that starts with one of LAID_OUT: the same with channels last
LAID_OUT = ("conv_", "upsample", "bicubic", "resize")
FORWARD_ONLY = ("lstm", "cat_features")  # labels whose backward is drawn by other labels or launches no kernel
MAX_FLOPS, MAX_NUMBERS = 2e12, 4e8


def cases(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """`n` distinct operator cases in the order drawn, which is random."""
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
    known = {*WEIGHTS, *DRAWS}
    for label in labels:
        plain = label.removesuffix(LAST)
        if plain not in known or (plain != label and not plain.startswith(LAID_OUT)):
            raise ValueError(
                f"unknown operator {label!r}: known are {', '.join(sorted(known))}; those of images also with {LAST}"
            )


def _drawn(label: str, rng: random.Random, real: float) -> Drawn:
    """A shape for a label; `real` is the share of shapes taken from real models."""
    plain = label.removesuffix(LAST)
    if plain in DRAWS:
        drawn = DRAWS[plain](rng)
    else:
        op, shape = (real_shape if rng.random() < real else plain_shape)(plain, rng)
        drawn = sized(op, shape)
    if label != plain:
        drawn.shape["last"] = 1
    return drawn


def _manner(label: str, op: str, dtypes: list[str], rng: random.Random) -> dict[str, str]:
    """The dtype and the direction of a case."""
    operator = find(op)
    dtype = rng.choice(dtypes)
    if label.startswith("matmul_"):
        dtype = label.removeprefix("matmul_")
    if dtype == "tf32" and not operator.tf32:
        dtype = "fp32"
    if dtype not in (*operator.dtypes, "tf32", *quantised.DTYPES):
        dtype = operator.dtypes[0]
    one_way = not operator.backward or label in FORWARD_ONLY or dtype in quantised.DTYPES
    direction = "forward" if one_way or rng.random() < 0.6 else "backward"
    return {"dtype": dtype, "direction": direction, "family": label}
