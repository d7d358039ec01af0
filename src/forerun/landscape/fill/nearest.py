"""The value of the nearest known model: the base model of a model, else the one with the most similar description."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from forerun.landscape.fill.embedding import embed
from forerun.landscape.fill.filled import Filled, Options, Table, holes
from forerun.landscape.schema import Tables

METHOD = "nearest"
#: How similar a name must be to that of the base model, or a description to another; also the value's confidence.
BY_BASE_MODEL, OTHERWISE = 0.7, 0.5
LONGEST = 160  # characters of a description


def fill_nearest(tables: Tables, columns: dict[Table, Sequence[str]], options: Options) -> list[Filled]:
    """Missing values of the models' columns by the nearest model that has the value."""
    models = tables.models.reset_index(drop=True)
    wanted = {name: at for name, at in holes(models, columns.get("models", ())).items() if len(at)}
    if not wanted:
        return []
    report = options.report("embedding descriptions of models")
    texts = embed([describe(row) for row in models.to_dict("records")], options.embedding, report)
    base_names = sorted({name for cell in models["base_model"].dropna() for name in _names(cell)})
    by_name = _base_rows(models, base_names, options)
    similar = texts @ texts.T
    values: list[Filled] = []
    for column, empty in wanted.items():
        known = models.index[models[column].notna()].to_numpy()
        if not len(known):
            continue
        for at in empty:
            value = _from_base(models, column, at, by_name) or _from_similar(models, column, at, known, similar[at])
            if value is not None:
                values.append(value)
    return values


def describe(row: dict[str, object]) -> str:
    """A model in one line: its name, who made it and what it does."""
    several = (row["organisations"], row["domains"], row["tasks"])
    listed = "; ".join(", ".join(cell) for cell in several if isinstance(cell, tuple) and cell)
    return f"{row['model']}: {listed}"[:LONGEST]


def _names(cell: str) -> list[str]:
    """The base models that a cell lists."""
    return [name.strip() for name in cell.split(",") if name.strip()]


def _base_rows(models: pd.DataFrame, names: list[str], options: Options) -> dict[str, int]:
    """The row of each base model: of the same name, else of the most similar one if it is similar enough."""
    rows = {name.casefold(): int(at) for at, name in models["model"].items()}
    known = {name: rows[name.casefold()] for name in names if name.casefold() in rows}
    others = [name for name in names if name not in known]
    if others:
        similar = embed(others, options.embedding) @ embed(list(models["model"]), options.embedding).T
        for name, row in zip(others, similar, strict=True):
            if row.max() >= BY_BASE_MODEL:
                known[name] = int(np.argmax(row))
    return known


def _from_base(models: pd.DataFrame, column: str, at: int, by_name: dict[str, int]) -> Filled | None:
    """The value that a base model of a model has."""
    cell = models.at[at, "base_model"]
    for name in _names(cell) if isinstance(cell, str) else ():
        base = by_name.get(name)
        if base is not None and base != at and pd.notna(value := models.at[base, column]):
            sentence = f"its base model {models.at[base, 'model']} has it"
            return Filled("models", models.at[at, "model"], column, float(value), METHOD, sentence, BY_BASE_MODEL)
    return None


def _from_similar(models: pd.DataFrame, column: str, at: int, known: np.ndarray, similar: np.ndarray) -> Filled | None:
    """The value that the most similar model with one has, if it is similar enough."""
    best = int(known[np.argmax(similar[known])])
    if similar[best] < OTHERWISE:
        return None
    sentence = f"{models.at[best, 'model']} is the most similar model that has it (similarity {similar[best]:.2f})"
    value = float(models.at[best, column])
    return Filled("models", models.at[at, "model"], column, value, METHOD, sentence, OTHERWISE)
