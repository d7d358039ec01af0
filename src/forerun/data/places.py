"""Where the store lies, and whether it can hold a row of a device, answered without opening it."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path


def default_folder() -> Path:
    """$FORERUN_STORE, or the user's data folder."""
    chosen = os.environ.get("FORERUN_STORE")
    if chosen:
        return Path(chosen)
    from platformdirs import user_data_dir

    return Path(user_data_dir("forerun")) / "store"


def shipped_folder() -> Path:
    """Our own measurements, which come with the package; read, never written."""
    return Path(__file__).parent / "shipped"


def may_hold(device: str) -> bool:
    """Whether a row of this device may be in the store: any that the user put in, or ours."""
    own = default_folder() / "models"
    return (own.is_dir() and any(own.glob("*.parquet"))) or device in shipped_devices()


@functools.cache
def shipped_devices() -> frozenset[str]:
    return frozenset(json.loads((shipped_folder() / "devices.json").read_text()))
