"""Importers: each turns one published data set, as its authors laid it out, into rows of the store.

An importer is a module of this package with

    DATASET: str       the name in column `dataset`, and in `forerun data import NAME PATH`
    ABOUT: str         what was measured, in one line
    LICENCE: str       the licence of the data
    SOURCE: str        repository and commit
    load(folder: Path) -> Loaded

It drops the rows that the source warns of and counts them, with the reason, in `Loaded.dropped`. Units become ours
(milliseconds, MB of 2**20, joules, watts); what the source does not say stays null.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pandas as pd

from forerun.errors import ForerunError, did_you_mean


@dataclass
class Loaded:
    """Tables of rows (names of `schema.TABLES`), and how many rows were left out, by reason."""

    tables: dict[str, pd.DataFrame]
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, frame: pd.DataFrame, bad: pd.Series, reason: str) -> pd.DataFrame:
        """The frame without its bad rows, which are counted."""
        count = int(bad.sum())
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count
        return frame[~bad]


def names() -> list[str]:
    """Every importer, by the name of its data set."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def importer(name: str) -> ModuleType:
    if name not in names():
        raise ForerunError(f"no importer is called {name!r}.{did_you_mean(name, names()) or ' ' + ', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")


def load(name: str, folder: str | Path) -> Loaded:
    """The rows of a published data set in a folder."""
    module = importer(name)
    place = Path(folder)
    if not place.is_dir():
        raise ForerunError(f"{place} is not a folder; give the folder that holds the {name} files")
    try:
        loaded: Loaded = module.load(place)
    except FileNotFoundError as error:
        missing = Path(error.filename).name if error.filename else str(error)
        raise ForerunError(f"{place} does not hold the {name} data: {missing} is missing") from error
    except (KeyError, ValueError, TypeError, pd.errors.ParserError) as error:
        raise ForerunError(f"the {name} files in {place} are not laid out as expected: {error}") from error
    for table, frame in loaded.tables.items():
        loaded.tables[table] = frame.assign(dataset=module.DATASET, status=frame.get("status", "ok"))
    return loaded
