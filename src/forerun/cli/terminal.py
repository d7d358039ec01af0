"""Terminal output shared by all commands: width, spinner, verbatim printing of user text."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from forerun._util.readable import visible
from forerun.cli.progress import EVERY_S, duration

#: Seconds after which a wait is explained if there is no terminal; $FORERUN_PATIENCE_S overrides it.
PATIENCE_S = 2.0
#: ASCII replacements of the symbols in our tables.
_PLAIN = {
    "…": "...", "µ": "u", "×": "x", "█": "#", "–": "-", "—": "-", "²": "2", "³": "3", "°": " deg", "’": "'",
    "•": "*", "─": "-", "━": "-", "│": "|", "┃": "|",
}  # fmt: skip


def print_what_can_be_printed() -> None:
    """Makes printing never fail: characters that the encoding lacks are replaced, a closed output is ignored."""
    codecs.register_error("forerun", _replaced)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started the command
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="forerun")


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    text = "".join(_PLAIN.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in missing)
    return text, error.end


def plain_text(value: Any) -> Any:
    """Text that rich prints verbatim, without interpreting [markup] or :emoji:."""
    from rich.text import Text

    return Text(visible(str(value)))


@contextmanager
def waiting(what: str, quiet: bool = False) -> Iterator[None]:
    """A spinner while something runs; without a terminal, a line after two seconds, and the time at the end."""
    if quiet:
        yield
        return
    if not sys.stderr.isatty():
        with _lines(visible(what), _patience_s()):
            yield
        return
    from rich.console import Console

    with Console(stderr=True).status(plain_text(f"{what} …")):
        yield


def _patience_s() -> float:
    with suppress(ValueError):
        return float(os.environ.get("FORERUN_PATIENCE_S", PATIENCE_S))
    return PATIENCE_S


@contextmanager
def _lines(what: str, patience_s: float) -> Iterator[None]:
    """Prints what takes longer than `patience_s`, again every EVERY_S, and the time it took."""
    began, over = time.monotonic(), threading.Event()

    def report() -> None:
        wait, line = patience_s, f"{what} …"
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
    if took > patience_s:
        print(f"{what}: {duration(took)}", file=sys.stderr, flush=True)


def terminal_width() -> int:
    """The terminal's width in columns, or 160 if output goes to a file."""
    return shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() or "COLUMNS" in os.environ else 160


def show(*things: Any) -> None:
    """Prints blocks and rich objects at the terminal's width. Strings in them are printed verbatim; a line that must
    not be wrapped, such as a command to paste, stays one line."""
    from rich.console import Console

    console = Console(width=terminal_width(), highlight=False, markup=False, emoji=False)
    for thing in things:
        console.print(thing, soft_wrap=getattr(thing, "wrap", True) is False)
