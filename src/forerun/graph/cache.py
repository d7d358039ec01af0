"""Captured graphs on disk: one file per content key, written whole or not at all, rebuilt when damaged."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.validate import validate

#: Raise when capture, folding or the IR change, so that graphs of older versions are not taken for new ones.
VERSION = 15
#: What reading a file raises that holds something other than graphs.
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, MemoryError)


def folder() -> Path:
    """Where graphs are kept: $FORERUN_CACHE, or the user's cache folder."""
    chosen = os.environ.get("FORERUN_CACHE")
    if not chosen:
        from platformdirs import user_cache_dir

        chosen = user_cache_dir("forerun")
    return Path(chosen) / f"graphs-v{VERSION}"


def digest(key: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()


def read(key: str) -> list[Graph]:
    """The graphs kept under a key; none when there are none, or when the file is damaged (it is then removed)."""
    path = folder() / f"{key}.json.z"
    try:
        return list(_parsed(path, path.stat().st_mtime_ns))
    except OSError:
        return []
    except (zlib.error, ForerunError, *_DAMAGED):
        path.unlink(missing_ok=True)
        return []


@functools.lru_cache(maxsize=24)
def _parsed(path: Path, written: int) -> tuple[Graph, ...]:
    """The graphs of a file, remembered for the next batch size of the same model; graphs are never changed in place."""
    graphs = tuple(Graph.from_dict(d) for d in json.loads(zlib.decompress(path.read_bytes())))  # zlib has a checksum
    for graph in graphs:
        validate(graph)  # a file of another version, or of somebody else, is not taken for ours
    return graphs


def write(key: str, graphs: list[Graph]) -> None:
    """Keeps graphs under a key. Readers and other writers see the old file or the new one, never a part."""
    blob = zlib.compress(json.dumps([g.to_dict() for g in graphs]).encode(), level=1)
    with contextlib.suppress(OSError):  # a read-only or full disk costs speed, not the answer
        folder().mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder(), suffix=".part")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(blob)
            os.replace(name, folder() / f"{key}.json.z")
        except OSError:
            Path(name).unlink(missing_ok=True)


def clear() -> int:
    """Removes every kept graph; returns how many there were."""
    files = list(folder().glob("*.json.z")) if folder().is_dir() else []
    for f in files:
        f.unlink(missing_ok=True)
    return len(files)
