"""Where the store lies, and whether it can hold a row of a device, answered without opening it."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

from forerun._util import extras
from forerun._util.companion import MODULE, companion
from forerun._util.folders import user_data

#: Tables, and the folder of graphs, of which ours are in forerun-data.
APART = ("operators", "graphs")
#: What reads the files of the store.
_READER = "pyarrow"


def default_folder() -> Path:
    """$FORERUN_STORE, or the user's data folder."""
    chosen = os.environ.get("FORERUN_STORE")
    return Path(chosen) if chosen else user_data() / "store"


def shipped_folder(table: str = "models") -> Path:
    """Our own measurements, which come with the package; read, never written. What only training and evaluation read
    (APART) comes with forerun-data."""
    apart = companion() if table in APART else None
    return apart / "store" if apart else Path(__file__).parent / "shipped"


def require_table(table: str) -> None:
    """Raises one sentence where our rows of a table are not installed."""
    if table in APART and companion() is None:
        raise extras.missing(f"our rows of {table}", MODULE)


def may_hold(device: str) -> bool:
    """Whether a row of this device may be in the store: any that the user put in, or ours."""
    own = default_folder() / "models"
    return (own.is_dir() and any(own.glob("*.parquet"))) or device in shipped_devices()


def readable(device: str) -> bool:
    """Whether rows of this device may be looked up: there may be some, and what reads them is installed. Opening the
    store takes longer than a whole prediction."""
    return may_hold(device) and extras.installed(_READER)


def unread(device: str) -> str | None:
    """A sentence where there may be rows of this device that cannot be read."""
    if extras.installed(_READER) or not may_hold(device):
        return None
    return f"whether this was measured is not looked up: {extras.missing('the store of measurements', _READER)}"


@functools.cache
def shipped_devices() -> frozenset[str]:
    return frozenset(json.loads((shipped_folder() / "devices.json").read_text()))
