"""Imputation judged: known values are hidden, filled by every method, and compared."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from forerun.landscape.fill.filled import HARDWARE_COLUMNS, MODEL_COLUMNS, NAME, Options, Table
from forerun.landscape.fill.methods import METHODS, fill
from forerun.landscape.schema import Tables

FOLDS, SEED, EXAMPLES = 5, 0, 20
HIT = 0.05  # a hit is a value within 5 % of the hidden one
#: The methods that are compared, and the columns in which each is.
COMPARED: dict[str, dict[Table, Sequence[str]]] = {
    "rms": {"models": MODEL_COLUMNS, "hardware": HARDWARE_COLUMNS},
    "nearest": {"models": MODEL_COLUMNS},
    "retrieval": {"models": MODEL_COLUMNS},
    "forest": {"hardware": HARDWARE_COLUMNS},
    "extra_trees": {"hardware": HARDWARE_COLUMNS},
}


@dataclass(frozen=True)
class FillError:
    """How well a method fills a column: how many values were hidden and filled, and how far off the fills are.

    Errors are over the filled ones; None where there are none. A decade is a factor of 10.
    """

    table: Table
    column: str
    method: str
    hidden: int
    answered: int
    hit_rate: float | None
    within_factor_2: float | None
    median_decades: float | None
    mean_decades: float | None


@dataclass(frozen=True)
class Example:
    """A hidden value beside what retrieval put in its place, and its sentence."""

    model: str
    column: str
    hidden: float
    filled: float
    sentence: str
    confidence: float | None

    @property
    def hit(self) -> bool:
        """Whether the filled value is the hidden one."""
        return abs(self.filled / self.hidden - 1) <= HIT


@dataclass(frozen=True)
class FillStudy:
    """The study of fills: the error of every method in every column, examples, and how it was done."""

    errors: tuple[FillError, ...]
    examples: tuple[Example, ...]
    folds: int
    models: int  # whose values were hidden
    seconds: dict[str, float]  # what each method took, over all folds

    def of(self, column: str, method: str) -> FillError | None:
        """The error of a method in a column; None where it was not tried."""
        return next((error for error in self.errors if (error.column, error.method) == (column, method)), None)


def left_for_judging(model: str) -> bool:
    """Whether a model is judged: about every second, whose notes the first rules of retrieval were written without."""
    return zlib.crc32(model.encode()) % 2 == 0


def judge_fills(
    tables: Tables, methods: Sequence[str] = tuple(COMPARED), folds: int = FOLDS, options: Options | None = None
) -> FillStudy:
    """Every known value of the judged rows hidden once, in turn, and filled by every method from the rest."""
    chosen = options or Options()
    report = chosen.report("judging fills")
    parts = _folds(tables, folds)
    pairs: list[pd.DataFrame] = []
    seconds = dict.fromkeys(methods, 0.0)
    for fold in range(folds):
        without = _without(tables, parts, fold)
        for done, name in enumerate(methods):
            start = time.perf_counter()
            _, filled = fill(without, name, COMPARED.get(name) or METHODS[name].columns, chosen)
            seconds[name] += time.perf_counter() - start
            pairs.append(_pairs(filled, parts, fold).assign(asked_of=name))
            if report is not None:
                report((fold + (done + 1) / len(methods)) / folds)
    together = pd.concat(pairs, ignore_index=True)
    errors = [
        _error(together, parts, table, column, name)
        for name in methods
        for table, columns in (COMPARED.get(name) or METHODS[name].columns).items()
        for column in columns
    ]
    judged = sum(map(left_for_judging, tables.models["model"]))
    shown = _examples(together[together["asked_of"] == "retrieval"])
    return FillStudy(tuple(error for error in errors if error.hidden), shown, folds, judged, seconds)


def _folds(tables: Tables, folds: int) -> pd.DataFrame:
    """Every value that is hidden at some time: table, model, column, hidden, fold."""
    rows: list[tuple[Table, str, str, float, int]] = []
    random = np.random.default_rng(SEED)
    judged_columns: dict[Table, Sequence[str]] = {"models": MODEL_COLUMNS, "hardware": HARDWARE_COLUMNS}
    for table, columns in judged_columns.items():
        content = tables.models if table == "models" else tables.hardware
        judged = np.array([table == "hardware" or left_for_judging(name) for name in content[NAME[table]]], dtype=bool)
        for column in columns:
            known = content.loc[content[column].notna() & judged, [NAME[table], column]]
            parts = random.permutation(len(known)) % folds
            rows += [
                (table, name, column, float(value), int(part))
                for (name, value), part in zip(known.itertuples(index=False), parts, strict=True)
            ]
    return pd.DataFrame(rows, columns=["table", "model", "column", "hidden", "fold"])


def _without(tables: Tables, parts: pd.DataFrame, fold: int) -> Tables:
    """The tables without the values of a fold."""
    hidden = {"models": tables.models.copy(), "hardware": tables.hardware.copy()}
    for (table, column), group in parts[parts["fold"] == fold].groupby(["table", "column"]):
        rows = hidden[table]
        rows.loc[rows[NAME[table]].isin(set(group["model"])), column] = np.nan
    return replace(tables, models=hidden["models"], hardware=hidden["hardware"])


def _pairs(filled: pd.DataFrame, parts: pd.DataFrame, fold: int) -> pd.DataFrame:
    """Filled beside hidden values."""
    return filled.merge(parts[parts["fold"] == fold], on=["table", "model", "column"])


def _error(pairs: pd.DataFrame, parts: pd.DataFrame, table: Table, column: str, method: str) -> FillError:
    """How far a method is off in a column."""
    hidden = int(((parts["table"] == table) & (parts["column"] == column)).sum())
    own = pairs[(pairs["asked_of"] == method) & (pairs["table"] == table) & (pairs["column"] == column)]
    if own.empty:
        return FillError(table, column, method, hidden, 0, None, None, None, None)
    ratio = (own["value"] / own["hidden"]).to_numpy(float)
    decades = np.abs(np.log10(ratio))
    return FillError(
        table, column, method, hidden, len(own), float(np.mean(np.abs(ratio - 1) <= HIT)),
        float(np.mean(decades <= np.log10(2))), float(np.median(decades)), float(np.mean(decades)),
    )  # fmt: skip


def _examples(pairs: pd.DataFrame) -> tuple[Example, ...]:
    """A sample of retrieval's fills, right and wrong, in turn from every column."""
    mixed = pairs.sample(frac=1.0, random_state=SEED)
    turn = mixed.groupby("column").cumcount()
    taken = mixed.assign(turn=turn).sort_values(["turn", "column"]).head(EXAMPLES)
    return tuple(
        Example(row.model, row.column, row.hidden, row.value, row.sentence, row.confidence)
        for row in taken.itertuples(index=False)
    )
