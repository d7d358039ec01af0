"""A filled value, and the tables with missing values filled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal

import pandas as pd

from forerun.landscape.schema import Tables

Table = Literal["models", "hardware"]
Progress = Callable[[str, float], None]  # the step, and the share of it that is done

#: The columns of the models that are filled; a share (MFU) is filled like any other number.
MODEL_COLUMNS = (
    "parameters", "compute_flop", "dataset_size", "epochs", "training_hours", "chips", "mfu", "cost_2023_usd",
    "power_w", "batch_size", "finetune_flop",
)  # fmt: skip
#: The columns of the hardware that are filled: what random forests do, and what extra trees do.
FOREST_COLUMNS = ("tdp_w", "transistors_m", "process_nm")
EXTRA_TREES_COLUMNS = (
    "price_usd", "fp64_flops", "fp32_flops", "tf32_flops", "fp16_flops", "tensor_fp16_flops", "fp8_flops", "int8_ops",
)  # fmt: skip
HARDWARE_COLUMNS = (*FOREST_COLUMNS, *EXTRA_TREES_COLUMNS)
#: What names a row.
NAME: dict[Table, str] = {"models": "model", "hardware": "hardware"}


@dataclass(frozen=True)
class Filled:
    """One filled value: where it goes, how it was found, from which sentence, and how sure it is.

    The confidence is the share of known values that the method puts within a factor of 2, where that is measured.
    """

    table: Table
    model: str  # the model's name, or the hardware's
    column: str
    value: float
    method: str
    sentence: str
    confidence: float | None


@dataclass(frozen=True)
class Options:
    """Options of the methods."""

    embedding: str | None = None  # a sentence-transformers folder
    llm_url: str | None = None
    llm_model: str = "default"
    progress: Progress | None = None

    def report(self, words: str) -> Callable[[float], None] | None:
        """The progress callback of one part of the work."""
        progress = self.progress
        return None if progress is None else lambda share: progress(words, share)


def frame(values: Iterable[Filled]) -> pd.DataFrame:
    """Filled values as a table."""
    return pd.DataFrame([asdict(value) for value in values], columns=[field.name for field in fields(Filled)])


def holes(rows: pd.DataFrame, columns: Sequence[str]) -> dict[str, pd.Index]:
    """The rows in which each of some columns is not known."""
    return {column: rows.index[rows[column].isna()] for column in columns if column in rows}


def with_values(tables: Tables, values: Sequence[Filled]) -> Tables:
    """The tables with missing values filled; a known value is never replaced."""
    filled: dict[Table, pd.DataFrame] = {"models": tables.models.copy(), "hardware": tables.hardware.copy()}
    by_column: dict[tuple[Table, str], dict[str, float]] = {}
    for value in values:
        by_column.setdefault((value.table, value.column), {})[value.model] = value.value
    for (table, column), known in by_column.items():
        rows = filled[table]
        rows[column] = rows[column].fillna(rows[NAME[table]].map(known).astype(float))
    return replace(tables, models=filled["models"], hardware=filled["hardware"])
