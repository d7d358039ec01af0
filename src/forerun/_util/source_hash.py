"""A hash of Python source by its syntax tree, so that comments, docstrings and formatting do not change it."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from forerun._util.remembered import remembered

#: The hash is the same under every Python that runs the package: fields that only some versions have are omitted.
_NOT_CODE = frozenset({"type_comment", "type_ignores", "type_params", "kind"})


def source_hash(files: Iterable[Path], root: Path) -> str:
    """The hash of modules by their syntax trees and paths below `root` (elsewhere, by their names)."""
    digest = hashlib.sha256()
    for file in sorted(files):
        place = file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name
        digest.update(f"{place} {_of_file(file, file.stat().st_mtime_ns)}\n".encode())
    return digest.hexdigest()[:16]


def remembered_source_hash(files: Sequence[Path], root: Path, name: str) -> str:
    """`source_hash`, cached under a name: parsing a hundred modules takes a second, checking their dates a
    millisecond."""
    return str(remembered(name, files, lambda: source_hash(files, root)))


def modules(*places: Path) -> list[Path]:
    """The Python files in folders, at any depth; a place that is a file is one itself."""
    files = [str(place) for place in places if place.is_file()]
    for place in places:
        for folder, _, names in os.walk(place):
            files += [f"{folder}{os.sep}{name}" for name in names if name.endswith(".py")]
    return sorted(map(Path, files))


def defining_file(kind: type) -> Path | None:
    """The file that defines a class; None where there is none, as in a notebook."""
    try:
        path = Path(inspect.getfile(kind))
    except (TypeError, OSError):
        return None
    return path if path.is_file() else None


@functools.lru_cache(maxsize=1024)
def _of_file(file: Path, written: int) -> str:
    """The hash of a module's syntax tree; predictors share most of their modules."""
    words: list[str] = []
    _write(ast.parse(file.read_bytes()), words)
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def _write(node: ast.AST, words: list[str]) -> None:
    """Appends a tree in words: what each node is, and those of its fields that are set."""
    words.append(type(node).__name__)
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or value == [] or name in _NOT_CODE:
            continue
        words.append(name)
        for one in value if isinstance(value, list) else (value,):
            if not isinstance(one, ast.AST):
                words.append(repr(one))
            elif not _is_text(one):
                _write(one, words)
    words.append(".")


def _is_text(node: ast.AST) -> bool:
    """A docstring, or another string that stands by itself."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
