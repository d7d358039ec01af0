"""Power, transistors and process of hardware by iterative imputation with random forests."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.landscape.fill.filled import Filled, Options, Table
from forerun.landscape.fill.iterative import impute
from forerun.landscape.schema import Tables


def fill_forest(tables: Tables, columns: dict[Table, Sequence[str]], options: Options) -> list[Filled]:
    """Missing values of the hardware's columns by random forests."""
    return impute(tables, columns.get("hardware", ()), "forest")
