"""What each part of the default predictor buys: the same left-out rows, told with more and more of it.

The constants of the first line were once read off H200 rows (predictors.kernels), so it is no bare spec sheet; the
scoreboard's line `roofline` is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from forerun.data.splits import independent, leave_out
from forerun.device import load_device
from forerun.errors import ForerunError
from forerun.evaluate.metrics import figures
from forerun.evaluate.scoreboard import regimes
from forerun.graph.profile import CLASSES
from forerun.predictors.kernels import COMPUTE, FLOOR_US, HOST_US, memory_loss, runtime
from forerun.training.cases import Cases
from forerun.training.default import SEEDS, Gathered, device_ms, fit_costs, fit_networks, left_out

PHYSICS, OPERATORS, HOST = "physics only", "+ operator efficiencies", "+ host model"
FULL, UNPUBLISHED = "+ graph correction (full)", "full without published data"
#: The columns: which quantity, and for which rows.
SHOWN = (
    ("device_ms", "all"), ("device_ms", "device-bound"), ("latency_ms", "all"), ("latency_ms", "device-bound"),
    ("latency_ms", "host-bound"),
)  # fmt: skip
FIGURES = ("mape", "median_ape")

#: (device_ms, latency_ms) of every row.
Told = tuple[np.ndarray, np.ndarray]


def ablation(
    found: Gathered,
    told: pd.DataFrame,
    *,
    folds: int,
    steps: int,
    seeds: tuple[int, ...] = SEEDS[:1],
    tell: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """One line per part, each on families that were left out; errors as shares of what was measured.

    `told` is the full predictor's answer (`training.default.left_out` of `found`); for a fair last line it was made
    with the same folds, steps and seeds.
    """
    models = found.models
    same = ["case_key", "repeat"]
    if len(told) != len(models.rows) or (told[same].to_numpy() != models.rows[same].to_numpy()).any():
        raise ForerunError("the left-out predictions are not of these rows: run left_out on what was gathered")
    plain, plain_host = physics_ms(models)
    nothing = models.take(np.zeros(len(models.rows), dtype=bool))
    # No row of a model is learned from, so one fit serves for every family.
    learned = device_ms(fit_networks(nothing, found.operators, found.public, seeds=seeds, steps=steps), models)
    parts: dict[str, Told] = {
        PHYSICS: (plain, np.maximum(plain, plain_host)),
        OPERATORS: (learned, np.maximum(learned, plain_host)),
        HOST: (learned, hosted_ms(models, learned, folds)),
        FULL: told_ms(told),
    }
    if found.public is not None:
        unpublished = left_out(
            replace(found, public=None, published=None), folds=folds, seeds=seeds, steps=steps, tell=tell
        )
        parts[UNPUBLISHED] = told_ms(unpublished)
    return pd.DataFrame([line(name, values, told) for name, values in parts.items()])


def physics_ms(cases: Cases) -> Told:
    """Device and host time of every case by the law of predictors.roofline: constants and a spec sheet."""
    rows, ops = cases.rows, cases.ops
    devices, place = np.unique(rows["device"].to_numpy(dtype=str), return_inverse=True)
    loss = np.stack([memory_loss(load_device(name)) for name in devices])[place[cases.case], ops.classes]
    run = [runtime(load_device(d), r) for d, r in zip(rows["device"], rows["runtime"], strict=True)]
    floor_share, host_share, call_us = np.array([(r.floor_share, r.host_share, r.call_us) for r in run]).T
    reached = cases.sum(np.maximum(ops.compute_s * COMPUTE[ops.classes], ops.memory_s * loss)) * 1e3
    floors = cases.sum(FLOOR_US[ops.classes] * ops.launches) * floor_share / 1e3
    both_phases = cases.launches[:, : 2 * len(CLASSES)].reshape(-1, 2, len(CLASSES)).sum(axis=1)
    return reached + floors, (both_phases @ HOST_US * host_share + call_us) / 1e3


def hosted_ms(models: Cases, told_device: np.ndarray, folds: int) -> np.ndarray:
    """Latency from given device times and launch costs that were fitted to the other families."""
    out = np.full(len(models.rows), np.nan)
    for train, test in leave_out(independent(models.rows), folds):
        known = models.take(train)
        host = fit_costs(known)
        out[test] = host.latency_ms(models.launches[test], told_device[test])
    return out


def told_ms(told: pd.DataFrame) -> Told:
    return told["told_device"].to_numpy(dtype=float), told["told_latency"].to_numpy(dtype=float)


def line(part: str, said: Told, rows: pd.DataFrame) -> dict[str, str | float]:
    """The figures of one part; repeats of a case do not count twice."""
    first = (rows["repeat"] == 0).to_numpy()
    groups = regimes(rows)
    values = dict(zip(("device_ms", "latency_ms"), said, strict=True))
    out: dict[str, str | float] = {"part": part}
    for target, group in SHOWN:
        mine = first & groups[group]
        errors = figures(values[target][mine], rows[target].to_numpy(dtype=float)[mine])
        out |= {f"{target}, {group}: {name}": errors.get(name, float("nan")) for name in FIGURES}
    return out | {"n": int(first.sum())}


def readable(lines: pd.DataFrame) -> pd.DataFrame:
    """The table as text: MAPE and median APE in one cell, in per cent."""

    def cell(row: pd.Series, column: str) -> str:
        mape, median = (100 * row[f"{column}: {name}"] for name in FIGURES)
        return f"{mape:.1f} / {median:.1f} %"

    columns = [f"{target}, {group}" for target, group in SHOWN]
    shown = {c: [cell(row, c) for _, row in lines.iterrows()] for c in columns}
    return pd.DataFrame({"MAPE / median APE": lines["part"], **shown, "n": lines["n"].to_numpy()})
