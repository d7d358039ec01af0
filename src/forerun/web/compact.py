"""The size of an answer to an assistant: at most 8 kB of JSON, the rest on request. The same rules for every tool.

`detail="brief"`, the default, omits rarely needed fields, unknown values and insignificant digits.
`detail="full"` is the whole answer, as the command line prints it with --json; `fields` picks from it. What is still
too long is paged. A partial answer says so in `more`, with how to get the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from forerun.errors import ForerunError, did_you_mean
from forerun.web.paging import pages

#: The most bytes of an answer.
MOST_BYTES = 8_000
_DIGITS = 6
_HOW = 'page=N is another page, detail="full" the whole answer, fields=["a", "b.c"] only these fields'


@dataclass(frozen=True)
class Brief:
    """The fields of a tool's brief answer. Paths are dotted names; they apply to each item of a list."""

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    first: Mapping[str, int] = field(default_factory=dict)  # lists, and how many of their items are shown


def compact(answer: Any, brief: Brief | None, *, detail: str, fields: Sequence[str] | None, page: int) -> str:
    """An answer, or a page of it, as JSON."""
    full = orjson.loads(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY))
    body = full if isinstance(full, dict) else {"result": full}
    left_out: list[str] = []
    if fields:
        body = picked(body, fields)
    elif detail == "brief" and brief is not None:
        body, left_out = _briefly(body, brief)
    more: dict[str, Any] = {"left_out": left_out} if left_out else {}
    # The size of `more` with the longest page number and count.
    room = MOST_BYTES - len(orjson.dumps({"more": {**more, "page": 10**6, "pages": 10**6, "ask": _HOW}}))
    parts = pages(body, room)
    if page > len(parts):
        raise ForerunError(f"there is no page {page}: the answer has {len(parts)}")
    if len(parts) > 1:
        more |= {"page": page, "pages": len(parts)}
    shown = parts[page - 1] | ({"more": {**more, "ask": _HOW}} if more else {})
    return orjson.dumps(shown).decode()


def picked(body: dict[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The parts of an answer at the paths, in their original structure."""
    result: dict[str, Any] = {}
    for path in paths:
        part = _part(body, path.split("."))
        if part is None:
            known = dict.fromkeys(_paths(body))
            hint = did_you_mean(path, known) or f" It has {', '.join(body)}."
            raise ForerunError(f"the answer has no field {path!r}.{hint}")
        result = _joined(result, part)
    return result


def _part(tree: Any, path: list[str]) -> Any:
    """The tree with only the value at the path; None where there is none."""
    if not path:
        return tree
    if isinstance(tree, list):
        parts = [_part(item, path) for item in tree]
        return None if all(item is None for item in parts) else [{} if item is None else item for item in parts]
    if not isinstance(tree, dict) or path[0] not in tree:
        return None
    if len(path) == 1:
        return {path[0]: tree[path[0]]}
    below = _part(tree[path[0]], path[1:])
    return None if below is None else {path[0]: below}


def _joined(first: Any, second: Any) -> Any:
    """Two parts of the same tree merged."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: _joined(first[key], second[key]) if key in first and key in second else {**first, **second}[key]
                for key in {**first, **second}}  # fmt: skip
    if isinstance(first, list) and isinstance(second, list):
        return [_joined(a, b) for a, b in zip(first, second, strict=True)]
    return second


def _paths(tree: Any, before: str = "") -> Iterator[str]:
    for item in tree if isinstance(tree, list) else [tree]:
        for key, value in item.items() if isinstance(item, dict) else ():
            yield f"{before}{key}"
            yield from _paths(value, f"{before}{key}.")


def _briefly(body: dict[str, Any], brief: Brief) -> tuple[dict[str, Any], list[str]]:
    """The brief form, and what it omits."""
    left_out = []
    short = picked(body, [path for path in brief.only if _part(body, path.split("."))]) if brief.only else body
    if len(short) < len(body) or (brief.only and short != body):
        left_out.append("other fields")
    dropped = [path for path in brief.without if _part(short, path.split(".")) is not None]
    for path in dropped:
        short = _dropped(short, path.split("."))
    left_out += _by_parent(dropped)
    for name, most in brief.first.items():
        had = len(short.get(name) or ())
        if had > most:
            short = {**short, name: short[name][:most]}
            left_out.append(f"{name}: {had - most:,} of {had:,}")
    return _plain(short), left_out


def _by_parent(paths: Sequence[str]) -> list[str]:
    """Paths in short: several of one parent are `parent.*`."""
    parents = [path.rpartition(".")[0] for path in paths]
    several = {parent for parent in parents if parent and parents.count(parent) > 1}
    words = (f"{p}.*" if p in several else path for p, path in zip(parents, paths, strict=True))
    return list(dict.fromkeys(words))


def _dropped(tree: Any, path: list[str]) -> Any:
    if isinstance(tree, list):
        return [_dropped(item, path) for item in tree]
    if not isinstance(tree, dict) or path[0] not in tree:
        return tree
    if len(path) == 1:
        return {key: value for key, value in tree.items() if key != path[0]}
    return {**tree, path[0]: _dropped(tree[path[0]], path[1:])}


def _plain(tree: Any) -> Any:
    """Without unknown values, and numbers with significant digits only."""
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    return float(f"{tree:.{_DIGITS}g}") if isinstance(tree, float) else tree
