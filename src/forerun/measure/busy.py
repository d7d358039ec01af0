"""Whether other programs were using this machine while something was measured: such a row is no clean measurement."""

from __future__ import annotations

import os
from pathlib import Path

from forerun.measure.core.host_facts import read

#: Other programs may take this share of the machine's processor time; from more on it counts as busy. An idle machine
#: stays below 0.03. $FORERUN_BUSY_SHARE changes it.
BUSY_SHARE = 0.1
#: The columns of /proc/stat in which a processor waits for work: idle and iowait.
_WAITING = (3, 4)
#: Guest time is counted in user time already.
_COUNTED = 8


class Watch:
    """Watches the processors from when it is made: how much of them this program used, and how much others did."""

    def __init__(self) -> None:
        self._before = _ticks()

    def others_share(self) -> float | None:
        """The share of all processor time that other programs and other virtual machines took; None where the system
        does not say (it is read from /proc)."""
        after = _ticks()
        if self._before is None or after is None or after[0] <= self._before[0]:
            return None
        whole, used, own = (now - then for now, then in zip(after, self._before, strict=True))
        return min(1.0, max(0.0, used - own) / whole)

    def busy(self) -> tuple[float | None, str | None]:
        """The share of others, and a sentence where that is too much."""
        share = self.others_share()
        if share is None or share <= _limit():
            return share, None
        return share, (
            f"the machine was busy: other programs took {share:.0%} of its processor time while this was measured"
        )


def _limit() -> float:
    try:
        return float(os.environ.get("FORERUN_BUSY_SHARE", BUSY_SHARE))
    except ValueError:
        return BUSY_SHARE


def _ticks() -> tuple[int, int, int] | None:
    """Processor time in the system's ticks so far: of all processors, used on them, and used by this program with the
    processes that it started."""
    first = read("/proc/stat").partition("\n")[0].split()[1 : 1 + _COUNTED]
    if len(first) <= max(_WAITING):
        return None
    counts = [int(word) for word in first]
    waiting = sum(counts[i] for i in _WAITING)
    return sum(counts), sum(counts) - waiting, _own_ticks()


def _own_ticks() -> int:
    """Of this process and all that descend from it, also those that have ended."""
    parent: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        # The name in parentheses may hold spaces: what follows it is state, parent … and, from 11 on, user and system
        # time, first of the process itself, then of children that have ended.
        words = read(str(place / "stat")).rpartition(")")[2].split()
        if len(words) > 14:
            parent[int(place.name)] = int(words[1])
            ticks[int(place.name)] = sum(int(word) for word in words[11:15])
    own = {os.getpid()}
    while more := {pid for pid, above in parent.items() if above in own} - own:
        own |= more
    return sum(ticks.get(pid, 0) for pid in own)
