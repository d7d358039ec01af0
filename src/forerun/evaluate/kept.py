"""Predictions for left-out families, kept beside the weights so that the scoreboard can be printed without fitting."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forerun.errors import ForerunError

GPU, CPU = "left_out.parquet", "left_out_cpu.parquet"
_LONG = ("extra", "case", "software", "reason", "host", "row_id")


def keep_left_out(folder: Path, told: pd.DataFrame, told_cpu: pd.DataFrame | None) -> None:
    for name, frame in ((GPU, told), (CPU, told_cpu)):
        if frame is not None:
            kept = [c for c in frame.columns if c not in _LONG]
            frame[kept].to_parquet(folder / name, compression="zstd", index=False)


def kept_left_out(folder: Path, name: str = GPU) -> pd.DataFrame:
    try:
        return pd.read_parquet(folder / name)
    except OSError as error:
        raise ForerunError(
            f"{folder} keeps no left-out predictions: run forerun train default --out {folder}"
        ) from error
