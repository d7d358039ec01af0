"""Phase `operators`: device time of single operators, many per profiler session."""

from __future__ import annotations

import time
from typing import Any

from . import operator_profile, operators, plan, specs
from .worker import RESTART, STOP_BEFORE_S, Worker, limit, preload, why

CHUNK_MB = 8192.0  # the most memory for the inputs of one session


class Operators(Worker):
    phase = "operators"

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        done = {(row["key"], row.get("repeat", 0)) for row in self.earlier if row.get("kind") == "op"}
        shares = dict(enumerate(args.share or []))
        self.lanes = [
            plan.lane(spec, float(shares.get(i, 1.0)), args.seed, done)
            for i, spec in enumerate(map(specs.load, args.spec))
            if spec.get("kind") == "op"
        ]
        preload(())

    def run(self) -> int:
        while self.left_s() > STOP_BEFORE_S:
            lane = plan.next_lane(self.lanes)
            if lane is None:
                break
            begin = time.monotonic()
            unit = lane.units.pop(0)
            code, rows = self._unit(lane, unit)
            took = time.monotonic() - begin
            lane.spent_s += took
            print(f"{lane.name}: {rows} operators r{unit.repeat} in {took:.1f} s", flush=True)
            if code:
                return code
        self.print_end(sum(len(lane.units) for lane in self.lanes))
        return 0

    def _unit(self, lane: plan.Lane, unit: plan.Unit) -> tuple[int, int]:
        """Builds and warms up cases until a session is full, measures them, and continues with the rest."""
        cases, rows, code = list(unit.cases), 0, 0
        while cases and not code and self.left_s() > STOP_BEFORE_S:
            ready: list[operator_profile.Ready] = []
            while cases and (not ready or self._has_room()):
                case = cases.pop(0)
                self.now("op", specs.key_of(case), unit.repeat, case, lane.name)
                failure = self._prepare(case, ready)
                if failure is not None:
                    rows += 1
                    self._row(lane, case, unit.repeat, dict(zip(("status", "reason"), why(failure), strict=True)))
                    if self.meter.is_broken_by(failure):
                        return RESTART, rows
                    self.forget()
            for case, row in self._measure(lane, unit, ready):
                rows += 1
                self._row(lane, case, unit.repeat, row)
                if row.get("sticky"):
                    code = RESTART
            ready.clear()
            self.forget()
        return code, rows

    def _has_room(self) -> bool:
        """Whether one more case fits into the session; without a profiler, sessions have one case."""
        return self.meter.profiler() is not None and (self.meter.allocated_mb() or 0.0) < CHUNK_MB

    def _prepare(self, case: dict[str, Any], ready: list[operator_profile.Ready]) -> Exception | None:
        try:
            with limit(self.case_s):
                call = operators.call_of(case, self.meter)
                ready.append(operator_profile.warm_up(case, call, self.meter))
        except Exception as error:  # noqa: BLE001 - a failure is a row
            error.__traceback__ = None
            return error
        return None

    def _measure(
        self, lane: plan.Lane, unit: plan.Unit, ready: list[operator_profile.Ready]
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        profiler = self.meter.profiler()
        if profiler is None:
            return [(one.case, {"status": "ok", **operator_profile.by_wall(one.call, self.meter)}) for one in ready]

        def report(case: dict[str, Any]) -> None:
            self.now("op", specs.key_of(case), unit.repeat, case, lane.name)

        rows = operator_profile.by_profiler(ready, self.meter, profiler, report)
        lost = [i for i, row in enumerate(rows) if row.get("lost")]
        again = self.meter.profiler()
        if lost and again is not None and not any(row.get("sticky") for row in rows):  # records can get lost, once
            repeated = operator_profile.by_profiler([ready[i] for i in lost], self.meter, again, report)
            for i, row in zip(lost, repeated, strict=True):
                rows[i] = row
        return [(one.case, row) for one, row in zip(ready, rows, strict=True) if row]

    def _row(self, lane: plan.Lane, case: dict[str, Any], repeat: int, row: dict[str, Any]) -> None:
        about = {"kind": "op", "key": specs.key_of(case), "repeat": repeat, "spec": lane.name, "case": case}
        self.write({**about, **{k: v for k, v in row.items() if k not in ("lost", "sticky")}})
