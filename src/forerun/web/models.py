"""Which models and devices a request may name: those of the catalogues, families, uploads. No path is opened."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from forerun.errors import ForerunError
from forerun.readable import short

#: Where uploads lie, for the server and its workers.
FOLDER = "FORERUN_SERVER_UPLOADS"
_UPLOAD = re.compile(r"upload:([0-9a-f]{32})")
_NAME = re.compile(r"[A-Za-z0-9][\w.\-/:=,?+@ ]{0,499}")


def model_of(name: str) -> str:
    """A request's model as the library takes it: a name, or the file of an upload."""
    found = _UPLOAD.fullmatch(name)
    if found:
        return str(uploaded_file(found[1]))
    return checked_name(name)


def device_of(given: str | dict[str, Any]) -> str | Path | dict[str, Any]:
    """A request's device as the library takes it: a name, fields, or the file of an upload."""
    if isinstance(given, dict):
        return given
    if found := _UPLOAD.fullmatch(given):
        return uploaded_file(found[1])
    if given.lower().endswith((".yaml", ".yml")):
        raise ForerunError("a device is a name of the catalogue, its fields, or an upload: the server opens no paths")
    return given


def checked_name(name: str) -> str:
    """The name, where it can be no file of this machine."""
    from forerun.graph.sources import is_file

    long = any(len(part) > 250 for part in name.split("/"))
    if long or not _NAME.fullmatch(name) or ".." in name or is_file(name) or is_file(name.partition(":")[0]):
        raise ForerunError(
            f"{short(name)} is no name of a model: the server opens no paths; upload an ONNX file or a config.json"
        )
    if Path(name).exists():
        raise ForerunError(f"{short(name)} is a file or folder of the server, which it does not open")
    return name


def uploaded_file(number: str) -> Path:
    """The one file of an upload."""
    folder = Path(os.environ.get(FOLDER, os.devnull)) / number
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    if not files:
        raise ForerunError("this upload is not here (any more): uploads are deleted some minutes after their last use")
    os.utime(folder)  # it was used
    return files[0]


def uploaded_name(model: str) -> str | None:
    """The name of the file where the model is an upload that is still here."""
    found = _UPLOAD.fullmatch(model)
    return uploaded_file(found[1]).name if found else None


def without_folders(sentence: str) -> str:
    """A sentence for the client: uploaded files by their names, without their places on the server."""
    folder = os.environ.get(FOLDER)
    return re.sub(re.escape(folder) + r"/[0-9a-f]{32}/", "", sentence) if folder else sentence
