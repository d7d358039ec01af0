"""Reads untrusted files in a child process with limits on memory and time.

`run` calls a function of a module in the child and returns its result. Result and error come back as JSON, so that
nothing that a compromised child sends is executed. A crash, a lack of memory and a missed deadline become one sentence.

The child is forked when the main thread asks, which costs milliseconds and keeps what is imported. Another thread, such
as one of a web server, and a platform without fork get a fresh interpreter, which pays for its imports. Processor time
and memory are limited where the system can do so: Linux both, macOS processor time. The deadline works everywhere.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from forerun.errors import ForerunError, MissingPackage

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_SCRIPT = "from forerun._util.limits import _serve; _serve()"
_CRASHES = {getattr(signal, name, None) for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")} - {None}
_MB = 2**20


@dataclass(frozen=True)
class Limits:
    """Limits of a child: processor seconds, wall-clock seconds, and memory beyond that at its start."""

    cpu_s: float = 20.0
    wall_s: float = 60.0
    memory_mb: int = 2048


def for_a_file_of(size_mb: float, times: float = 1.0) -> Limits:
    """The limits for reading a file: it may need a few times its own size on top of what any file needs, and `times` as
    long where it is also run.

    `FORERUN_LIMIT_S` and `FORERUN_LIMIT_MB` raise or lower what any file may use.
    """
    seconds, memory = _setting("FORERUN_LIMIT_S", 30.0), _setting("FORERUN_LIMIT_MB", 2048.0)
    seconds = times * (seconds + size_mb / 50)
    return Limits(cpu_s=seconds, wall_s=3 * seconds, memory_mb=int(memory + 4 * size_mb))


def _setting(name: str, default: float) -> float:
    try:
        value = float(os.environ.get(name) or default)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ForerunError(f"{name} must be a positive number, got {os.environ[name]!r}")
    return value


def run(work: Callable[..., Any], *arguments: Any, what: str, limits: Limits | None = None) -> Any:
    """`work(*arguments)` in a child process; `what` names the input in messages: "model.onnx".

    `work` is a function at the top of a module; its arguments and its result are JSON.
    """
    allowed = limits or Limits()
    forks = hasattr(os, "fork") and threading.current_thread() is threading.main_thread()
    status, data, in_time = (_forked if forks else _fresh)(work, arguments, allowed)
    try:
        answer = json.loads(data)
    except ValueError:  # the child ended before it could answer
        raise ForerunError(_ending(what, status, in_time, allowed)) from None
    if "result" in answer:
        return answer["result"]
    raise _error(answer, what, allowed)


def _error(answer: dict[str, Any], what: str, allowed: Limits) -> ForerunError:
    if "missing" in answer:
        error: ForerunError = MissingPackage(*answer["missing"])
    elif answer.get("memory"):
        limit = f"{allowed.memory_mb:,} MB of memory are the limit (FORERUN_LIMIT_MB)"
        error = ForerunError(f"{what} takes too much memory to read and is refused: {limit}")
    else:
        error = ForerunError(answer["error"] if answer.get("known") else f"{what} cannot be read: {answer['error']}")
    error.add_note(str(answer.get("trace", "")))
    return error


def _ending(what: str, status: int, in_time: bool, allowed: Limits) -> str:
    """Why a child returned nothing; `status` is minus the signal that ended it, or its exit code."""
    if not in_time:
        return f"{what} takes too long to read and is refused: {allowed.wall_s:.0f} s are the limit (FORERUN_LIMIT_S)"
    if -status == getattr(signal, "SIGXCPU", None):
        limit = f"{allowed.cpu_s:.0f} s of processor time are the limit (FORERUN_LIMIT_S)"
        return f"{what} takes too long to read and is refused: {limit}"
    if -status in _CRASHES:
        return f"{what} crashes the library that reads it and is refused"
    return f"{what} ended the process that reads it, probably for lack of memory, and is refused"


def _answer(work: Callable[..., Any], arguments: Any) -> bytes:
    """The child's reply: the result or the error."""
    try:
        return json.dumps({"result": work(*arguments)}).encode()
    except MissingPackage as error:
        return json.dumps({"missing": [error.what, error.package, error.command]}).encode()
    except ForerunError as error:
        return json.dumps({"error": str(error), "known": True, "trace": traceback.format_exc(limit=-20)}).encode()
    except MemoryError:
        return b'{"memory": true}'
    except Exception as error:  # noqa: BLE001 - whatever a file makes a library raise is one sentence for the user
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
        return json.dumps({"error": reason, "trace": traceback.format_exc(limit=-20)}).encode()


def restrict(allowed: Limits) -> None:
    """Sets the limits of this process, as far as the system supports them; the deadline applies in any case."""
    if resource is None:
        return
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    seconds = int(spent + allowed.cpu_s) + 1
    memory = _data_bytes() + allowed.memory_mb * _MB
    for name, most in (
        ("RLIMIT_CPU", seconds), ("RLIMIT_CORE", 0), ("RLIMIT_DATA", memory), ("RLIMIT_AS", memory + 8192 * _MB),
    ):  # fmt: skip
        with contextlib.suppress(ValueError, OSError, AttributeError):
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _data_bytes() -> int:
    """Writable memory that this process has now, which RLIMIT_DATA counts."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _forked(work: Callable[..., Any], arguments: Any, allowed: Limits) -> tuple[int, bytes, bool]:
    """The exit status, the answer and whether the deadline was kept, of a forked child."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads only draw a spinner: the main one forks
        child = os.fork()
    if child == 0:
        os.close(reader)
        _in_child(work, arguments, allowed, writer)
    os.close(writer)
    try:
        data, in_time = _read_until(reader, time.monotonic() + allowed.wall_s)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it has answered, missed its deadline, or the user interrupted
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), data, in_time


def _in_child(work: Callable[..., Any], arguments: Any, allowed: Limits, writer: int) -> NoReturn:
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # a library that crashes or warns must not print into the answer
            os.dup2(nowhere, stream)
        restrict(allowed)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)  # threads of the parent are not there after a fork
        data = _answer(work, arguments)
        while data:
            data = data[os.write(writer, data) :]
        code = 0
    finally:
        os._exit(code)


def _read_until(reader: int, deadline: float) -> tuple[bytes, bool]:
    """The data from a pipe, and whether it ended before the deadline."""
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        part = os.read(reader, 2**16)
        if not part:
            return b"".join(parts), True
        parts.append(part)
    return b"", False


def _fresh(work: Callable[..., Any], arguments: Any, allowed: Limits) -> tuple[int, bytes, bool]:
    """The same with a fresh interpreter."""
    task = {
        "module": work.__module__, "function": work.__qualname__, "arguments": arguments, "limits": vars(allowed),
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {_SCRIPT}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            data, _ = process.communicate(json.dumps(task, default=str).encode(), timeout=allowed.wall_s)
            in_time = True
        except subprocess.TimeoutExpired:
            data, in_time = b"", False
        finally:
            process.kill()
    return process.returncode, data, in_time


def _serve() -> None:
    """The fresh interpreter: reads a task from standard input, and writes the answer to standard output."""
    task = json.loads(sys.stdin.buffer.read())
    answer = os.dup(1)
    os.dup2(2, 1)
    restrict(Limits(**task["limits"]))
    work = getattr(importlib.import_module(task["module"]), task["function"])
    with os.fdopen(answer, "wb") as out:
        out.write(_answer(work, task["arguments"]))
