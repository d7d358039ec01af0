"""The tables of a scoreboard as data, beside the document that shows them; the pages' figures are written from these.

Some tables take an hour and imported sets (`--devices`, `--parts`). A run that does not make them leaves those of the
last run that did where they are, with the date of that run.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

FILE = "scoreboard.json"


@dataclass(frozen=True)
class Section:
    """A table with its title and the words above it; `name` identifies it."""

    name: str
    title: str
    table: pd.DataFrame
    words: str = ""
    made: str = ""  # the day

    @classmethod
    def titled(cls, name: str, heading: str, table: pd.DataFrame) -> Section:
        """From a title, followed by the paragraphs above the table."""
        title, _, words = heading.partition("\n\n")
        return cls(name, title, table, words)


def read(folder: Path) -> dict[str, Section]:
    """The sections of an earlier run in this folder, by name; none where there was no run."""
    path = folder / FILE
    if not path.exists():
        return {}
    return {name: _section(name, content) for name, content in json.loads(path.read_text()).items()}


def write(folder: Path, made: Sequence[Section], order: Sequence[str]) -> list[Section]:
    """Writes these sections and those of earlier runs that were not made again; all of them, in an order by name."""
    today = str(datetime.date.today())
    fresh = {one.name: Section(one.name, one.title, one.table, one.words, today) for one in made}
    every = {**read(folder), **fresh}
    names = [*(name for name in order if name in every), *(name for name in every if name not in order)]
    content = {name: _written(every[name]) for name in names}
    lines = ",\n".join(f"{json.dumps(name)}: {_text(section)}" for name, section in content.items())
    (folder / FILE).write_text("{\n" + lines + "\n}\n")
    return [_section(name, content[name]) for name in names]


def _section(name: str, content: dict[str, Any]) -> Section:
    table = pd.DataFrame(content["rows"], columns=content["columns"])
    return Section(name, content["title"], table, content["words"], content["made"])


def _written(one: Section) -> dict[str, Any]:
    rows = [[_plain(value) for value in row] for row in one.table.astype(object).to_numpy().tolist()]
    columns = [str(column) for column in one.table.columns]
    return {"title": one.title, "words": one.words, "made": one.made, "columns": columns, "rows": rows}


def _plain(value: Any) -> Any:
    """Numbers with six digits; None where there is none."""
    if isinstance(value, str) or value is None:
        return value
    if value != value:
        return None
    return int(value) if float(value).is_integer() else float(f"{float(value):.6g}")


def _text(section: dict[str, Any]) -> str:
    """JSON with one row a line, so that changes can be read."""
    rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in section["rows"])
    head = {key: value for key, value in section.items() if key != "rows"}
    return json.dumps(head, ensure_ascii=False)[:-1] + ', "rows": [\n  ' + rows + "\n]}"
