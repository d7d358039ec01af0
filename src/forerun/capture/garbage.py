"""Whether the garbage collector is running in this thread.

Lifetimes in a graph are those of reference counts, which are the same in every run. Cycles are freed when the
collector happens to run, which depends on everything else in the process, so the deaths it causes are not recorded.
The collector itself is left as it is: it belongs to the whole process.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

_here = threading.local()
_lock = threading.Lock()
_watching = 0


def is_collected_here() -> bool:
    return bool(getattr(_here, "collecting", False))


def _note(phase: str, _info: dict[str, Any]) -> None:
    """The collector calls this in the thread that it runs in."""
    _here.collecting = phase == "start"


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Enables `is_collected_here` inside the block."""
    global _watching
    with _lock:
        if not _watching:
            gc.callbacks.append(_note)
        _watching += 1
    try:
        yield
    finally:
        with _lock:
            _watching -= 1
            if not _watching:
                gc.callbacks.remove(_note)
