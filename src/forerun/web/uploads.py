"""Files that clients send: streamed to a private folder, of few kinds and bounded size, deleted soon after their use.

Nothing of a model is read here but its first bytes. What reads it is a frontend, in a child process with limits of
memory and time (`forerun._util.limits`).
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

from forerun._util import documents
from forerun._util.readable import short
from forerun.errors import ForerunError

#: What is accepted, by suffix. Python, pickles and archives are not.
KINDS = {".onnx": "an ONNX model", ".json": "a config.json of Hugging Face", ".yaml": "a device", ".yml": "a device"}
_MB = 2**20


class TooLarge(ForerunError):
    """The upload, or all of them together, exceeds the server's limit."""


@dataclass(frozen=True)
class Upload:
    """An uploaded file."""

    id: str
    name: str
    kind: str
    bytes: int

    @property
    def model(self) -> str:
        """Its name in requests."""
        return f"upload:{self.id}"


class Uploads:
    """The uploads of a server, from REST and from the page: a folder for each in one private folder, with one quota.

    Uploads not used for some minutes are deleted; where a new one needs room, the least recently used go first.
    """

    def __init__(self, *, most_mb: int, together_mb: int, minutes: float, most: int = 512, at_once: int = 8) -> None:
        self._most, self._together, self._keep_s = most_mb * _MB, together_mb * _MB, minutes * 60
        self._most_uploads, self._at_once = most, at_once
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._bytes: dict[str, int] = {}  # of every upload, also those that are arriving
        self._total = 0
        self._arriving: dict[str, str] = {}  # and its client

    @property
    def folder(self) -> Path:
        """The folder of the uploads while the server runs."""
        if self._folder is None:
            raise ForerunError("the server accepts no uploads before it runs")
        return self._folder

    def open(self, folder: Path) -> None:
        """Starts with an empty folder."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        self._folder = folder

    async def take(self, name: str, parts: AsyncIterator[bytes], client: str = "") -> Upload:
        """Writes the parts as they arrive. A refused upload leaves nothing behind."""
        shown, suffix = _plain_name(name)
        number = self._begin(client)
        place = self.folder / number
        try:
            place.mkdir(mode=0o700)
            with (place / shown).open("xb") as file:
                async for part in parts:
                    self._count(number, len(part))
                    file.write(part)
            _check(place / shown, suffix)
        except OSError as error:
            self.delete(number)
            if isinstance(error, TimeoutError | ConnectionError):
                raise
            raise TooLarge(f"the server could not store {shown}: {error.strerror}") from error
        except ForerunError as error:
            self.delete(number)
            kind = TooLarge if isinstance(error, TooLarge) else ForerunError
            raise kind(str(error).replace(f"{place}/", "")) from error
        except BaseException:
            self.delete(number)
            raise
        finally:
            self._arriving.pop(number, None)
        return Upload(number, shown, KINDS[suffix], self._bytes[number])

    def _begin(self, client: str) -> str:
        with self._lock:
            same = sum(1 for other in self._arriving.values() if other == client)
            if len(self._arriving) >= self._at_once or same >= max(1, self._at_once // 2):
                raise TooLarge(
                    f"{self._at_once} uploads may arrive at once, half of them of one client; try again in a moment"
                )
            number = secrets.token_hex(16)
            self._arriving[number] = client
            self._bytes[number] = 0
            return number

    def _count(self, number: str, more: int) -> None:
        with self._lock:
            self._bytes[number] += more
            self._total += more
            if self._bytes[number] > self._most:
                raise TooLarge(f"an upload has at most {self._most // _MB:,} MB")
            full = self._is_full()
        if full and not self._make_room():
            raise TooLarge("uploads in progress fill the server's quota; try again in some minutes")

    def _is_full(self) -> bool:
        return self._total > self._together or len(self._bytes) > self._most_uploads

    def _make_room(self) -> bool:
        """Deletes the least recently used until the rest is within the quota; whether it is."""
        with self._lock:
            complete = [number for number in self._bytes if number not in self._arriving]
        for number in sorted(complete, key=lambda n: _last_use(self.folder / n)):
            if not self._is_full():
                break
            self.delete(number)
        return not self._is_full()

    def delete(self, number: str) -> bool:
        """Removes an upload; whether there was one."""
        with self._lock:
            size = self._bytes.pop(number, None)
            self._total -= size or 0
        shutil.rmtree(self.folder / number, ignore_errors=True)
        return size is not None

    def delete_old(self) -> int:
        """Removes uploads past their time; returns how many."""
        now = time.time()
        with self._lock:
            complete = [number for number in self._bytes if number not in self._arriving]
        old = [n for n in complete if now - _last_use(self.folder / n) > self._keep_s]
        return sum(self.delete(number) for number in old)


def _last_use(place: Path) -> float:
    try:
        return os.stat(place).st_mtime
    except OSError:
        return 0.0


def _plain_name(name: str) -> tuple[str, str]:
    """A file name without folders and special characters, and its suffix."""
    last = PurePosixPath(PureWindowsPath(name).name).name
    stem, dot, suffix = last.rpartition(".")
    suffix = f".{suffix.lower()}" if dot else ""
    if suffix not in KINDS:
        taken = ", ".join(f"{what} ({kind})" for kind, what in KINDS.items() if kind != ".yml")
        raise ForerunError(
            f"{short(last or name)} is not accepted: the server takes {taken}, and never code or weights"
        )
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", stem).strip("_")[:80]
    return f"{plain or 'model'}{suffix}", suffix


def _check(path: Path, suffix: str) -> None:
    """Checks before a file is read: its first bytes, and whether a document parses."""
    with path.open("rb") as file:
        first = file.read(8)
    if not first:
        raise ForerunError(f"{path.name} is empty")
    if suffix == ".onnx":
        # A protobuf message of a model starts with one of its fields; archives, pickles and text do not.
        if first[:2] == b"PK" or first[:1] in (b"\x80", b"{", b"<", b"#") or first[:4] == b"\x89HDF":
            raise ForerunError(f"{path.name} is not an ONNX file: it starts like another kind of file")
        return
    if suffix == ".json":
        config = documents.read_json(path)
        if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
            raise ForerunError(f"{path.name} is not a Hugging Face config: it has no model_type")
        return
    documents.read_yaml(path)
