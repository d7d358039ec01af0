"""Importers: each converts one published data set, as its authors laid it out, into rows of the store.

The contract, and how another package adds an importer, is in `base.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from forerun._util.registry import Registry
from forerun.data import schema
from forerun.data.importers._cases import one_row_a_case
from forerun.data.importers.base import Importer, Loaded, Source
from forerun.errors import ForerunError

if TYPE_CHECKING:
    from forerun.data.store import Store

__all__ = ["Importer", "Loaded", "MissingSet", "Source", "dataset_hash", "importer", "importers", "load",
           "missing_sets", "one_row_a_case"]  # fmt: skip

IMPORTERS: Registry[Importer] = Registry("importer", Importer, ["forerun.importers"])


def importers() -> dict[str, Importer]:
    """Every installed or registered importer by the name of its data set, sorted."""
    return {name: _checked(name) for name in sorted(IMPORTERS.names())}


def importer(name: str) -> Importer:
    """The importer of a data set. Raises a ForerunError with suggestions if there is none."""
    IMPORTERS.check(name)
    return importers()[name]


def load(name: str, folder: str | Path) -> Loaded:
    """The rows of a published data set in a folder."""
    chosen = importer(name)
    place = Path(folder)
    if not place.is_dir():
        raise ForerunError(f"{place} is not a folder; give the folder that contains the {name} files")
    try:
        loaded = chosen.load(place)
    except FileNotFoundError as error:
        missing = Path(error.filename).name if error.filename else str(error)
        raise ForerunError(f"{place} does not contain the {name} data: {missing} is missing") from error
    except (KeyError, ValueError, TypeError, pd.errors.ParserError) as error:
        raise ForerunError(f"the {name} files in {place} are not laid out as expected: {error}") from error
    for table, frame in loaded.tables.items():
        loaded.tables[table] = frame.assign(dataset=name, status=frame.get("status", "ok"))
    return loaded


def dataset_hash(store: Store, dataset: str) -> str:
    """A hash of a set's rows in a store, independent of their order.

    Repeats count individually. Null columns are skipped, so that adding columns to the schema changes no hash; tables
    that no predictor is trained on are skipped, too. `row_id` is excluded, because it numbers repeats in their order.
    """
    parts = []
    name = dataset.replace("'", "''")
    for table, columns in schema.TABLES.items():
        if table in schema.NOT_LEARNED:
            continue
        texts = [_text_of(field.name, str(field.type)) for field in columns if field.name != "row_id"]
        row = f"md5('{table}' || chr(31) || {' || '.join(texts)})"
        parts.append(f"select {row} as row_hash from {table} where dataset = '{name}'")
    rows = " union all ".join(parts)
    hashed = store.query(f"select sha256(coalesce(string_agg(row_hash, '' order by row_hash), '')) as h from ({rows})")
    return str(hashed["h"][0])


@dataclass(frozen=True)
class MissingSet:
    """A training set that is not in the store."""

    name: str
    command: str  # the command that imports it, run in the folder of its cloned repository
    fetch: tuple[str, ...]  # the commands that clone its repositories


def missing_sets(store: Store) -> list[MissingSet]:
    """The training sets that are not imported, each with its import command."""
    both = "select dataset from models union select dataset from operators"
    present = set(store.query(both)["dataset"])
    return [
        MissingSet(name, known.command, tuple(source.clone for source in known.sources))
        for name, known in importers().items()
        if known.in_training and name not in present
    ]


def _checked(name: str) -> Importer:
    """The importer of this name. Raises a ForerunError if its required attributes are missing."""
    candidate = IMPORTERS.made(name)
    lacking = [field for field in ("name", "about", "licence", "source", "commit") if not getattr(candidate, field, "")]
    if lacking:
        raise ForerunError(f"the importer {name} does not state its {', '.join(lacking)}")
    if candidate.name != name:
        raise ForerunError(f"the importer {name} calls its data set {candidate.name}: both need one name")
    return candidate


def _text_of(column: str, kind: str) -> str:
    """SQL: a column's value with its name, empty for null. Numbers are normalised to one form."""
    value = f"printf('%.17g', \"{column}\")" if kind == "double" else f'"{column}"::varchar'
    return f"coalesce('{column}=' || {value} || chr(31), '')"
