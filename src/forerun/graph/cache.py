"""Captured graphs on disk: one file per content key, written atomically, rebuilt if damaged.

The key holds a hash of the code that captures (`made_by`), so graphs of other code are never taken for its own. When
all files together grow beyond a limit, those that were not used for longest go.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import shutil
import time
import zlib
from pathlib import Path
from typing import Any

from forerun._util.remembered import cache_folder
from forerun._util.source_hash import modules, remembered_source_hash
from forerun.errors import ForerunError
from forerun.graph.ir import Graph
from forerun.graph.validate import validate

#: Where the code lies that makes graphs of models.
CAPTURING = ("graph", "capture", "frontends", "networks", "runtimes")
#: Megabytes that all graphs may take, unless $FORERUN_CACHE_MB says otherwise.
LIMIT_MB = 2048.0
#: A file that is read counts as used on that day.
_DAY_S = 86_400.0
#: What reading a file raises that holds something other than graphs.
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, MemoryError)


def folder() -> Path:
    """Where graphs are kept: $FORERUN_CACHE, or the user's cache folder."""
    return cache_folder() / "graphs"


@functools.cache
def made_by() -> str:
    """A hash of the code that makes graphs of models: the packages from frontend to graph, and the workload. Versions
    of libraries are in the keys of the frontends that use them."""
    package = Path(__file__).parents[1]
    files = modules(*(package / room for room in CAPTURING), package / "workload.py")
    return remembered_source_hash(files, package, "capture_code")


def digest(key: dict[str, Any]) -> str:
    """The name of an entry, from the request and the code that captures."""
    return hashlib.sha256(json.dumps([made_by(), key], sort_keys=True, default=str).encode()).hexdigest()


def read(key: str) -> list[Graph]:
    """The graphs stored under a key; none if there are none, or if the file is damaged (it is then removed)."""
    path = folder() / f"{key}.json.z"
    try:
        used = path.stat().st_mtime_ns
        if time.time() - used / 1e9 > _DAY_S:
            with contextlib.suppress(OSError):
                os.utime(path)
        return list(_parsed(path, used))
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
    """Stores graphs under a key. Readers and other writers see the old file or the new one, never a part."""
    import tempfile  # which reading does not need

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
        _forget_the_oldest()


def _forget_the_oldest() -> None:
    """Removes the files that were not used for longest while all of them take more than they may."""
    for old in folder().parent.glob("graphs-v*"):  # of versions that numbered their graphs by hand
        shutil.rmtree(old, ignore_errors=True)
    with os.scandir(folder()) as entries:
        files = [(stat.st_mtime_ns, stat.st_size, e.path) for e in entries if (stat := e.stat())]
    over = sum(size for _, size, _ in files) - limit_mb() * 2**20
    for _, size, path in sorted(files):
        if over <= 0:
            return
        Path(path).unlink(missing_ok=True)
        over -= size


def limit_mb() -> float:
    """How many megabytes graphs may take; a ForerunError where $FORERUN_CACHE_MB is not a number."""
    text = os.environ.get("FORERUN_CACHE_MB")
    if not text:
        return LIMIT_MB
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise ForerunError(f"FORERUN_CACHE_MB must be a number of megabytes above 0, got {text!r}")
    return limit


def clear() -> int:
    """Removes every kept graph; returns how many there were."""
    files = list(folder().glob("*.json.z")) if folder().is_dir() else []
    for f in files:
        f.unlink(missing_ok=True)
    return len(files)
