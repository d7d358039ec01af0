"""Progress of long work: a bar on a terminal, else an occasional line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds between two lines if there is no terminal.
EVERY_S = 30.0


class Lines:
    """Prints progress and the remaining time, at most every EVERY_S seconds and at the end."""

    def __init__(self, what: str, every_s: float = EVERY_S) -> None:
        self.what, self.every_s = what, every_s
        self.began = time.monotonic()
        self.last = self.began

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - self.last < self.every_s:
            return
        self.last = now
        took = now - self.began
        left = took * (total - done) / done if done else float("nan")
        rest = f", about {duration(left)} left" if 0 < done < total else ""
        print(f"{self.what}: {done:,} of {total:,} after {duration(took)}{rest}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """45 s, 12 min, 1.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def progress(what: str, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """A callable for (done, total); None if `quiet`."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield Lines(what)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False, emoji=False)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def tracked(what: str, quiet: bool = False) -> Callable[[Iterable[Any], int], Iterable[Any]]:
    """Wraps an iterable of known length in `progress`."""

    def wrap(items: Iterable[Any], total: int) -> Iterator[Any]:
        with progress(what, quiet) as report:
            for number, item in enumerate(items):
                yield item
                if report:
                    report(number + 1, total)

    return wrap
