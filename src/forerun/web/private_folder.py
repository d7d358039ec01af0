"""The private folder of one running server; folders of killed servers are deleted."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_PREFIX = "forerun-serve-"


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A fresh folder while the block runs. A lock tells other servers that it is in use."""
    delete_abandoned(Path(tempfile.gettempdir()))
    created = Path(tempfile.mkdtemp(prefix="forerun-new-"))  # renamed once it is locked
    folder = created.with_name(created.name.replace("forerun-new-", _PREFIX))
    try:
        with _lock_file(created).open("wb") as lock:
            _take(lock)
            created.rename(folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def delete_abandoned(parent: Path) -> int:
    """Deletes this user's folders of servers that no longer run; returns how many."""
    deleted = 0
    if not hasattr(os, "getuid"):  # Windows: the owner of a folder, and whether its server runs, are unknown
        return deleted
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid():
                continue
            with _lock_file(folder).open("rb+") as lock:
                if _take(lock):
                    shutil.rmtree(folder, ignore_errors=True)
                    deleted += 1
    return deleted


def _lock_file(folder: Path) -> Path:
    return folder / "lock"


def _take(lock: IO[bytes]) -> bool:
    """Whether the lock was acquired. It is released with its process, however that ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
