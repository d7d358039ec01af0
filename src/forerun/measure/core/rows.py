"""The file of rows: one JSON object per line, appended and flushed one by one, and repaired after a kill."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

LOCK_WAIT_S = 20.0
NOT_PROFILED = "not profiled yet"
SESSION_FIELDS = ("device", "host", "software")
KERNELS_OWN = ("kind", "key", "repeat", "session", "protocol", "time")


def read(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a file, without a last line that a kill truncated."""
    rows = []
    file = Path(path)
    if file.exists():
        for line in file.read_bytes().split(b"\n"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                rows.append(row)
    return rows


def merge(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Complete rows: each with the fields of its session, and model rows joined with their kernels line by (key,
    repeat) and device.

    The last kernels line wins. Rows of older protocols, which are already complete, pass through unchanged.
    """
    lines = list(rows)
    sessions = {row["session"]: row for row in lines if row.get("kind") == "session"}

    def at(row: dict[str, Any]) -> tuple[Any, ...]:
        device = (sessions.get(row.get("session")) or {}).get("device") or {}
        return (row["key"], row.get("repeat", 0), device.get("name"))

    kernels = {at(row): row for row in lines if row.get("kind") == "kernels"}
    out = []
    for row in lines:
        if row.get("kind") in ("session", "kernels"):
            continue
        about = sessions.get(row.get("session"), {})
        complete = {**row, **{name: about[name] for name in SESSION_FIELDS if name in about}}
        if row.get("kind") == "model" and row.get("status") == "ok" and "kernel_ms" not in row:
            line = kernels.get(at(row)) or kernels.get((row["key"], row.get("repeat", 0), None))
            if line is None:
                complete.update(kernel_ms=None, kernel_ms_reason=NOT_PROFILED)
            else:
                complete.update({name: value for name, value in line.items() if name not in KERNELS_OWN})
                complete["kernels_session"] = line.get("session")
        out.append(complete)
    return out


class Rows:
    """Appends rows under an exclusive lock of the file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file: IO[bytes] = self.path.open("ab")
        _lock(self.file)
        _drop_half_line(self.path)

    def append(self, row: dict[str, Any]) -> None:
        self.file.write(json.dumps(_finite(row), separators=(",", ":")).encode() + b"\n")
        self.file.flush()

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.file.close()


def _lock(file: IO[bytes]) -> None:
    """Waits for the lock of the file; on platforms without file locks, warns instead."""
    try:
        import fcntl
    except ImportError:  # Windows; the core may not use packages besides torch and numpy
        warnings.warn(f"{file.name} is not locked on this platform: run one writer at a time", stacklevel=3)
        return
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _drop_half_line(path: Path) -> None:
    """Removes a last line that a kill truncated."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def _finite(value: Any) -> Any:
    """Values for JSON, which has no NaN: non-finite numbers become null. Floats keep six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
