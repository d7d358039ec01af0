"""The baseline: the root mean square of the known values for every missing value of a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.landscape.fill.filled import NAME, Filled, Options, Table, holes
from forerun.landscape.schema import Tables

METHOD = "rms"


def fill_rms(tables: Tables, columns: dict[Table, Sequence[str]], options: Options) -> list[Filled]:
    """Every missing value by the root mean square of its column."""
    values: list[Filled] = []
    for table, names in columns.items():
        rows = tables.models if table == "models" else tables.hardware
        for column, empty in holes(rows, names).items():
            known = rows[column].dropna().to_numpy(float)
            if not len(known):
                continue
            mean = float(np.sqrt(np.mean(np.square(known))))
            sure = float(np.mean(np.abs(np.log2(known / mean)) <= 1))
            sentence = f"root mean square of {len(known)} known values"
            values += [
                Filled(table, name, column, mean, METHOD, sentence, sure) for name in rows.loc[empty, NAME[table]]
            ]
    return values
