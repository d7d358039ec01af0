"""The methods by name, and the tables filled by one or several of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from forerun.errors import ForerunError, did_you_mean
from forerun.landscape.fill import extra_trees, filled, forest, mean, nearest, retrieval
from forerun.landscape.fill.filled import (
    EXTRA_TREES_COLUMNS,
    FOREST_COLUMNS,
    HARDWARE_COLUMNS,
    MODEL_COLUMNS,
    Filled,
    Options,
    Table,
)
from forerun.landscape.schema import Tables

Columns = Mapping[Table, Sequence[str]]


@dataclass(frozen=True)
class Method:
    """An imputation method: a description, the function, and the columns that it fills by default."""

    words: str
    compute: Callable[[Tables, dict[Table, Sequence[str]], Options], list[Filled]]
    columns: dict[Table, Sequence[str]]


METHODS = {
    "rms": Method(
        "root mean square of the known values", mean.fill_rms, {"models": MODEL_COLUMNS, "hardware": HARDWARE_COLUMNS}
    ),
    "forest": Method(
        "iterative imputation with random forests", forest.fill_forest, {"hardware": FOREST_COLUMNS}
    ),
    "extra_trees": Method(
        "iterative imputation with extra trees", extra_trees.fill_extra_trees, {"hardware": EXTRA_TREES_COLUMNS}
    ),
    "nearest": Method("the base model, or the most similar model", nearest.fill_nearest, {"models": MODEL_COLUMNS}),
    "retrieval": Method(
        "sentences of the notes with numbers and units", retrieval.fill_retrieval, {"models": tuple(retrieval.TARGETS)}
    ),
}  # fmt: skip


def fill(
    tables: Tables,
    method: str | Sequence[str],
    columns: Columns | None = None,
    options: Options | None = None,
) -> tuple[Tables, pd.DataFrame]:
    """The tables with missing values filled by a method, or by several in turn; and a table of the fills.

    Its columns: table, model, column, value, method, sentence, confidence.
    """
    values: list[Filled] = []
    for name in [method] if isinstance(method, str) else method:
        if name not in METHODS:
            raise ForerunError(f"unknown method {name!r}; there are {', '.join(METHODS)}.{did_you_mean(name, METHODS)}")
        chosen = METHODS[name]
        computed = chosen.compute(tables, dict(columns or chosen.columns), options or Options())
        tables = filled.with_values(tables, computed)
        values += computed
    return tables, filled.frame(values)
