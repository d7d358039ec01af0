"""Published rows of complete models as training cases: selection of usable rows, and one row per case."""

from __future__ import annotations

import numpy as np
import pandas as pd

from forerun.device import load_device
from forerun.errors import ForerunError

#: The columns of a case: rows equal in all of these are repeats.
CASE = ["dataset", "device", "model", "mode", "dtype", "amp", "batch", "input_shape", "protocol", "software", "runtime"]


#: Runtimes that predictors are fitted to.
RUNTIMES = ("eager", "compile")


def on_one_gpu(rows: pd.DataFrame) -> pd.DataFrame:
    """Model rows usable for training: with a time, eager or compiled, on one GPU of the catalogue."""
    rows = rows[(rows["status"] == "ok") & rows["runtime"].isin(RUNTIMES) & (rows["latency_ms"] > 0)]
    rows = rows[rows["devices"].fillna(1) == 1]
    gpu = rows["device"].map({name: _is_gpu(name) for name in rows["device"].unique()})
    return rows[gpu.astype(bool)]


def one_row_a_case(rows: pd.DataFrame) -> pd.DataFrame:
    """The median of repeats, with a `case_key` that is equal on every device, and zero `copy_ms`."""
    if rows.empty:
        return rows.assign(case_key="", copy_ms=0.0)
    rows = rows.assign(latency_ms=rows.groupby(CASE, dropna=False)["latency_ms"].transform("median"))
    rows = rows.drop_duplicates(CASE).reset_index(drop=True)
    keys = rows[[name for name in CASE if name not in ("dataset", "device")]].astype("string").fillna("")
    return rows.assign(case_key=keys.agg("|".join, axis=1), copy_ms=np.zeros(len(rows)))


def _is_gpu(name: str) -> bool:
    try:
        return load_device(name).traits.is_board
    except ForerunError:
        return False
