"""Files that clients send: streamed to a private folder, of few kinds and bounded size, deleted soon after their use.

Nothing of a model is read here but its first bytes. What reads it is a door, in a child process with limits of memory
and time (`forerun.limits`).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from forerun import documents
from forerun.errors import ForerunError
from forerun.readable import short

#: What is taken, by suffix. Python, pickles and archives are not.
KINDS = {".onnx": "an ONNX model", ".json": "a config.json of Hugging Face", ".yaml": "a device", ".yml": "a device"}
_MB = 2**20


class TooLarge(ForerunError):
    """The upload, or all of them together, has more bytes than the server takes."""


@dataclass(frozen=True)
class Upload:
    """A file that was taken in."""

    id: str
    name: str
    kind: str
    bytes: int

    @property
    def model(self) -> str:
        """How requests name it."""
        return f"upload:{self.id}"


class Uploads:
    """The private folder of uploads, one folder in it for each."""

    def __init__(self, folder: Path, *, most_mb: int, together_mb: int, minutes: float) -> None:
        self.folder, self._most, self._together, self._keep_s = folder, most_mb * _MB, together_mb * _MB, minutes * 60
        self._lock = threading.Lock()
        self._bytes: dict[str, int] = {}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def take(self, name: str, parts: AsyncIterator[bytes]) -> Upload:
        """Writes the parts as they come. What is refused leaves nothing behind."""
        shown, suffix = _plain_name(name)
        number = secrets.token_hex(16)
        place = self.folder / number
        place.mkdir(mode=0o700)
        try:
            with (place / shown).open("xb") as file:
                async for part in parts:
                    self._count(number, len(part))
                    file.write(part)
            _check(place / shown, suffix)
        except BaseException:
            self.delete(number)
            raise
        return Upload(number, shown, KINDS[suffix], self._bytes[number])

    def _count(self, number: str, more: int) -> None:
        with self._lock:
            self._bytes[number] = self._bytes.get(number, 0) + more
            if self._bytes[number] > self._most:
                raise TooLarge(f"an upload has at most {self._most // _MB:,} MB")
            if sum(self._bytes.values()) > self._together:
                raise TooLarge("the server holds as many uploads as it can at the moment; try again in some minutes")

    def delete(self, number: str) -> bool:
        """Removes an upload; whether there was one."""
        with self._lock:
            known = self._bytes.pop(number, None) is not None
        shutil.rmtree(self.folder / number, ignore_errors=True)
        return known

    def delete_old(self) -> int:
        """Removes what was not used for the minutes that uploads are kept; how many these were."""
        now = time.time()
        with self._lock:
            known = list(self._bytes)
        old = [n for n in known if now - _last_use(self.folder / n) > self._keep_s]
        return sum(self.delete(number) for number in old)

    def close(self) -> None:
        """Removes everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _last_use(place: Path) -> float:
    try:
        return os.stat(place).st_mtime
    except OSError:
        return 0.0


def _plain_name(name: str) -> tuple[str, str]:
    """A file name without folders and odd signs, and its suffix."""
    last = PurePosixPath(PureWindowsPath(name).name).name
    stem, dot, suffix = last.rpartition(".")
    suffix = f".{suffix.lower()}" if dot else ""
    if suffix not in KINDS:
        taken = ", ".join(f"{what} ({kind})" for kind, what in KINDS.items() if kind != ".yml")
        raise ForerunError(f"{short(last or name)} is not taken: the server takes {taken}, and never code or weights")
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", stem).strip("_")[:80]
    return f"{plain or 'model'}{suffix}", suffix


def _check(path: Path, suffix: str) -> None:
    """What a file shows before it is read: its first bytes, and whether a document is one."""
    with path.open("rb") as file:
        first = file.read(8)
    if not first:
        raise ForerunError(f"{path.name} is empty")
    if suffix == ".onnx":
        # A protobuf message of a model starts with one of its fields; archives, pickles and text do not.
        if first[:2] == b"PK" or first[:1] in (b"\x80", b"{", b"<", b"#") or first[:4] == b"\x89HDF":
            raise ForerunError(f"{path.name} is no ONNX file: it starts as another kind of file does")
        return
    if suffix == ".json":
        found = documents.read_json(path)
        if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
            raise ForerunError(f"{path.name} is no config of Hugging Face: it names no model_type")
        return
    documents.read_yaml(path)
