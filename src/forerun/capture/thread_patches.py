"""Replaces functions of PyTorch for one thread, while others keep the original.

A function that a library looks up by name can only be patched for the whole process. The patch checks which thread
calls: one inside the patch gets the replacement, every other one the original. The first thread that enters installs
it, and the last one that leaves removes it, unless other code has patched it meanwhile.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

_CHANGING = threading.Lock()
_FOUND = "_forerun_found"


class ThreadPatch:
    """`owner.name` while a thread is inside: `replacement(original, *args)` for that thread, `original(*args)` for
    others.

    Where `unless(original)` holds, as for a function that the user has patched, nothing is replaced.
    """

    def __init__(
        self, owner: Any, name: str, replacement: Callable[..., Any], unless: Callable[[Any], bool] | None = None
    ) -> None:
        self.owner, self.name, self.replacement, self.unless = owner, name, replacement, unless
        self._inside = 0  # threads inside, each as often as it has entered
        self._raw: Any = None  # the original, as it is in the class or module
        self._placed: Any = None
        self._here = threading.local()

    def __enter__(self) -> None:
        with _CHANGING:
            if not self._inside or vars(self.owner)[self.name] is not self._placed:
                self._place()
            self._inside += 1
        self._here.depth = getattr(self._here, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        self._here.depth -= 1
        with _CHANGING:
            self._inside -= 1
            if not self._inside:
                if vars(self.owner)[self.name] is self._placed:
                    setattr(self.owner, self.name, self._raw)
                self._raw = self._placed = None

    def _place(self) -> None:
        raw = vars(self.owner)[self.name]
        while (earlier := _ours(raw)) is not None:  # an earlier patch of ours, put back by other code that had saved it
            raw = earlier
        original = raw.__get__(None, self.owner) if isinstance(raw, (classmethod, staticmethod)) else raw
        if self.unless is not None and self.unless(original):
            self._raw = self._placed = raw
            return

        @functools.wraps(original)
        def by_thread(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._here, "depth", 0):
                return self.replacement(original, *args, **kwargs)
            return original(*args, **kwargs)

        setattr(by_thread, _FOUND, (by_thread, raw))
        self._raw, self._placed = raw, staticmethod(by_thread) if original is not raw else by_thread
        setattr(self.owner, self.name, self._placed)


def _ours(raw: Any) -> Any:
    """The function that a patch of ours replaced; None where it is not ours, even if it was made to look so."""
    function = raw.__func__ if isinstance(raw, staticmethod) else raw
    by_thread, original = getattr(function, _FOUND, (None, None))
    return original if by_thread is function else None
