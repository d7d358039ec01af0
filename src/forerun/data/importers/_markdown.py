"""Parser of tables in Markdown documents, with their headings."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pandas as pd


def tables(text: str) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """(headings from outermost to innermost, table of text) for every table; empty cells and n/a are null."""
    headings: dict[int, str] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if heading := re.match(r"(#+)\s+(.*\S)", line):
            depth = len(heading[1])
            headings = {at: title for at, title in headings.items() if at < depth} | {depth: heading[2]}
        elif _is_rule(line) and number and "|" in lines[number - 1]:
            rows = []
            for below in lines[number + 1 :]:
                if not below.lstrip().startswith("|"):
                    break
                rows.append(_cells(below))
            columns = _cells(lines[number - 1])
            frame = pd.DataFrame([row[: len(columns)] for row in rows], columns=columns, dtype=object)
            yield [headings[at] for at in sorted(headings)], frame.replace(["", "n/a", "-"], None)


def _is_rule(line: str) -> bool:
    """Whether this is the line between a table's head and its rows: |---|:--:|."""
    return bool(re.fullmatch(r"\s*\|?(\s*:?-{2,}:?\s*\|)+\s*(:?-{2,}:?)?\s*", line))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
