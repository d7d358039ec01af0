"""Parallel fits: one single-threaded process per core, since a fit is too small for several threads."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_work: list[Callable[[Any], Any]] = []  # forked children inherit it here with its data, without a copy


def side_by_side(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """`work` of every item, in order; sequentially where processes cannot be forked."""
    many = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, len(items))
    if (
        many < 2
        or "fork" not in multiprocessing.get_all_start_methods()
        or multiprocessing.parent_process() is not None
    ):
        yield from map(work, items)
        return
    _work.append(work)
    try:
        with ProcessPoolExecutor(many, multiprocessing.get_context("fork"), _single_threaded) as pool:
            yield from pool.map(_run, items)
    finally:
        _work.pop()


def _single_threaded() -> None:
    """Sets one thread: a forked child would wait forever for threads that a library had in the parent."""
    import torch

    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # on Arm it keeps to its own number of threads


def _run(item: Any) -> Any:
    return _work[-1](item)
