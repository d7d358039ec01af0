"""Copies of Epoch AI's tables on disk: located, read whole or refused, mapped onto our columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from forerun._util.readable import short
from forerun.errors import ForerunError, did_you_mean
from forerun.landscape import amounts
from forerun.landscape.schema import DROPPED, HARDWARE, LINK, MODELS, Column, numbers, typed

#: Which table a file holds, by a word in its name. Of two copies of the same day, the one listed first here wins.
TABLES = {"notable": "notable", "frontier": "frontier", "large_scale": "large_scale", "all_ai_models": "all"}
HARDWARE_TABLE = "hardware"
MAX_BYTES = 200 * 2**20


@dataclass(frozen=True)
class Copy:
    """One CSV in our columns, and what else it held."""

    name: str
    table: str
    date: str  # year and month; the newest copy of a cell wins
    rows: pd.DataFrame
    zeros: int  # numbers that were 0, which means unknown
    dropped: int  # columns
    unknown: tuple[str, ...]  # headings that no copy had when this was written

    @property
    def of_models(self) -> bool:
        """Whether it holds models, not hardware."""
        return self.table != HARDWARE_TABLE


def find(place: Path | str | Sequence[Path | str]) -> list[Path]:
    """The CSVs of a folder that hold models or hardware, or the files given."""
    files: list[Path] = []
    for source in [Path(place)] if isinstance(place, str | Path) else [Path(source) for source in place]:
        if source.is_dir():
            held = [path for path in sorted(source.glob("*.csv")) if _table(path.stem, _headings(path)) is not None]
            if not held:
                raise ForerunError(f"no CSV in {source} has a column 'Model' or 'Hardware name', as Epoch AI's do")
            files += held
        elif source.is_file():
            files.append(source)
        else:
            raise ForerunError(f"{source} is neither a CSV nor a folder of them")
    return files


def read(path: Path) -> Copy:
    """One CSV in our columns; refused with a sentence if it was cut off or lacks a column that it must have."""
    headings, lines = _lines(path)
    table = _table(path.stem, headings)
    if table is None:
        raise ForerunError(
            f"{path.name} has neither a column 'Model' nor a column 'Hardware name'."
            f"{did_you_mean('Model', headings) or did_you_mean('Hardware name', headings)}"
        )
    columns = HARDWARE if table == HARDWARE_TABLE else MODELS
    places = _places(path.name, columns, headings)
    named = places[columns[0].name]
    lines = [line for line in lines if line[named].strip()]
    cells: dict[str, list[Any]] = {}
    for column in columns:
        if column.name in places:
            at = places[column.name]
            cells[column.name] = [_cell(line[at], column, path.name, line[named]) for line in lines]
        else:
            cells[column.name] = [() if column.kind == "words" else None] * len(lines)
    zeros = sum(
        value is None and bool(line[places[name]].strip())
        for name in numbers(columns)
        if name in places
        for value, line in zip(cells[name], lines, strict=True)
    )
    rows = typed(pd.DataFrame(cells), columns)
    if table != HARDWARE_TABLE:
        links = [line[headings.index(LINK)].strip() if LINK in headings else "" for line in lines]
        rows["link"] = pd.Series([link or None for link in links], dtype=object)
    known = {heading for column in columns for heading in column.headings} | {LINK, *DROPPED}
    return Copy(
        name=path.stem, table=table, date=_date(path.stem, rows[_dated(columns)]), rows=rows, zeros=zeros,
        dropped=len(headings) - len(places), unknown=tuple(unread for unread in headings if unread not in known),
    )  # fmt: skip


def _places(file: str, columns: tuple[Column, ...], headings: list[str]) -> dict[str, int]:
    """The position of each of our columns in a file; a missing required column is an error."""
    known = {heading for column in columns for heading in column.headings} | {LINK, *DROPPED}
    places: dict[str, int] = {}
    for column in columns:
        if present := [heading for heading in column.headings if heading in headings]:
            places[column.name] = headings.index(present[0])
        elif column.required:
            near = did_you_mean(column.headings[0], [heading for heading in headings if heading not in known])
            raise ForerunError(f"{file} has no column {column.headings[0]!r}, which its table must have.{near}")
    return places


def _lines(path: Path) -> tuple[list[str], list[list[str]]]:
    """The headings and the rows of a CSV, each of the same length."""
    headings: list[str] = []
    lines: list[list[str]] = []
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ForerunError(f"{path.name} is larger than {MAX_BYTES // 2**20} MB")
        with path.open(newline="", encoding="utf-8-sig") as file:
            csv.field_size_limit(10**7)
            for line in csv.reader(file, strict=True):
                if not headings:
                    headings = [heading.strip() for heading in line]
                elif line and len(line) != len(headings):
                    raise ForerunError(
                        f"{path.name} is cut off or damaged: row {len(lines) + 1} ({short(line[0])}) has {len(line)} "
                        f"cells and the headings are {len(headings)}; download it again"
                    )
                elif line:
                    lines.append(line)
    except UnicodeDecodeError as error:
        raise ForerunError(f"{path.name} is not a CSV in UTF-8: {error.reason}") from error
    except csv.Error as error:
        raise ForerunError(
            f"{path.name} is cut off or damaged after row {len(lines)}: {error}; download it again"
        ) from error
    except OSError as error:
        raise ForerunError(f"{path.name} cannot be read: {error.strerror or error}") from error
    if not lines:
        raise ForerunError(f"{path.name} has no rows")
    return headings, lines


def _headings(path: Path) -> list[str]:
    """The headings of a CSV; none where it cannot be read as text."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [heading.strip() for heading in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _table(stem: str, headings: list[str]) -> str | None:
    """Which table a file holds; None where it is not one of ours."""
    if "Hardware name" in headings:
        return HARDWARE_TABLE
    if not any(heading in headings for heading in MODELS[0].headings) or "Publication date" not in headings:
        return None
    return next((table for words, table in TABLES.items() if words in stem.lower()), "models")


