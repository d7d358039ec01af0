"""One serving run: requests arrive, the engine answers, and what happened in the steady window is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .energy import EnergySteps
from .errors import EngineError
from .meters import Meter
from .serving_cases import Traffic
from .serving_engine import Engine
from .serving_metrics import Request, Window, measures

RAMP_S = 0.7  # before the steady window, longer until all requests of a closed loop have begun
LONGEST_RAMP_S = 3.0
WINDOW_S = 2.2
LONGEST_WINDOW_S = 4.0
ENOUGH_FINISHED = 8  # whole requests after which the window need not be longer
ENERGY_POLL_S = 0.01  # seldom, since every poll interrupts the engine's thread
STUCK_S = 8.0  # without an iteration although requests wait
WAIT_S = 0.05


@dataclass
class Run:
    """Drives one engine with the requests of one case."""

    engine: Engine
    traffic: Traffic
    meter: Meter
    ramp_s: float = RAMP_S
    window_s: float = WINDOW_S
    begin: float = 0.0
    next_arrival: float = 0.0
    requests: dict[str, Request] = field(default_factory=dict)

    def measure(self) -> dict[str, Any]:
        """Serves until the window is over, and returns its measures, the requests and the iterations."""
        self.begin = time.perf_counter()
        if self.traffic.open:
            self.next_arrival = self.begin + self.traffic.gap_s()
        else:
            for _ in range(self.traffic.case["concurrency"]):
                self._submit(time.perf_counter(), residual=True)
        self._serve_until(self.begin + self.ramp_s, self.begin + LONGEST_RAMP_S, self._all_began)
        steps = EnergySteps(self.meter, ENERGY_POLL_S)
        start = time.perf_counter()
        latest = start + max(self.window_s, LONGEST_WINDOW_S)
        try:
            self._serve_until(start + self.window_s, latest, lambda: self._finished_since(start) >= ENOUGH_FINISHED)
        finally:
            end = time.perf_counter()
            steps.end()
        iterations = list(self.engine.iterations.rows)
        for state in self.engine.active():
            self._answered(state.request_id, list(state.timestamps or ()))
        self.engine.clear()
        window = Window(self.begin, start, end)
        row = measures(list(self.requests.values()), iterations, window)
        power = steps.power("in the window")
        if power["power_w"] is not None:
            power["energy_j"] = power["power_w"] * (end - start)
        return {**row, **power}

    def _serve_until(self, until: float, latest: float, enough: Callable[[], bool]) -> None:
        """Submits what arrives and collects answers until a time, and on until there is enough or the latest time."""
        while True:
            now = time.perf_counter()
            if now >= until and (now >= latest or enough()):
                return
            while self.traffic.open and self.next_arrival <= now:
                self._submit(self.next_arrival)
                self.next_arrival += self.traffic.gap_s()
            wake = min(self.next_arrival if self.traffic.open else now + WAIT_S, now + WAIT_S)
            if now < until:
                wake = min(wake, until)
            result = self.engine.answer(wake - now)
            if result is not None:
                self._answered(result.request_id, list(result.timestamps or ()))
                if not self.traffic.open:
                    self._submit(time.perf_counter())
            elif self.engine.active() and now - self.engine.iterations.at > STUCK_S:
                raise EngineError(f"no iteration in {STUCK_S:.0f} s although requests wait")

    def _all_began(self) -> bool:
        return self.traffic.open or not self.engine.waiting()

    def _finished_since(self, since: float) -> int:
        return sum(r.finished and not r.residual and r.token_times[-1] > since for r in self.requests.values())

    def _submit(self, arrival: float, residual: bool = False) -> None:
        prompt, output = self.traffic.lengths()
        if residual:
            output = self.traffic.residual(output)
        name = f"r{len(self.requests)}"
        self.requests[name] = Request(arrival, prompt, output, residual)
        self.engine.submit(name, self.traffic.prompt(prompt), output)
        self.requests[name].submitted = time.perf_counter()

    def _answered(self, name: str, times: list[float]) -> None:
        if name in self.requests:
            self.requests[name].token_times = times
