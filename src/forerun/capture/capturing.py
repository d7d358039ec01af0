"""Whether this thread is capturing a model, and work that must stay out of the capture."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_here = threading.local()


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Marks this thread as one that captures."""
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1


def apart(work: Callable[..., T], *args: Any) -> T:
    """`work(*args)`, in a thread of its own where this one is capturing.

    A model that makes a prediction while it is captured would run under the capture's modes, and the capture would
    record the other model as a part of its own. Modes are per thread.
    """
    if not getattr(_here, "depth", 0):
        return work(*args)
    from concurrent.futures import Future

    done: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            done.set_result(context.run(work, *args))
        except BaseException as fault:  # noqa: BLE001 - raised again in the caller
            done.set_exception(fault)

    thread = threading.Thread(target=run, name="forerun-nested-capture")
    thread.start()
    thread.join()
    return done.result()
