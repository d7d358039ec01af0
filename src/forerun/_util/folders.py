"""Where a user's data and caches lie on this platform: XDG folders, Application Support, AppData."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_data() -> Path:
    """The folder for data."""
    return _folder("LOCALAPPDATA", "Library/Application Support", "XDG_DATA_HOME", ".local/share")


def user_cache() -> Path:
    """The folder for caches."""
    path = _folder("LOCALAPPDATA", "Library/Caches", "XDG_CACHE_HOME", ".cache")
    return path / "Cache" if sys.platform == "win32" else path


def _folder(windows: str, mac: str, variable: str, default: str) -> Path:
    home = Path.home()
    if sys.platform == "win32":
        # Twice, as other programs do there: the author's folder, then the program's.
        return Path(os.environ.get(windows) or home / "AppData" / "Local") / "forerun" / "forerun"
    if sys.platform == "darwin":
        return home / mac / "forerun"
    given = os.environ.get(variable, "").strip()
    return (Path(given) if given else home / default) / "forerun"
