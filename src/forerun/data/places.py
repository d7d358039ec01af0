"""The location of the store, and whether it may have rows of a device, without opening it."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

from forerun._util import extras
from forerun._util.companion import MODULE, companion
from forerun._util.folders import user_data

#: Tables, and the folder of graphs, that are shipped in forerun-data.
APART = ("operators", "graphs")
#: The package that reads the files of the store.
_READER = "pyarrow"


def default_folder() -> Path:
    """$FORERUN_STORE, or the user's data folder."""
    chosen = os.environ.get("FORERUN_STORE")
    return Path(chosen) if chosen else user_data() / "store"


def shipped_folder(table: str = "models") -> Path:
    """The folder of our measurements, which are shipped with the package and read-only. Tables for training and
    evaluation only (APART) are shipped with forerun-data."""
    apart = companion() if table in APART else None
    return apart / "store" if apart else Path(__file__).parent / "shipped"


def require_table(table: str) -> None:
    """Raises a ForerunError if our rows of a table are not installed."""
    if table in APART and companion() is None:
        raise extras.missing(f"our rows of {table}", MODULE)


def may_hold(device: str) -> bool:
    """Whether the store may have a row of this device: one of the user's, or a shipped one."""
    folder = default_folder() / "models"
    return (folder.is_dir() and any(folder.glob("*.parquet"))) or device in shipped_devices()


def readable(device: str) -> bool:
    """Whether rows of this device can be looked up: there may be some, and the reader is installed. Opening the store
    takes longer than a prediction."""
    return may_hold(device) and extras.installed(_READER)


def unread(device: str) -> str | None:
    """A sentence if there may be rows of this device that cannot be read, else None."""
    if extras.installed(_READER) or not may_hold(device):
        return None
    return f"whether this was measured is not looked up: {extras.missing('the store of measurements', _READER)}"


@functools.cache
def shipped_devices() -> frozenset[str]:
    return frozenset(json.loads((shipped_folder() / "devices.json").read_text()))
