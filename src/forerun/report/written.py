"""Pages written to files: checked before anything is computed, and replaced whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from forerun._util.readable import short
from forerun.errors import ArgumentError, ForerunError


def checked(output: str | Path, usual: str = "report.html") -> Path:
    """The path to write to, once it is clear that it can be written."""
    if not isinstance(output, (str, Path)):
        raise ArgumentError("{} is the name of a file, got {got}", "output", got=short(output))
    path = Path(output)
    if path.is_dir():
        raise ForerunError(f"{path} is a folder; give the name of a file, such as {path / usual}")
    if not path.parent.is_dir():
        raise ForerunError(f"there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise ForerunError(f"{path} is not a file that can be replaced")
    if not os.access(path.parent, os.W_OK):
        raise ForerunError(f"{path} cannot be written: no permission for the folder {path.parent}")
    return path


def write(path: Path, html: str) -> None:
    """Replaces the page atomically; a reader sees the old one or the new one."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(html)
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
            os.replace(name, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as e:
        raise ForerunError(f"{path} cannot be written: {e.strerror or e}") from e
