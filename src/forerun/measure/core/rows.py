"""The file of rows: one JSON object per line, appended and flushed one by one, and valid again after a kill."""

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
    """The rows of a file; a last line cut short by a kill is not one."""
    found = []
    file = Path(path)
    if file.exists():
        for line in file.read_bytes().split(b"\n"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                found.append(row)
    return found


def merge(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Complete rows: each with the fields of its session, and model rows with their kernels line, found by
    (key, repeat) among those of the same device.

    The last kernels line wins. Rows of older protocols, which carry all of this themselves, pass through as they are.
    """
    found = list(rows)
    sessions = {row["session"]: row for row in found if row.get("kind") == "session"}

    def at(row: dict[str, Any]) -> tuple[Any, ...]:
        device = (sessions.get(row.get("session")) or {}).get("device") or {}
        return (row["key"], row.get("repeat", 0), device.get("name"))

    kernels = {at(row): row for row in found if row.get("kind") == "kernels"}
    out = []
    for row in found:
        if row.get("kind") in ("session", "kernels"):
            continue
        about = sessions.get(row.get("session"), {})
        whole = {**row, **{name: about[name] for name in SESSION_FIELDS if name in about}}
        if row.get("kind") == "model" and row.get("status") == "ok" and "kernel_ms" not in row:
            line = kernels.get(at(row)) or kernels.get((row["key"], row.get("repeat", 0), None))
            if line is None:
                whole.update(kernel_ms=None, kernel_ms_reason=NOT_PROFILED)
            else:
                whole.update({name: value for name, value in line.items() if name not in KERNELS_OWN})
                whole["kernels_session"] = line.get("session")
        out.append(whole)
    return out


class Rows:
    """Appends rows; only one writer at a time holds the file."""

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
    """Waits until no other writer holds the file; where the platform cannot lock files, it warns instead."""
    try:
        import fcntl
    except ImportError:  # Windows; the core may use no package beside torch and numpy
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
    """Cuts a last line that a kill left without its end."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def _finite(value: Any) -> Any:
    """JSON has no NaN: what is not a number becomes null. Floats keep six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
