"""Processes that answer what takes long or what nobody has vetted: models to be captured, decisions, uploaded files.

A job is the name of an operation and its request as JSON; so is its answer. A worker that misses the deadline, takes
too much memory or crashes is replaced by a fresh one, and its job ends with one sentence; where the worker ended, after
a second try. Jobs run in a worker's main thread, so that reading a file in a child of its own (`forerun.limits`) costs
milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forerun import limits
from forerun.errors import ForerunError

_START_S = 120.0


class _Ended(Exception):
    """The worker ended before it answered."""


class Workers:
    """A few worker processes, each with one job at a time."""

    def __init__(self, count: int, folder: Path, *, job_s: float, memory_mb: int) -> None:
        self._folder, self._job_s, self._memory_mb = folder, job_s, memory_mb
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._all: list[_Worker] = []
        self._lock = threading.Lock()
        self._closed = False
        for _ in range(count):
            self._add()

    def run(self, operation: str, request: dict[str, Any]) -> Any:
        """The operation's answer; a ForerunError says what the user can put right."""
        try:
            return self._run_once(operation, request)
        except _Ended:  # perhaps for a reason of its own, such as the system's lack of memory: once more in a fresh one
            try:
                return self._run_once(operation, request)
            except _Ended:
                raise ForerunError(
                    "the question ended the process that worked on it, probably for lack of memory "
                    f"({self._memory_mb:,} MB are the server's limit)"
                ) from None

    def _run_once(self, operation: str, request: dict[str, Any]) -> Any:
        worker = self._idle.get()
        while not worker.alive():  # ended while nobody asked
            self._replace(worker)
            worker = self._idle.get()
        try:
            return worker.run(operation, request, self._job_s)
        finally:
            if worker.alive():
                self._idle.put(worker)
            else:
                self._replace(worker)

    def ready(self) -> bool:
        """Whether at least one worker has started."""
        with self._lock:
            return any(worker.started.is_set() for worker in self._all)

    def close(self) -> None:
        """Ends all workers."""
        with self._lock:
            self._closed = True
            for worker in self._all:
                worker.close()
            self._all.clear()

    def _replace(self, worker: _Worker) -> None:
        worker.close()
        with self._lock:
            if worker in self._all:
                self._all.remove(worker)
        self._add()

    def _add(self) -> None:
        with self._lock:
            if self._closed:
                return
            worker = _Worker(self._folder, self._memory_mb)
            self._all.append(worker)
        self._idle.put(worker)


class _Worker:
    """One process. Lines of JSON go in by its standard input and come back by its standard output."""

    def __init__(self, folder: Path, memory_mb: int) -> None:
        self.started = threading.Event()
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        command = f"import sys; sys.path[:] = {sys.path!r}; from forerun.web.workers import serve; serve({memory_mb})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not self.started.is_set():
                self.started.set()
            else:
                self._answers.put(line)
        self.started.set()
        self._answers.put(None)

    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, operation: str, request: dict[str, Any], deadline_s: float) -> Any:
        if not self.started.wait(_START_S):
            self.close()
        line = json.dumps({"operation": operation, "request": request}).encode() + b"\n"
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()
            answer = self._answers.get(timeout=deadline_s)
        except queue.Empty:
            self.close()
            raise ForerunError(
                f"the question takes longer than {deadline_s:.0f} s, which is the server's limit; ask it on the "
                "command line, or ask for less"
            ) from None
        except OSError:
            answer = None
        if answer is None:
            self.close()
            raise _Ended
        found = json.loads(answer)
        if "error" in found:
            raise ForerunError(found["error"])
        if "defect" in found:
            raise RuntimeError(found["defect"])
        return found["result"]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


def serve(memory_mb: int) -> None:
    """What a worker process does: jobs from standard input, one answer a line, until the server ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not stand between the answers
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    import torch

    from forerun.web.operations import OPERATIONS

    torch.set_num_threads(1)
    limits.restrict(limits.Limits(cpu_s=1e7, memory_mb=memory_mb))
    _write(answers, {"ready": True})
    for line in sys.stdin.buffer:
        job = json.loads(line)
        _write(answers, _answer(OPERATIONS[job["operation"]], job["request"]))


def _write(out: Any, data: dict[str, Any]) -> None:
    out.write(json.dumps(data).encode() + b"\n")
    out.flush()


def _answer(operation: Callable[[dict[str, Any]], Any], request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": operation(request)}
    except ForerunError as error:
        return {"error": str(error)}
    except (MemoryError, RecursionError):
        return {"error": "the question takes more memory than the server gives to one"}
    except Exception as error:  # noqa: BLE001 - a defect is logged by the server and is no reason to end the worker
        import traceback

        return {"defect": f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-12)}"}


def _end_with_parent(parent: int) -> None:
    """A worker does not outlive the server, however that ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)
