"""How long each part of measuring a device's ceilings may take, and how a call is timed within that."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..meters import Meter

#: The budget for which the times below are meant; a smaller one shortens them all in proportion.
WHOLE_S = 90.0
#: Calls that are shorter are timed together, so that a clock's step and the wait at the end do not count.
CHUNK_S = 0.01


@dataclass
class Effort:
    """The times of one run. Parts that would begin after its end are left out."""

    budget_s: float = WHOLE_S
    began: float = field(default_factory=time.monotonic)

    def of(self, seconds: float) -> float:
        """What a part that takes this long within WHOLE_S may take here."""
        return seconds * min(1.0, self.budget_s / WHOLE_S)

    @property
    def left_s(self) -> float:
        return self.budget_s - (time.monotonic() - self.began)


def best_ms(call: Callable[[], Any], meter: Meter, seconds: float) -> float:
    """Milliseconds of one call in the fastest of the chunks of calls that fill this time, three of them at least."""
    call()
    once = meter.loop_ms(call, 1)
    times = calls_in(once, CHUNK_S)
    chunks = max(3, round(1e3 * seconds / max(once, 1e3 * CHUNK_S)))
    return min(meter.loop_ms(call, times) / times for _ in range(chunks))


def calls_in(call_ms: float, seconds: float) -> int:
    """How many calls of this length fill that time, at least one."""
    return max(1, min(1_000_000, round(1e3 * seconds / max(call_ms, 1e-3))))


def check_works(meter: Meter) -> None:
    """Raises what the device raises when it cannot be used any more after something failed on it."""
    import torch

    meter.reset_memory()
    torch.ones(1, device=meter.device).add_(1)
    meter.sync()


def why(error: Exception) -> str:
    """The first line of what went wrong, short enough for a table."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
