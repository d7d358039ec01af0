"""Detection of other programs that use this machine during a measurement, which makes the row unreliable."""

from __future__ import annotations

import os
from pathlib import Path

from forerun.measure.core.host_facts import read

#: The share of the machine's processor time above which other programs make it count as busy. An idle machine stays
#: below 0.03. $FORERUN_BUSY_SHARE overrides it.
BUSY_SHARE = 0.1
#: The idle columns of /proc/stat: idle and iowait.
_WAITING = (3, 4)
#: Columns before guest time, which user time already includes.
_COUNTED = 8


class Watch:
    """Processor use since construction: by this program, and by others."""

    def __init__(self) -> None:
        self._before = _ticks()

    def others_share(self) -> float | None:
        """The share of all processor time used by other programs and other virtual machines; None where the system
        does not provide it (it is read from /proc)."""
        after = _ticks()
        if self._before is None or after is None or after[0] <= self._before[0]:
            return None
        total, used, used_here = (now - then for now, then in zip(after, self._before, strict=True))
        return min(1.0, max(0.0, used - used_here) / total)

    def busy(self) -> tuple[float | None, str | None]:
        """The share of other programs, and a sentence if it exceeds the limit."""
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
    """Processor time so far, in system ticks: total over all processors, used, and used by this program and the
    processes that it started."""
    first = read("/proc/stat").partition("\n")[0].split()[1 : 1 + _COUNTED]
    if len(first) <= max(_WAITING):
        return None
    counts = [int(word) for word in first]
    waiting = sum(counts[i] for i in _WAITING)
    return sum(counts), sum(counts) - waiting, _own_ticks()


def _own_ticks() -> int:
    """Ticks of this process and all its descendants, including those that have ended."""
    parent: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        # The name in parentheses may contain spaces. After it come state, parent … and, from 11 on, user and system
        # time, first of the process itself, then of children that have ended.
        words = read(str(place / "stat")).rpartition(")")[2].split()
        if len(words) > 14:
            parent[int(place.name)] = int(words[1])
            ticks[int(place.name)] = sum(int(word) for word in words[11:15])
    family = {os.getpid()}
    while more := {pid for pid, above in parent.items() if above in family} - family:
        family |= more
    return sum(ticks.get(pid, 0) for pid in family)
