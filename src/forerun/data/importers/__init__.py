"""Importers: each turns one published data set, as its authors laid it out, into rows of the store.

The contract, and how a package of your own adds one, is in `base.py`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from forerun.data import schema
from forerun.data.importers.base import Importer, Loaded, Source
from forerun.errors import ForerunError, did_you_mean

if TYPE_CHECKING:
    from forerun.data.store import Store

__all__ = ["Importer", "Loaded", "MissingSet", "Source", "dataset_hash", "importer", "importers", "load",
           "missing_sets"]  # fmt: skip

GROUP = "forerun.importers"


@functools.cache
def importers() -> dict[str, Importer]:
    """Every registered importer by the name of its data set, sorted; two of one name are an error."""
    found: dict[str, Importer] = {}
    places: dict[str, str] = {}
    for point in entry_points(group=GROUP):
        one = _instance(point)
        if one.name in found and places[one.name] != point.value:
            raise ForerunError(f"two importers are called {one.name}: {places[one.name]} and {point.value}")
        found[one.name], places[one.name] = one, point.value
    return dict(sorted(found.items()))


def importer(name: str) -> Importer:
    """The importer of a data set; a ForerunError with suggestions when there is none."""
    known = importers()
    if name not in known:
        raise ForerunError(f"no importer is called {name!r}.{did_you_mean(name, known) or ' ' + ', '.join(known)}")
    return known[name]


def load(name: str, folder: str | Path) -> Loaded:
    """The rows of a published data set in a folder."""
    chosen = importer(name)
    place = Path(folder)
    if not place.is_dir():
        raise ForerunError(f"{place} is not a folder; give the folder that holds the {name} files")
    try:
        loaded = chosen.load(place)
    except FileNotFoundError as error:
        missing = Path(error.filename).name if error.filename else str(error)
        raise ForerunError(f"{place} does not hold the {name} data: {missing} is missing") from error
    except (KeyError, ValueError, TypeError, pd.errors.ParserError) as error:
        raise ForerunError(f"the {name} files in {place} are not laid out as expected: {error}") from error
    for table, frame in loaded.tables.items():
        loaded.tables[table] = frame.assign(dataset=name, status=frame.get("status", "ok"))
    return loaded


def dataset_hash(store: Store, dataset: str) -> str:
    """A hash of a set's rows in a store: the same for the same rows, in whatever order they were added.

    Repeats count as often as they come. A column that is null says nothing, so adding columns to the schema changes no
    hash, and neither do tables of which no predictor learns. `row_id` is left out, because it numbers repeats in their
    order.
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
    found = store.query(f"select sha256(coalesce(string_agg(row_hash, '' order by row_hash), '')) as h from ({rows})")
    return str(found["h"][0])


@dataclass(frozen=True)
class MissingSet:
    """A training set that is not in the store."""

    name: str
    command: str  # the one command that imports it, in the folder where its repository was cloned
    fetch: tuple[str, ...]  # the commands that clone it


def missing_sets(store: Store) -> list[MissingSet]:
    """The training sets that are not imported, each with the command that imports it."""
    both = "select dataset from models union select dataset from operators"
    present = set(store.query(both)["dataset"])
    return [
        MissingSet(name, one.command, tuple(source.clone for source in one.sources))
        for name, one in importers().items()
        if one.in_training and name not in present
    ]


def _instance(point: EntryPoint) -> Importer:
    """The importer behind an entry point, made and checked."""
    try:
        made = point.load()()
    except (ImportError, AttributeError, TypeError) as error:
        raise ForerunError(f"the importer {point.name} ({point.value}) cannot be loaded: {error}") from error
    if not isinstance(made, Importer):
        raise ForerunError(f"the importer {point.name} ({point.value}) is not a forerun.data.importers.Importer")
    lacking = [field for field in ("name", "about", "licence", "source", "commit") if not getattr(made, field, "")]
    if lacking:
        raise ForerunError(f"the importer {point.name} ({point.value}) does not state its {', '.join(lacking)}")
    return made


def _text_of(column: str, kind: str) -> str:
    """SQL: a column's value with its name, the empty text for null. Numbers have one form, whatever wrote them."""
    value = f"printf('%.17g', \"{column}\")" if kind == "double" else f'"{column}"::varchar'
    return f"coalesce('{column}=' || {value} || chr(31), '')"
