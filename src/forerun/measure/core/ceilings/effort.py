"""The time budget of each part of a ceiling measurement, and how a call is timed within it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..meters import Meter

#: The budget that the durations assume; a smaller one shortens them in proportion.
WHOLE_S = 90.0
#: Shorter calls are timed in groups, so that clock resolution and the final wait are negligible.
CHUNK_S = 0.01


@dataclass
class Effort:
    """The time budget of one run. Parts that would begin after its end are skipped."""

    budget_s: float = WHOLE_S
    began: float = field(default_factory=time.monotonic)

    def of(self, seconds: float) -> float:
        """The duration of a part, scaled from WHOLE_S to this budget."""
        return seconds * min(1.0, self.budget_s / WHOLE_S)

    @property
    def left_s(self) -> float:
        return self.budget_s - (time.monotonic() - self.began)


def best_ms(call: Callable[[], Any], meter: Meter, seconds: float) -> float:
    """Milliseconds of one call in the fastest of at least three chunks of calls that fill this time."""
    call()
    once = meter.loop_ms(call, 1)
    times = calls_in(once, CHUNK_S)
    chunks = max(3, round(1e3 * seconds / max(once, 1e3 * CHUNK_S)))
    return min(meter.loop_ms(call, times) / times for _ in range(chunks))


def calls_in(call_ms: float, seconds: float) -> int:
    """The number of calls of this length that fill the time, at least one."""
    return max(1, min(1_000_000, round(1e3 * seconds / max(call_ms, 1e-3))))


def check_works(meter: Meter) -> None:
    """Raises the device's error if it is unusable after a failure."""
    import torch

    meter.reset_memory()
    torch.ones(1, device=meter.device).add_(1)
    meter.sync()


def why(error: Exception) -> str:
    """The first line of an error, short enough for a table."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
