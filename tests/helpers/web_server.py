"""A real server in a process of its own, for tests and benchmarks.

Tests that start several fork them from a Python that has imported the libraries (`warm.py`), which saves seconds each.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import warm


@dataclass(frozen=True)
class Answer:
    """What came back: the status, the headers, the body as JSON where it is JSON."""

    status: int
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Served:
    """A running server: where it listens, its process, its log."""

    url: str
    pid: int
    log: Path

    def ask(
        self, path: str, data: Any = None, *, method: str | None = None, raw: bytes | None = None, **headers: str
    ) -> Answer:
        body = raw if raw is not None else None if data is None else json.dumps(data).encode()
        sent = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        request = urllib.request.Request(self.url + path, body, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=180) as found:
                return _answer(found.status, found.headers, found.read())
        except urllib.error.HTTPError as error:
            return _answer(error.code, error.headers, error.read())


def _answer(status: int, headers: Any, body: bytes) -> Answer:
    kind = headers.get("content-type", "")
    return Answer(status, {k.lower(): v for k, v in headers.items()}, json.loads(body) if "json" in kind else body)


@contextmanager
def serving(
    folder: Path, *options: str, run: list[str] | None = None, forked: bool = False, **env: str
) -> Iterator[Served]:
    """`forerun serve` on a free port until the block ends; or another start of a server (`-c CODE`). `forked`: from a
    warm Python."""
    log = folder / f"server-{len(list(folder.iterdir()))}.log"
    words = run or ["-m", "forerun", "serve", "--port", "0", *options]
    with log.open("wb") as errors:
        process, output = (_forked if forked else _started)(words, folder, {**os.environ, **env}, errors)
        try:
            line = output.readline()
            found = re.search(r"http://\S+", line)
            assert found, f"the server did not start: {line}{log.read_text()}"
            served = Served(found[0].replace("//0.0.0.0:", "//127.0.0.1:"), process.pid, log)
            for _ in range(600):
                try:
                    if served.ask("/healthz").body.get("workers_ready"):
                        break
                except OSError:
                    pass
                time.sleep(0.2)
            yield served
        finally:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
            try:
                process.wait(timeout=20)
            except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
                process.kill()
                process.wait()
            output.close()


def _started(words: list[str], folder: Path, env: dict[str, str], errors: IO[bytes]) -> tuple[psutil.Popen, IO[str]]:
    """A fresh interpreter, and its output."""
    process = psutil.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=errors, cwd=folder, env=env, text=True
    )  # fmt: skip
    return process, process.stdout


def _forked(words: list[str], folder: Path, env: dict[str, str], errors: IO[bytes]) -> tuple[psutil.Process, IO[str]]:
    """The same, forked from one that has imported what servers do."""
    reader, writer = os.pipe()
    python = warm.python(env, also=warm.OF_SERVERS)
    child = python.start(words, cwd=folder, env=env, stdout=writer, stderr=errors.fileno(), run_on=True)
    os.close(writer)
    return psutil.Process(child.pid), os.fdopen(reader)
