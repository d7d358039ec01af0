"""A file of requests as they arrived: CSV or JSON lines with arrival seconds, input tokens and output tokens."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from forerun._util.readable import short
from forerun.errors import ForerunError
from forerun.serving.requests import LONGEST, Requests

#: Columns of a trace, with the other names that they go by in published ones.
COLUMNS = {
    "arrival_s": ("arrival", "arrived_at", "arrival_time", "timestamp", "time"),
    "input_tokens": ("input", "num_prefill_tokens", "prompt_tokens", "request tokens", "input_length"),
    "output_tokens": ("output", "num_decode_tokens", "generated_tokens", "response tokens", "output_length"),
    "prefix_id": ("prefix",),
    "prefix_tokens": ("prefix_length",),
}
#: Columns that a row may leave out.
_OPTIONAL = ("prefix_id", "prefix_tokens")
#: Rows of the longest trace that is read.
MOST_ROWS = 1_000_000


def read_trace(path: str | Path) -> Requests:
    """The requests of a trace file, sorted by arrival. A bad row is refused in one sentence with its line."""
    if not isinstance(path, (str, os.PathLike)):
        raise ForerunError(f"a trace is a file or requests, got {short(path)}")
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ForerunError(f"there is no trace {path}") from None
    except (OSError, ValueError) as error:
        why = "no UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise ForerunError(f"the trace {short(str(path))} cannot be read: {why}") from None
    return parse_trace(text, path.name)


def parse_trace(text: str, name: str = "trace") -> Requests:
    """The requests of a trace's text, which is JSON lines where it starts with a brace."""
    rows = _json_rows(text, name) if text.lstrip().startswith("{") else _csv_rows(text, name)
    found: list[tuple[float, int, int, int, int]] = []
    prefixes: dict[str, int] = {}
    for line, row in rows:
        if len(found) == MOST_ROWS:
            raise ForerunError(f"{name} has more than {MOST_ROWS:,} requests: give a part of it")
        found.append(_request(row, f"{name}, line {line}", prefixes))
    if not found:
        raise ForerunError(f"{name} has no requests")
    found.sort(key=lambda request: request[0])
    when, *counts = zip(*found, strict=True)
    inputs, outputs, shared, shared_tokens = (np.array(column, dtype=np.int64) for column in counts)
    return Requests(np.array(when) - when[0], inputs, outputs, shared, shared_tokens)


def _request(row: Mapping[str, Any], where: str, prefixes: dict[str, int]) -> tuple[float, int, int, int, int]:
    arrival = _number(row, "arrival_s", where)
    if arrival < 0:
        raise ForerunError(f"{where}: a request cannot arrive at a negative time, {arrival:g} s")
    inputs, outputs = (_tokens(row, column, where) for column in ("input_tokens", "output_tokens"))
    shared, tokens = row.get("prefix_id"), 0
    if shared in (None, ""):
        return arrival, inputs, outputs, -1, 0
    tokens = _tokens(row, "prefix_tokens", where) if row.get("prefix_tokens") not in (None, "") else inputs
    if tokens > inputs:
        raise ForerunError(f"{where}: a prefix of {tokens:,} tokens is longer than its prompt of {inputs:,}")
    return arrival, inputs, outputs, prefixes.setdefault(str(shared), len(prefixes)), tokens


def _number(row: Mapping[str, Any], column: str, where: str) -> float:
    given = row[column]
    try:
        value = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ForerunError(f"{where}: {column} must be a number, got {short(given)}")
    return value


def _tokens(row: Mapping[str, Any], column: str, where: str) -> int:
    value = _number(row, column, where)
    if value != int(value) or not 1 <= value <= LONGEST:
        raise ForerunError(f"{where}: {column} must be a whole number from 1 to {LONGEST:,}, got {short(row[column])}")
    return int(value)


def _csv_rows(text: str, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows by the columns' names; without a heading the columns are in their order."""
    reader = csv.reader(text.splitlines())
    heading: list[str] | None = None
    for cells in _cells(reader, name):
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if heading is None:
            named = [_column(cell) for cell in cells]
            if any(named):
                heading = [column or cell for column, cell in zip(named, cells, strict=True)]
                _check_heading(heading, name)
                continue
            heading = list(COLUMNS)
        row = dict(zip(heading, cells, strict=False))
        _check_row(row, f"{name}, line {reader.line_num}")
        yield reader.line_num, row


def _cells(reader: Any, name: str) -> Iterator[list[str]]:
    """The rows of a CSV reader; what it cannot take apart is refused in one sentence."""
    try:
        yield from reader
    except csv.Error as error:
        raise ForerunError(f"{name}, line {reader.line_num}: this is no CSV: {error}") from None


def _json_rows(text: str, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for at, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise ForerunError(f"{name}, line {at}: this is no JSON object")
        row = {_column(key) or key: value for key, value in row.items()}
        _check_row(row, f"{name}, line {at}")
        yield at, row


def _column(word: str) -> str | None:
    low = word.strip().lower()
    return next((column for column, others in COLUMNS.items() if low == column or low in others), None)


def _check_heading(heading: list[str], name: str) -> None:
    missing = [column for column in COLUMNS if column not in (*heading, *_OPTIONAL)]
    if missing:
        raise ForerunError(
            f"{name} has no column {missing[0]}: a trace has {', '.join(COLUMNS)} (the last two optional)"
        )


def _check_row(row: Mapping[str, Any], where: str) -> None:
    for column in COLUMNS:
        if column not in _OPTIONAL and column not in row:
            raise ForerunError(f"{where}: {column} is missing")
