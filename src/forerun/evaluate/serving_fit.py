"""Fits what serving engines add to our operator predictions, to published runs of whole models.

    token time = sum of parts x factor of each + overhead of the iteration, by engine
    without CUDA graphs: near the larger of that and launches x host_us

A run is a mean over iterations, and every term is linear in them, so it is given as sums over its iterations
(evaluate/serving_rows.py). Errors are logarithmic, each model weighs the same, single runs that are far off count less
(Huber). Factors are held to one, and those of an engine to those of all engines, because a dozen models cannot tell a
dozen constants apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pandas as pd

from forerun.predictors.laws.engines import EngineLaw, Overhead

#: Parts of an iteration (serving/engine_model.py) that have a factor each.
FACTORS = (
    "gemm", "gemm_excess", "moe", "moe_excess", "moe_int4", "moe_int4_excess", "moe_mxfp4", "moe_mxfp4_excess",
    "other", "head", "state",
    "attention", "attention_excess", "latent", "latent_excess", "prefill_attention", "collectives",
)  # fmt: skip
#: Overhead, with the value that it is held to, and the column that it goes with.
OVERHEAD = {
    "iteration_us": (500.0, "iterations"), "sequence_us": (5.0, "sequences"), "kernel_us": (0.3, "launches"),
    "prefill_us": (1000.0, "prefills"),
}  # fmt: skip
#: How far logarithms may stray, in standard deviations: factors, overheads, and of these the share that is an engine's.
_FACTOR, _OVERHEAD, _OWN = 0.35, 0.8, 0.5
#: The error of a run by itself (repeats differ by 10 %), and beyond how many of these it counts less.
_NOISE, _HUBER = 0.12, 1.5
#: Models are so many independent observations each, whatever the number of their runs.
_EACH = 8.0
_STEPS = 40
#: Microseconds of the host for each kernel of an engine without CUDA graphs, the name of that term, and how sharply the
#: larger of host and device stands out.
HOST_US, HOST, _SHARP = 45.0, "host_us", 4.0

NAMES = (*FACTORS, *OVERHEAD, HOST)
_SPREAD = dict.fromkeys(FACTORS, _FACTOR) | dict.fromkeys(OVERHEAD, _OVERHEAD)


def terms(rows: pd.DataFrame, names: Sequence[str] = NAMES) -> np.ndarray:
    """[runs, names] every term at the value that it is held to: milliseconds, or joules."""
    of_overhead = {**OVERHEAD, HOST: (HOST_US, "eager")}
    each = [rows[of_overhead[n][1]] * of_overhead[n][0] / 1e3 if n in of_overhead else rows[n] for n in names]
    return np.stack(each, axis=1).astype(float)


def _total(each: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Runs of these terms, and how much each term moves them, in logarithms."""
    host = np.array([name == HOST for name in names])
    device, launched = each[:, ~host].sum(axis=1), each[:, host].sum(axis=1)
    total = np.maximum((device**_SHARP + launched**_SHARP) ** (1 / _SHARP), 1e-12)
    shares = np.where(host, (launched / total)[:, None], (device / total)[:, None]) ** (_SHARP - 1)
    return total, each / total[:, None] * shares


def fit(rows: pd.DataFrame, names: Sequence[str] = NAMES) -> dict[str, np.ndarray]:
    """Logarithms of all factors by engine, from `measured`; "" is for an engine that has no runs."""
    engines = sorted(rows["engine"].unique())
    x, logs = terms(rows, names), np.log(rows["measured"].to_numpy(dtype=float))
    own = np.array([engines.index(name) for name in rows["engine"]])
    n, many = x.shape[1], len(engines) + 1
    share = rows.groupby("unit")["measured"].transform("size").to_numpy(dtype=float)
    weight = np.minimum(_EACH / share, 1.0) / _NOISE**2
    spread = np.array([_SPREAD.get(name, _FACTOR) for name in names])
    held = np.concatenate([1 / spread**2, np.tile(1 / (_OWN * spread) ** 2, len(engines))])
    theta = np.zeros(n * many)
    for _ in range(_STEPS):
        each = x * np.exp(theta[:n] + theta[n:].reshape(-1, n)[own])
        total, slope = _total(each, names)
        misses = logs - np.log(total)
        w = weight * np.minimum(1.0, _HUBER * _NOISE / np.maximum(np.abs(misses), 1e-9))
        jacobian = np.zeros((len(x), n * many))
        jacobian[:, :n] = slope
        for e in range(len(engines)):
            jacobian[own == e, n * (e + 1) : n * (e + 2)] = slope[own == e]
        normal = jacobian.T @ (jacobian * w[:, None]) + np.diag(held)
        step = np.linalg.solve(normal, jacobian.T @ (w * misses) - held * theta)
        theta = theta + np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < 1e-4:
            break
    out = {name: theta[:n] + theta[n * (e + 1) : n * (e + 2)] for e, name in enumerate(engines)}
    return {"": theta[:n], **out}


def predicted(rows: pd.DataFrame, found: Mapping[str, np.ndarray], names: Sequence[str] = NAMES) -> np.ndarray:
    """What runs take: milliseconds, or joules."""
    by = np.stack([found.get(str(engine), found[""]) for engine in rows["engine"]])
    return _total(terms(rows, names) * np.exp(by), names)[0]


def with_runs(
    law: EngineLaw, found: Mapping[str, np.ndarray], intervals: Mapping[str, tuple[float, float]],
    request_ms: Mapping[str, float] = MappingProxyType({}),
) -> EngineLaw:  # fmt: skip
    """The law of operators with what runs of whole models show; `request_ms` by engine."""
    parts, overheads = {}, {}
    for engine, logs in found.items():
        by = dict(zip(NAMES, np.exp(logs).tolist(), strict=True))
        parts[engine] = {name: by[name] for name in FACTORS}
        beside = {name: value * by[name] for name, (value, _) in OVERHEAD.items()}
        own = {"request_ms": request_ms[engine]} if engine in request_ms else {}
        overheads[engine] = Overhead(**beside, **own)
    return replace(law, parts=parts, overheads=overheads, intervals=dict(intervals))
