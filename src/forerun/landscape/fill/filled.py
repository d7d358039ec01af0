"""A filled value, and the tables with filled values in their holes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal

import pandas as pd

from forerun.landscape.schema import Tables

Table = Literal["models", "hardware"]
Progress = Callable[[str, float], None]  # what is done, and which share of it

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

    The confidence is the share of known values that the method puts within a factor of 2, so far as it is measured.
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
    """What methods may be given besides the tables."""

    embedding: str | None = None  # a sentence-transformers folder
    llm_url: str | None = None
    llm_model: str = "default"
    progress: Progress | None = None

    def report(self, words: str) -> Callable[[float], None] | None:
        """What a part of the work calls with the share of it that is done."""
        progress = self.progress
        return None if progress is None else lambda share: progress(words, share)


def frame(values: Iterable[Filled]) -> pd.DataFrame:
    """Filled values as a table."""
    return pd.DataFrame([asdict(value) for value in values], columns=[field.name for field in fields(Filled)])


def holes(rows: pd.DataFrame, columns: Sequence[str]) -> dict[str, pd.Index]:
    """The rows in which each of some columns is not known."""
    return {column: rows.index[rows[column].isna()] for column in columns if column in rows}


def with_values(tables: Tables, values: Sequence[Filled]) -> Tables:
    """The tables with the values in their holes; a known value is never replaced."""
    made: dict[Table, pd.DataFrame] = {"models": tables.models.copy(), "hardware": tables.hardware.copy()}
    by_column: dict[tuple[Table, str], dict[str, float]] = {}
    for one in values:
        by_column.setdefault((one.table, one.column), {})[one.model] = one.value
    for (table, column), known in by_column.items():
        rows = made[table]
        rows[column] = rows[column].fillna(rows[NAME[table]].map(known).astype(float))
    return replace(tables, models=made["models"], hardware=made["hardware"])
