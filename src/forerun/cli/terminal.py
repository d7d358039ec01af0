"""What every command does with a terminal: its width, a spinner, printing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def waiting(what: str, quiet: bool = False) -> Iterator[None]:
    """A spinner on the terminal while something takes longer than a blink; silent when output goes elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …"):
        yield


def terminal_width() -> int:
    """Columns there are: the terminal's, or plenty when output goes to a file."""
    return shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() or "COLUMNS" in os.environ else 160


def show(*things: Any) -> None:
    from rich.console import Console

    console = Console(width=terminal_width(), highlight=False)
    for thing in things:
        console.print(thing)
