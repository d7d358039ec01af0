"""Splits an answer into pages of bounded size: nothing is lost or repeated, and every page is valid JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

_NOTHING = object()


def pages(answer: dict[str, Any], most_bytes: int) -> list[dict[str, Any]]:
    """The answer as one page or several, in its order. A list continues where the previous page ended; an item of
    a list is split only where it alone is longer than a page."""
    listed = []
    rest: Any = answer
    while rest is not _NOTHING:
        page, rest = _cut(rest, most_bytes, most_bytes)
        if page is _NOTHING:
            raise ValueError(f"no field of the answer fits into {most_bytes} bytes")
        listed.append(page)
    return listed


def _cut(tree: Any, room: int, most: int) -> tuple[Any, Any]:
    """The part of a tree that fits into the room, and the rest; either may be nothing. `most`: the room of an empty
    page."""
    if _size(tree) <= room:
        return tree, _NOTHING
    if isinstance(tree, str):
        return _cut_words(tree, room)
    if not isinstance(tree, (dict, list)):
        return _NOTHING, tree
    left = room - 2  # the brackets
    most -= 2
    taken: list[tuple[Any, Any]] = []
    items = list(_items(tree))
    for at, (key, value) in enumerate(items):
        name = 1 + (_size(key) + 1 if isinstance(tree, dict) else 0)  # with the comma and the colon
        if name + _size(value) <= left:
            taken.append((key, value))
            left -= name + _size(value)
            continue
        # The elements of a list stay whole where they can.
        may_cut = name + _size(value) > most or (isinstance(tree, dict) and isinstance(value, list))
        part, rest = _cut(value, left - name, most - name) if may_cut else (_NOTHING, value)
        if part is not _NOTHING:
            taken.append((key, part))
        return _like(tree, taken), _like(tree, [(key, rest), *items[at + 1 :]])
    return tree, _NOTHING


def _cut_words(words: str, room: int) -> tuple[Any, Any]:
    length = (room - 2) // 6  # a character takes at most six bytes of JSON
    return (words[:length], words[length:]) if length > 0 else (_NOTHING, words)


def _items(tree: Any) -> Iterator[tuple[Any, Any]]:
    return iter(tree.items()) if isinstance(tree, dict) else enumerate(tree)


def _like(tree: Any, items: list[tuple[Any, Any]]) -> Any:
    """Items in the shape of the tree; nothing where there are none."""
    if not items:
        return _NOTHING
    return dict(items) if isinstance(tree, dict) else [value for _, value in items]


def _size(tree: Any) -> int:
    return len(orjson.dumps(tree))