def _dated(columns: tuple[Column, ...]) -> str:
    """The column that holds the date of a row."""
    return next(column.name for column in columns if column.kind == "date")


def _date(stem: str, dates: pd.Series) -> str:
    """Year and month of a copy: out of its name, else of the newest row in it."""
    if match := re.search(r"(20\d\d)[-_]?(0[1-9]|1[0-2])", stem):
        return f"{match[1]}-{match[2]}"
    return f"{dates.max():%Y-%m}" if dates.notna().any() else "0000-00"


def _cell(text: str, column: Column, file: str, row: str) -> Any:
    """The value of a cell; None (no words) where it is empty, and for a number of 0."""
    text = text.strip()
    if column.kind == "words":
        return split(text)
    if not text or text.lower() in ("nan", "none", "n/a"):
        return None
    if column.kind in ("text", "names"):
        return text
    if column.kind == "flag":
        return text.lower() in ("true", "checked", "yes", "1")
    what = f"{file}: {column.headings[0]!r} of {short(row.strip())}"
    if column.kind == "date":
        try:
            return pd.Timestamp(datetime.fromisoformat(text).date())
        except ValueError:
            raise ForerunError(f"{what} is a date such as 2024-07-23, got {short(text)}") from None
    if re.fullmatch(r"0*(\.0*)?", text):
        return None
    value = amounts.total(text, what) if column.kind == "sum" else amounts.count(text, what)
    if column.kind == "share" and value > 1:
        raise ForerunError(f"{what} is a share between 0 and 1, got {short(text)}")
    return value


def split(text: str) -> tuple[str, ...]:
    """The parts of a cell that lists several by commas, each once; 'Ltd.' belongs to the part before it."""
    joined = re.sub(r",\s*(Ltd|Inc|LLC)\b", r" \1", text)
    return tuple(dict.fromkeys(part.strip() for part in joined.split(",") if part.strip()))
