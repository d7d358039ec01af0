"""Phase `kernels`: profiler kernel times of the model cases that were already timed, in a separate process."""

from __future__ import annotations

import itertools
import time
from typing import Any

from . import models
from .kernels import kernel_times
from .worker import RESTART, STOP_BEFORE_S, Worker, limit, preload, why

WARMUPS, CALLS = 2, 2
ONE_CALL_MS = 60.0  # longer calls are profiled once


def waiting(earlier: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The timed rows without a kernels line in the order of timing; consecutive rows of one model are grouped. Repeats
    of whole generations are left out, since those take as long as many calls."""
    profiled = {(row["key"], row["repeat"]) for row in earlier if row.get("kind") == "kernels"}
    todo: dict[tuple[str, int], dict[str, Any]] = {}
    for row in earlier:
        at = (row.get("key", ""), row.get("repeat", 0))
        if row.get("kind") != "model" or row.get("status") != "ok" or at in profiled:
            continue
        if not row.get("repeat") or row["case"]["mode"] != "generate":
            todo[at] = row
    return [list(rows) for _, rows in itertools.groupby(todo.values(), lambda row: models.group_key(row["case"]))]


class Kernels(Worker):
    phase = "kernels"

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        self.units = waiting(self.earlier)
        if self.meter.profiler() is not None:
            preload({str(unit[0]["case"]["source"]) for unit in self.units})

    def run(self) -> int:
        code = 0
        while self.units and self.left_s() > STOP_BEFORE_S and not code:
            code = self._unit(self.units.pop(0))
        if not code:
            self.print_end(len(self.units))
        return code

    def _unit(self, unit: list[dict[str, Any]]) -> int:
        if self.meter.profiler() is None:
            for row in unit:
                self._line(row, {"kernel_ms": None, "kernel_ms_reason": self.meter.why_no_kernels})
            return 0
        first = unit[0]
        begin = time.monotonic()
        self.now("kernels", first["key"], first["repeat"])
        try:
            with limit(self.case_s):
                built = models.Built(first["case"], self.meter.device)
        except Exception as error:  # noqa: BLE001 - a failure is a line
            error.__traceback__ = None
            for row in unit:
                self._line(row, {"kernel_ms": None, "kernel_ms_reason": f"while building: {why(error)[1]}"})
            self.forget()
            return RESTART if self.meter.is_broken_by(error) else 0
        built_s = time.monotonic() - begin
        code = done = 0
        for row in unit:
            if self.left_s() < STOP_BEFORE_S:
                self.units.insert(0, unit[done:])
                break
            code = self._case(built, row)
            done += 1
            if code:
                break
        took = time.monotonic() - begin
        print(f"kernels {first['case'].get('name')}: {done} cases in {took:.1f} s (built in {built_s:.1f})", flush=True)
        del built
        self.forget()
        return code

    def _case(self, built: models.Built, row: dict[str, Any]) -> int:
        case = row["case"]
        self.now("kernels", row["key"], row["repeat"])
        begin = time.perf_counter()
        failure: Exception | None = None
        call = None
        try:
            with limit(self.case_s):
                built.prepare(case)
                self.forget()
                call = built.call(case)
                if call.hold is not None:
                    call.hold()
                for _ in range(WARMUPS if case["mode"] != "generate" else 1):
                    if call.restore is not None:
                        call.restore()
                    call.call()
                self.meter.sync()
                calls = 1 if row.get("latency_ms", 0.0) > ONE_CALL_MS else CALLS
                line = kernel_times(self.meter, call.call, call.restore, calls)
        except Exception as error:  # noqa: BLE001 - a failure is a line
            line, failure = {"kernel_ms": None, "kernel_ms_reason": why(error)[1]}, error
            failure.__traceback__ = None
        del call
        self._line(row, {**line, "profile_s": time.perf_counter() - begin})
        return RESTART if failure is not None and self.meter.is_broken_by(failure) else 0

    def _line(self, row: dict[str, Any], line: dict[str, Any]) -> None:
        self.write({"kind": "kernels", "key": row["key"], "repeat": row["repeat"], **line})
