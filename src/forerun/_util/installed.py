"""Installed packages: versions, and entry points in the groups of forerun. Metadata is reread only if it changed."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from forerun._util.remembered import remembered

_METADATA = (".dist-info", ".egg-info")


@dataclass(frozen=True)
class EntryPoint:
    """One object that a package registers: `value` is 'module:attribute'."""

    name: str
    value: str
    group: str

    def load(self) -> Any:
        """The object itself."""
        module, _, path = self.value.partition(" ")[0].partition(":")
        value: Any = import_module(module)
        for part in filter(None, path.split(".")):
            value = getattr(value, part)
        return value


def entry_points(group: str) -> list[EntryPoint]:
    """All entry points of a group."""
    listed = [file for _, file in _metadata("entry_points.txt")]
    points = remembered(f"entry_points/{group}", listed, lambda: _installed(group))
    return [EntryPoint(name, value, group) for name, value in points]


def version(name: str) -> str:
    """The version of an installed package. Raises ModuleNotFoundError if it is not installed."""
    ours = _plain(name)
    files = [file for _, file in _metadata("METADATA", ours)]
    return str(remembered(f"versions/{ours}", files, lambda: _version(name))) if files else _version(name)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _metadata(file: str, wanted: str = "") -> Iterator[tuple[str, str]]:
    """The packages with this metadata file, or the one that is wanted, by name, and its path."""
    for place in map(os.path.abspath, sys.path):
        try:
            changed = os.stat(place).st_mtime_ns
        except OSError:
            continue
        for name, folder in _folders(place, changed):
            if wanted in ("", name) and os.path.isfile(path := f"{folder}{os.sep}{file}"):
                yield name, path


@functools.lru_cache(maxsize=32)
def _folders(place: str, changed: int) -> tuple[tuple[str, str], ...]:
    """The folders of metadata in a place, by package, as of its last change."""
    if not os.path.isdir(place):
        return ()
    with os.scandir(place) as entries:
        found = [(entry.name, entry.path) for entry in entries if entry.name.endswith(_METADATA)]
    return tuple((_plain(name.removesuffix(".egg-info").partition("-")[0]), path) for name, path in found)


def _version(name: str) -> str:
    from importlib.metadata import version as installed

    return installed(name)


def _installed(group: str) -> list[tuple[str, str]]:
    from importlib.metadata import entry_points as installed

    return [(point.name, point.value) for point in installed(group=group)]
