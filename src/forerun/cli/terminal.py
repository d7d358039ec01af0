"""Terminal output that all commands share: width, spinner, printing."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forerun.cli.progress import EVERY_S, duration

#: Seconds after which a wait is explained.
PATIENCE_S = 2.0


@contextmanager
def waiting(what: str, quiet: bool = False) -> Iterator[None]:
    """A spinner while something runs; a line after two seconds, and its time, where there is no terminal."""
    if quiet:
        yield
        return
    if not sys.stderr.isatty():
        with _lines(what):
            yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …"):
        yield


@contextmanager
def _lines(what: str) -> Iterator[None]:
    """Says what takes longer than PATIENCE_S, again every EVERY_S, and how long it took."""
    began, over = time.monotonic(), threading.Event()

    def report() -> None:
        wait, line = PATIENCE_S, f"{what} …"
        while not over.wait(wait):
            print(line, file=sys.stderr, flush=True)
            wait, line = EVERY_S, f"{what} … {duration(time.monotonic() - began + EVERY_S)}"

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    took = time.monotonic() - began
    if took > PATIENCE_S:
        print(f"{what}: {duration(took)}", file=sys.stderr, flush=True)


def terminal_width() -> int:
    """The terminal's columns, or 160 when output goes to a file."""
    return shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() or "COLUMNS" in os.environ else 160


def show(*things: Any) -> None:
    """Prints rich objects at the terminal's width."""
    from rich.console import Console

    console = Console(width=terminal_width(), highlight=False)
    for thing in things:
        console.print(thing)
