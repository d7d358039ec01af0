"""Files that omit columns which follow from others, completed: done once, and kept in the cache folder.

Hashes of 80,000 rows take seconds to compute, and a fraction of one to read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from forerun._util.remembered import cache_folder
from forerun._util.source_hash import source_hash
from forerun.data import schema


def completed(file: Path, write: Callable[[Path], object]) -> Path:
    """The kept copy of a file, which `write` makes where there is none for this file and this code; the file itself
    where nothing can be kept. Copies of what the file was before are removed."""
    about = file.stat()
    place = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    state = hashlib.sha256(f"{about.st_size} {about.st_mtime_ns} {_code()}".encode()).hexdigest()[:16]
    copy = cache_folder() / "store" / f"{place}-{state}" / file.name
    if copy.is_file():
        return copy
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        write(copy)
    except OSError:
        return file
    for other in copy.parent.parent.glob(f"{place}-*"):
        if other != copy.parent:
            with contextlib.suppress(OSError):
                shutil.rmtree(other)
    return copy


@functools.cache
def _code() -> str:
    """A hash of the module that says what follows from what."""
    path = Path(schema.__file__)
    return source_hash([path], path.parent)
