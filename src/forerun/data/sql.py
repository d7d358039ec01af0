"""SQL queries of users: one SELECT over the tables of the store, in a child process with limits.

The connection can read only the tables (`Store.connect`). The child process limits what DuckDB does not: a huge string,
a sleep, a cross join that no interrupt stops.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
import uuid
from dataclasses import dataclass
from typing import Any

import pandas as pd

from forerun._util.limits import Limits, run
from forerun.data import schema
from forerun.data.store import Store
from forerun.errors import ForerunError

MEMORY_MB = 2048
#: Time limit of a condition on the rows of a table, in seconds.
CONDITION_S = 60.0
_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*")


@dataclass(frozen=True)
class Answer:
    """Rows of a query as plain values; `cut`: the result was truncated."""

    columns: list[str]
    numeric: list[bool]
    rows: list[list[Any]]
    cut: bool
    set_aside: list[str]

    def records(self) -> list[dict[str, Any]]:
        """A mapping per row; duplicate column names are numbered."""
        names: list[str] = []
        for column in self.columns:
            times = sum(1 for other in names if other == column or other.startswith(f"{column}_"))
            names.append(column if column not in names else f"{column}_{times}")
        return [dict(zip(names, map(_finite, row), strict=True)) for row in self.rows]


def answer(store: Store, sql: str, *, rows: int, seconds: float) -> Answer:
    """Runs one SELECT for at most `seconds` and returns at most `rows` rows."""
    place = [str(store.folder), store.shipped]
    return Answer(**_limited(_answer, sql, place, rows, seconds=seconds))


def row_ids(store: Store, table: str, where: str) -> list[str]:
    """The ids of the rows that meet a user's condition, which is an SQL expression: "mode = 'training'"."""
    if table not in schema.TABLES:
        raise ForerunError(f"there is no table {table!r}; choose from {', '.join(schema.TABLES)}")
    # On a separate line, since the condition may end in a comment.
    sql = f"select row_id from {table} where (\n{where}\n)"
    ids = _limited(_ids, sql, [str(store.folder), store.shipped], seconds=CONDITION_S)
    return [str(one) for one in ids]


def matching(store: Store, table: str, where: str) -> pd.DataFrame:
    """The rows of a table that meet a user's condition."""
    wanted = set(row_ids(store, table, where))
    columns = ", ".join(f'"{name}"' for name in schema.TABLES[table].names)
    rows = store.query(f"select {columns} from {table}")
    return rows[rows["row_id"].isin(wanted)].reset_index(drop=True)


def _limited(work: Any, *arguments: Any, seconds: float) -> Any:
    # The limit is on processor time of all threads, so it is multiplied for queries on several cores.
    limits = Limits(cpu_s=8 * seconds, wall_s=seconds, memory_mb=MEMORY_MB)
    try:
        return run(work, *arguments, what="the query", limits=limits)
    except ForerunError as error:
        if "takes too long" in str(error):
            raise ForerunError(f"the query took longer than {seconds:g} s and was stopped") from None
        raise


def _answer(sql: str, place: list[Any], most: int) -> dict[str, Any]:
    store = Store(place[0], shipped=place[1])

    def take(link: Any, text: str) -> dict[str, Any]:
        done = link.execute(text)
        about = done.description
        rows = done.fetchmany(most + 1)
        return {
            "columns": [str(column[0]) for column in about],
            "numeric": [bool(_NUMBER.fullmatch(str(column[1]))) for column in about],
            "rows": [[plain(value) for value in row] for row in rows[:most]],
            "cut": len(rows) > most,
        }

    return {**store.run(sql, take), "set_aside": [str(path) for path in store.set_aside]}


def _ids(sql: str, place: list[Any]) -> list[str]:
    store = Store(place[0], shipped=place[1])
    return store.run(sql, lambda link, text: [row[0] for row in link.execute(text).fetchall()])


def plain(value: Any) -> Any:
    """A DuckDB value for JSON: bytes in hexadecimal, dates in ISO 8601, nested values recursively."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(one) for one in value]
    if isinstance(value, uuid.UUID):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _finite(value: Any) -> Any:
    """NaN and infinities, which JSON lacks, as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list) else value
