"""Which models and devices a request may name: those of the catalogues, families, uploads. No path of a client is
opened; a `Path` in a request is one that this process has checked (`local_files.py`), since JSON has none."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from forerun._util.readable import short
from forerun.device.loading import adapted_folder
from forerun.errors import ForerunError

_uploads: ContextVar[Path | None] = ContextVar("uploads", default=None)
_UPLOAD = re.compile(r"upload:([0-9a-f]{32})")
#: Names with their settings: org/name, cnn:depth=6,filters=32, resnet50?layers=[2,2,2,2]&act_layer="silu".
_NAME = re.compile(r"[A-Za-z0-9][\w.\-/:=,?+@ &\[\]\"]{0,499}")


@contextmanager
def uploads_in(folder: Path) -> Iterator[None]:
    """Requests in the block name uploads of this folder."""
    before = _uploads.set(folder)
    try:
        yield
    finally:
        _uploads.reset(before)


def model_of(name: str | Path) -> str:
    """A request's model as the library takes it: a name, or the file of an upload."""
    if isinstance(name, Path):
        return str(name)
    match = _UPLOAD.fullmatch(name)
    if match:
        return str(uploaded_file(match[1]))
    return checked_name(name)


def device_of(given: str | Path | dict[str, Any]) -> str | Path | dict[str, Any]:
    """A request's device as the library takes it: a name, fields, or the file of an upload."""
    if isinstance(given, (dict, Path)):
        return given
    if match := _UPLOAD.fullmatch(given):
        return uploaded_file(match[1])
    if given.lower().endswith((".yaml", ".yml")) or adapted_folder(given) is not None:
        raise ForerunError("a device is a name of the catalogue, its fields, or an upload: the server opens no paths")
    return given


def checked_name(name: str) -> str:
    """The name, where it cannot be a file of this machine."""
    from forerun.frontends import is_file, is_known_name

    long = any(len(part) > 250 for part in name.split("/"))
    if long or not _NAME.fullmatch(name) or ".." in name or is_file(name) or is_file(name.partition(":")[0]):
        raise ForerunError(
            f"{short(name)} is not the name of a model: the server opens no paths; upload an ONNX file or a config.json"
        )
    if Path(name).exists() and not is_known_name(name):
        raise ForerunError(f"{short(name)} is a file or folder of the server, which it does not open")
    return name


def uploaded_file(number: str) -> Path:
    """The one file of an upload."""
    uploads = _uploads.get()
    folder = uploads / number if uploads else None
    files = sorted(folder.iterdir()) if folder and folder.is_dir() else []
    if not folder or not files:
        raise ForerunError("this upload does not exist: uploads are deleted some minutes after their last use")
    os.utime(folder)  # marks it as used
    return files[0]


def uploaded_name(model: str) -> str | None:
    """The name of the file where the model is an upload that still exists."""
    match = _UPLOAD.fullmatch(model)
    return uploaded_file(match[1]).name if match else None


def without_folders(sentence: str) -> str:
    """A sentence for the client: uploaded files by their names, without their paths on the server."""
    folder = _uploads.get()
    return re.sub(re.escape(str(folder)) + r"/[0-9a-f]{32}/", "", sentence) if folder else sentence
