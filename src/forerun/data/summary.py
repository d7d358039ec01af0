"""Counts of the store's contents, and the repeat noise of measurements."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from forerun.data import schema
from forerun.data.store import Store
from forerun.prediction import DEVICE_BOUND

REPEATED = ("latency_ms", "device_ms", "graph_ms", "energy_j", "memory_mb", "memory_allocated_mb")


def contents(store: Store) -> pd.DataFrame:
    """Rows, failures, models and devices by data set and table."""
    parts = []
    for table in schema.TABLES:
        thing = "op" if table in ("operators", "hosts") else "model"
        parts.append(
            f"select dataset, '{table}' as \"table\", count(*) as rows, "
            f"count(*) filter (where status <> 'ok') as failed, count(distinct {thing}) as kinds, "
            f"count(distinct device) as devices, max(measured_at) as newest from {table} group by dataset"
        )
    return store.query(" union all ".join(parts) + ' order by dataset, "table"')


def regime(frame: pd.DataFrame) -> pd.Series:
    """`device-bound` if the device is busy for most of the call, else `host-bound`; null if unknown."""
    busy = frame["device_ms"] / frame["latency_ms"]
    names = pd.Series(np.where(busy >= DEVICE_BOUND, "device-bound", "host-bound"), index=frame.index)
    return names.where(busy.notna(), None)


def repeats(frame: pd.DataFrame, value: str) -> pd.DataFrame:
    """Repeated rows of cases, with their relative `difference` to the first row."""
    known = frame[frame[value].notna()].sort_values(["case_key", "repeat"])
    first = known.groupby(["device", "case_key"])[value].transform("first")
    later = known.groupby(["device", "case_key"]).cumcount() > 0
    out = known[later].assign(difference=(known[value] / first - 1).abs()[later])
    return out


#: The first version of transformers that builds no attention mask during CUDA graph capture if none is given.
_UNMASKED_REPLAY = (5, 18)


def without_masked_replays(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, without `graph_ms` if the replay ran other kernels than the call.

    Older versions of transformers build a mask for text models during capture, and attention with a mask stores its
    scores. Graphs captured with newer versions have no mask.
    """

    def older(software: object) -> bool:
        match = re.search(r'"transformers": ?"(\d+)\.(\d+)', software) if isinstance(software, str) else None
        return match is not None and (int(match[1]), int(match[2])) < _UNMASKED_REPLAY

    masked = rows["software"].map(older).astype(bool) & (rows["source"] == "hf") & rows["seq_len"].notna()
    return rows.assign(graph_ms=rows["graph_ms"].where(~masked))


def noise_floor(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean and median difference between repeats by group and quantity: the least error that a predictor can reach."""
    lines = []
    for value in (name for name in REPEATED if name in frame):
        repeated = repeats(frame[list(dict.fromkeys(("device", "case_key", "repeat", value, *by)))], value)
        if repeated.empty:
            continue
        for group, rows in repeated.groupby(by):
            line = dict(zip(by, group if isinstance(group, tuple) else (group,), strict=True))
            moved = rows["difference"]
            lines.append(
                {**line, "quantity": value, "cases": len(rows), "mean": moved.mean(), "median": moved.median(),
                 "p90": moved.quantile(0.9)}
            )  # fmt: skip
    return pd.DataFrame(lines, columns=[*by, "quantity", "cases", "mean", "median", "p90"])
