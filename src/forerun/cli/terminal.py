"""Terminal output that all commands share: width, spinner, printing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def waiting(what: str, quiet: bool = False) -> Iterator[None]:
    """A spinner while something runs; silent when standard error is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …"):
        yield


def terminal_width() -> int:
    """The terminal's columns, or 160 when output goes to a file."""
    return shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() or "COLUMNS" in os.environ else 160


def show(*things: Any) -> None:
    """Prints rich objects at the terminal's width."""
    from rich.console import Console

    console = Console(width=terminal_width(), highlight=False)
    for thing in things:
        console.print(thing)
