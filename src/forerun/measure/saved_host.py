"""The host probe that `forerun measure host` saves: a file that anybody may have changed, copied or kept too long."""

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

#: How many times slower than the reference host a host may be.
SLOWNESS = (0.05, 50.0)
#: A probe is used without being asked for up to this age: the speed of a host moves with its load and its software.
FRESH = datetime.timedelta(hours=24)
_SKEW = datetime.timedelta(minutes=5)  # clocks of machines that share a file differ by less
#: What puts it right.
AGAIN = "run forerun measure host"


@dataclass(frozen=True)
class SavedProbe:
    """A probe of this machine, read and checked."""

    slowness: float
    device_id: str  # that the launches went to
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
    """A saved probe that says nothing about this machine; `device_id` is the device it is of, where that is known."""

    def __init__(self, message: str, device_id: str | None = None) -> None:
        super().__init__(message)
        self.device_id = device_id


def folder() -> Path:
    """Where what was measured of this machine is kept."""
    chosen = os.environ.get("FORERUN_STORE")
    return Path(chosen) if chosen else user_data()


def place() -> Path:
    """The file that the probe is saved in."""
    return folder() / "host.json"


def keep(found: HostSpeed) -> Path:
    """Saves a probe, in place of the one before."""
    path = place()
    write_json(path, asdict(found))
    return path


def saved() -> SavedProbe | None:
    """The saved probe of this machine, None where there is none; UnusableProbe says why one cannot be used."""
    path = place()
    if not os.path.exists(path):  # False also where the folder may not be read
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
    """A number in range; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if SLOWNESS[0] <= value <= SLOWNESS[1] else None


def utc_time(value: Any) -> datetime.datetime | None:
    """A date with its time zone, in UTC; None for anything else."""
    try:
        found = datetime.datetime.fromisoformat(value)
        return found.astimezone(datetime.UTC) if found.tzinfo is not None else None
    except (TypeError, ValueError, OverflowError):
        return None
