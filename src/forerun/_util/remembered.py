"""A cache on disk for results computed from files, valid until one of these files changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from forerun._util.folders import user_cache


def cache_folder() -> Path:
    """$FORERUN_CACHE, or the user's cache folder."""
    chosen = os.environ.get("FORERUN_CACHE")
    return Path(chosen) if chosen else user_cache()


def remembered(name: str, files: Iterable[str | Path], make: Callable[[], Any]) -> Any:
    """The result of `make` as JSON data: read from the cache folder if no file has changed in size or date since. A
    damaged entry is recomputed; a read-only or full disk costs only time."""
    looks = [(str(file), (stat := os.stat(file)).st_size, stat.st_mtime_ns) for file in files]
    signature = hashlib.sha256(repr(sorted(looks)).encode()).hexdigest()
    path = cache_folder() / f"{name}.json"
    try:
        known = json.loads(path.read_bytes())
        if known["signature"] == signature:
            return known["value"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    text = json.dumps({"signature": signature, "value": make()}, default=str)
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        os.replace(part, path)
    except OSError:
        pass
    return json.loads(text)["value"]
