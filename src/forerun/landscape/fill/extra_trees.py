"""Release price and secondary performance of hardware by iterative imputation with extra trees."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.landscape.fill.filled import Filled, Options, Table
from forerun.landscape.fill.iterative import impute
from forerun.landscape.schema import Tables


def fill_extra_trees(tables: Tables, columns: dict[Table, Sequence[str]], options: Options) -> list[Filled]:
    """Missing values of the hardware's columns by extra trees."""
    return impute(tables, columns.get("hardware", ()), "extra_trees")
