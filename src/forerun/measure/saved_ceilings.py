"""The ceilings saved by `forerun measure machine`, one file per device; shown beside the datasheet."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from forerun._util.documents import write_json
from forerun.errors import ForerunError
from forerun.measure.ceilings import Ceilings, read
from forerun.measure.saved_host import ago, folder

#: The remedy in error messages.
AGAIN = "run forerun measure machine"


def place(device_id: str) -> Path:
    """The file for the ceilings of a device."""
    return folder() / "ceilings" / f"{device_id}.json"


def keep(ceilings: Ceilings) -> Path:
    """Saves ceilings, replacing earlier ones."""
    path = place(ceilings.device_id)
    write_json(path, dict(ceilings.content))
    return path


def saved(device_id: str) -> Ceilings | None:
    """The saved ceilings of a device; None if there are none. Raises a ForerunError if they cannot be used."""
    path = place(device_id)
    if not path.exists():
        return None
    try:
        ceilings = read(path)
    except ForerunError as error:
        raise ForerunError(f"the saved ceilings cannot be used ({error}): {AGAIN}") from None
    if ceilings.device_id != device_id:
        raise ForerunError(f"the saved ceilings, {path}, are those of {ceilings.device_id}: {AGAIN}")
    return ceilings


def of_device(device_id: str) -> dict[str, Any] | None:
    """The saved ceilings for `forerun devices`: values, date and text, or the reason why they cannot be used."""
    try:
        ceilings = saved(device_id)
    except ForerunError as error:
        return {"values": None, "reason": str(error)}
    if ceilings is None:
        return None
    age = ago(datetime.datetime.now(datetime.UTC) - ceilings.measured_at)
    from forerun.measure.core import host_facts

    where = "this machine" if ceilings.content.get("machine") == host_facts.machine() else "another machine"
    return {
        "values": ceilings.values, "measured_at": ceilings.measured_at.isoformat(), "file": str(place(device_id)),
        "text": f"measured on {where} {age} ({ceilings.measured_at.date().isoformat()})",
    }  # fmt: skip


def saved_ids() -> list[str]:
    """The devices with saved ceilings."""
    return sorted(path.stem for path in (folder() / "ceilings").glob("*.json"))
