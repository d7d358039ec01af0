"""Average power over an interval, from the steps of a device's energy counter."""

from __future__ import annotations

import threading
import time
from typing import Any

from .meters import Meter

# The H200's energy counter steps every 100 ms. A thread polls it, so that energy is taken between the first and the
# last step within the interval, independent of the length of a call, and no call waits for a step.
POLL_S = 0.003


class EnergySteps:
    """Records (millijoules, time) at every step of the energy counter until end() is called."""

    def __init__(self, meter: Meter, poll_s: float = POLL_S) -> None:
        self.meter, self.last, self.poll_s = meter, meter.energy_mj(), poll_s
        self.steps: list[tuple[float, float]] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        if self.last is not None:
            self.thread.start()

    def end(self) -> None:
        """Stops the polling thread; the recorded steps remain."""
        if self.last is not None:
            self.over.set()
            self.thread.join()

    def power(self, where: str = "in the loop") -> dict[str, Any]:
        """`power_w` and the seconds that it was averaged over, or None and the reason."""
        reason = ""
        if self.last is None:
            reason = self.meter.why_no_energy
        elif len(self.steps) < 2:
            reason = f"the energy counter stepped less than two times {where}"
        if reason:
            return {"power_w": None, "energy_reason": reason}
        (first, began), (last, ended) = self.steps[0], self.steps[-1]
        return {"power_w": (last - first) / 1e3 / (ended - began), "energy_window_s": ended - began}

    def _watch(self) -> None:
        last = self.last
        while not self.over.wait(self.poll_s):
            now, at = self.meter.energy_mj(), time.perf_counter()
            if now is not None and now != last:
                self.steps.append((now, at))
                last = now
