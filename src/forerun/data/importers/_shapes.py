"""Vectorised JSON columns: shapes of operators, versions of software, other fields of a row."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd


def json_column(frame: pd.DataFrame) -> pd.Series:
    """Every row as compact JSON with sorted keys, nulls omitted; a row of nulls is null.

    Equal rows give equal text, so that shapes can be compared as strings. Each distinct value is written once.
    """
    text = pd.Series("", index=frame.index, dtype=object)
    for name in sorted(frame.columns):
        values = frame[name].astype(object)
        written = {value: f',"{name}":{json.dumps(_plain(value))}' for value in values.dropna().unique()}
        text = text + values.map(written).astype(object).fillna("")
    return ("{" + text.str[1:] + "}").astype(object).where(text != "", None)


def _plain(value: Any) -> Any:
    """A Python value; integers that became floats because of nulls in the column are integers again."""
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value
