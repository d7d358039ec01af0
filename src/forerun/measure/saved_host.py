"""The host probe saved by `forerun measure host`, validated on reading: the file may be edited, copied or outdated."""

from __future__ import annotations

import datetime
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forerun._util.documents import read_json, write_json
from forerun._util.folders import user_data
from forerun.errors import ForerunError
from forerun.measure.host import HostSpeed

#: The valid range of the slowness relative to the reference host.
SLOWNESS = (0.05, 50.0)
#: The most age at which a probe is used by default, since the speed of a host changes with load and software.
FRESH = datetime.timedelta(hours=24)
_SKEW = datetime.timedelta(minutes=5)  # tolerated clock difference between machines that share a file
#: The remedy in error messages.
AGAIN = "run forerun measure host"


@dataclass(frozen=True)
class SavedProbe:
    """A validated probe of this machine."""

    slowness: float
    device_id: str  # the device that the kernels were launched on
    measured_at: str
    age: datetime.timedelta
    dispatch_only: bool

    @property
    def is_fresh(self) -> bool:
        return self.age <= FRESH

    @property
    def age_text(self) -> str:
        """'3 hours ago'."""
        return ago(self.age)


class UnusableProbe(ForerunError):
    """A saved probe that cannot be used for this machine; `device_id` is its device, if known."""

    def __init__(self, message: str, device_id: str | None = None) -> None:
        super().__init__(message)
        self.device_id = device_id


def folder() -> Path:
    """The folder for measurements of this machine."""
    chosen = os.environ.get("FORERUN_STORE")
    return Path(chosen) if chosen else user_data()


def place() -> Path:
    """The file of the probe."""
    return folder() / "host.json"


def keep(speed: HostSpeed) -> Path:
    """Saves a probe, replacing the previous one."""
    path = place()
    write_json(path, asdict(speed))
    return path


def saved() -> SavedProbe | None:
    """The saved probe of this machine; None if there is none. Raises UnusableProbe if it cannot be used."""
    path = place()
    if not os.path.exists(path):  # also False if the folder is not readable
        return None
    try:
        content = read_json(path)
    except ForerunError as error:
        raise UnusableProbe(f"the saved host probe cannot be read ({error}): {AGAIN}") from None
    damaged = UnusableProbe(f"the saved host probe, {path}, is damaged or of an older version: {AGAIN}")
    if not isinstance(content, dict):
        raise damaged
    slowness, taken = _slowness(content.get("slowness")), utc_time(content.get("measured_at"))
    device_id, machine = content.get("device_id"), content.get("machine")
    if slowness is None or taken is None or not isinstance(device_id, str) or not isinstance(machine, str):
        raise damaged
    from forerun.measure.core import host_facts

    if machine != host_facts.machine():
        raise UnusableProbe(f"the saved host probe was taken on another machine: {AGAIN} on this one", device_id)
    age = datetime.datetime.now(datetime.UTC) - taken
    if age < -_SKEW:
        raise UnusableProbe(f"the saved host probe has a date in the future: {AGAIN}", device_id)
    return SavedProbe(slowness, device_id, taken.isoformat(), age, content.get("dispatch_only") is True)


def ago(age: datetime.timedelta) -> str:
    """'3 hours ago'."""
    minutes = max(int(age.total_seconds() // 60), 0)
    count, unit = next(
        (minutes // size, unit)
        for size, unit in ((1440, "day"), (60, "hour"), (1, "minute"))
        if minutes >= 2 * size or size == 1
    )
    return f"{count} {unit}{'' if count == 1 else 's'} ago"


def _slowness(value: Any) -> float | None:
    """The value if it is a number in range, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if SLOWNESS[0] <= value <= SLOWNESS[1] else None


def utc_time(value: Any) -> datetime.datetime | None:
    """The value in UTC if it is a date with a time zone, else None."""
    try:
        time = datetime.datetime.fromisoformat(value)
        return time.astimezone(datetime.UTC) if time.tzinfo is not None else None
    except (TypeError, ValueError, OverflowError):
        return None
