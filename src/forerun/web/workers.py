"""Worker processes for long or untrusted work: models to capture, decisions, uploaded files.

A job is the name of an operation and its request as JSON; the answer is JSON too. A worker that misses the deadline,
takes too much memory or crashes is replaced by a fresh one, and its job ends with one sentence; if the worker crashed,
after a retry. Jobs run in a worker's main thread, so that reading a file in a child of its own (`forerun._util.limits`)
costs milliseconds.
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
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from forerun._util import limits
from forerun.errors import ForerunError

_START_S = 120.0


class _Ended(Exception):
    """The worker ended before it answered."""


class Workers:
    """A few worker processes, each with one job at a time."""

    def __init__(
        self, count: int, *, job_s: float, memory_mb: int, hub: bool = False, operations: Sequence[str] = ()
    ) -> None:
        """`operations` are modules that a worker imports because they add operations."""
        self._count, self._job_s, self._memory_mb, self._hub = count, job_s, memory_mb, hub
        self._operations = tuple(operations)
        self._uploads = self._empty = Path()
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._all: list[_Worker] = []
        self._lock = threading.Lock()
        self._closed = True

    def start(self, folder: Path) -> None:
        """Starts the processes. They work in an empty folder: a name in a request is not a path, and there is nothing
        to open. Uploads are in `uploads`."""
        self._uploads, self._empty = folder / "uploads", folder / "empty"
        self._empty.mkdir(exist_ok=True)
        self._closed = False
        for _ in range(self._count):
            self._add()

    def run(self, operation: str, request: dict[str, Any]) -> Any:
        """The operation's answer; a ForerunError says what the user can change."""
        try:
            return self._run_once(operation, request)
        except _Ended:  # perhaps for another reason, such as the system's lack of memory: one retry in a fresh worker
            try:
                return self._run_once(operation, request)
            except _Ended:
                raise ForerunError(
                    "the request crashed its worker process, probably for lack of memory "
                    f"(the server's limit is {self._memory_mb:,} MB)"
                ) from None

    def _run_once(self, operation: str, request: dict[str, Any]) -> Any:
        worker = self._idle.get()
        while not worker.alive():  # ended while idle
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
            worker = _Worker(self._empty, self._uploads, self._memory_mb, self._hub, self._operations)
            self._all.append(worker)
        self._idle.put(worker)


class _Worker:
    """One process. Lines of JSON go in by its standard input and come back by its standard output."""

    def __init__(self, folder: Path, uploads: Path, memory_mb: int, hub: bool, operations: Sequence[str]) -> None:
        self.started = threading.Event()
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        path = [os.path.abspath(place) for place in sys.path]  # relative paths are relative to this process
        start = f"from forerun.web.workers import serve; serve({memory_mb}, *sys.argv[1:])"
        command = f"import sys; sys.path[:] = {path!r}; {start}"
        environment = {**os.environ} if hub else {**os.environ, "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", command, str(uploads), *operations], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=folder, env=environment,
        )  # fmt: skip
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
                f"the request takes longer than {deadline_s:.0f} s, the server's limit; use the command line, "
                "or a smaller request"
            ) from None
        except OSError:
            answer = None
        if answer is None:
            self.close()
            raise _Ended
        content = json.loads(answer)
        if "error" in content:
            raise ForerunError(content["error"])
        if "defect" in content:
            raise RuntimeError(content["defect"])
        return content["result"]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


def serve(memory_mb: int, uploads: str, *operations: str) -> None:
    """The loop of a worker process: jobs from standard input, one answer per line, until the server ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    import torch

    from forerun.web.models import uploads_in
    from forerun.web.operations import OPERATIONS

    for module in operations:
        import_module(module)
    torch.set_num_threads(1)
    limits.restrict(limits.Limits(cpu_s=1e7, memory_mb=memory_mb))
    _write(answers, {"ready": True})
    with uploads_in(Path(uploads)):
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
        return {"error": "the request takes more memory than the server allows"}
    except Exception as error:  # noqa: BLE001 - a defect is logged by the server and does not end the worker
        import traceback

        return {"defect": f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-12)}"}


def _end_with_parent(parent: int) -> None:
    """A worker does not outlive the server, however that ends."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)
