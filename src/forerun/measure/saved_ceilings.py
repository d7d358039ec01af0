"""The ceilings that `forerun measure machine` saves, one file for each device: shown beside the datasheet."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from forerun._util.documents import write_json
from forerun.errors import ForerunError
from forerun.measure.ceilings import Ceilings, read
from forerun.measure.saved_host import ago, folder

#: What puts it right.
AGAIN = "run forerun measure machine"


def place(device_id: str) -> Path:
    """The file that the ceilings of a device are saved in."""
    return folder() / "ceilings" / f"{device_id}.json"


def keep(found: Ceilings) -> Path:
    """Saves ceilings, in place of those before."""
    path = place(found.device_id)
    write_json(path, dict(found.found))
    return path


def saved(device_id: str) -> Ceilings | None:
    """The saved ceilings of a device, None where there are none; a ForerunError says why they cannot be used."""
    path = place(device_id)
    if not path.exists():
        return None
    try:
        found = read(path)
    except ForerunError as error:
        raise ForerunError(f"the saved ceilings cannot be used ({error}): {AGAIN}") from None
    if found.device_id != device_id:
        raise ForerunError(f"the saved ceilings, {path}, are those of {found.device_id}: {AGAIN}")
    return found


def of_device(device_id: str) -> dict[str, Any] | None:
    """What `forerun devices` says of the saved ceilings: values, date and text, or the reason why there are none."""
    try:
        found = saved(device_id)
    except ForerunError as error:
        return {"values": None, "reason": str(error)}
    if found is None:
        return None
    age = ago(datetime.datetime.now(datetime.UTC) - found.measured_at)
    from forerun.measure.core import host_facts

    where = "this machine" if found.found.get("machine") == host_facts.machine() else "another machine"
    return {
        "values": found.values, "measured_at": found.measured_at.isoformat(), "file": str(place(device_id)),
        "text": f"measured on {where} {age} ({found.measured_at.date().isoformat()})",
    }  # fmt: skip


def saved_ids() -> list[str]:
    """The devices of which there are saved ceilings."""
    return sorted(path.stem for path in (folder() / "ceilings").glob("*.json"))
