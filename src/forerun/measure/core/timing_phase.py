"""Phase `timing`: latency, energy, memory and graph replay of every model case. It never uses the profiler, since all
launches after a profiler session are slower."""

from __future__ import annotations

import gc
import os
import time
from typing import Any

from . import host_probe, models, plan, runtimes, specs
from .protocol import measure
from .worker import RESTART, STOP_BEFORE_S, Worker, limit, preload, why


class Timing(Worker):
    phase = "timing"
    kind = "model"  # of the specs that it measures
    unit_s = 12.0  # a longer unit is suspended for the other specs and continued later

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        timed = [row for row in self.earlier if row.get("kind") == "model"]
        done = {(row["key"], row.get("repeat", 0)) for row in timed}
        # Models that broke a capture are not captured again, since a broken capture can require a restart.
        self.uncapturable = {
            models.group_key(row["case"])
            for row in timed
            if str(row.get("graph_ms_reason", "")).startswith("capture failed")
        }
        shares = dict(enumerate(args.share or []))
        self.lanes = [
            self.lane(spec, float(shares.get(i, spec.get("share", 1.0))), args.seed, done)
            for i, spec in enumerate(map(specs.load, args.spec))
            if spec.get("kind", "model") == self.kind
        ]
        preload({str(unit.cases[0]["source"]) for lane in self.lanes for unit in lane.units})
        self.probe = not args.no_host_probe

    def run(self) -> int:
        if self.probe:
            self._host_row("start")
        while self.left_s() > STOP_BEFORE_S:
            lane = plan.next_lane(self.lanes)
            if lane is None:
                break
            self.rest()
            begin = time.monotonic()
            code = self._unit(lane, lane.units.pop(0))
            lane.spent_s += time.monotonic() - begin
            if code:
                return code
        if self.probe:
            self._host_row("end")
        self.print_end(sum(len(lane.units) for lane in self.lanes))
        for lane in self.lanes:
            print(f"  {lane.name}: {lane.spent_s:.0f} s, {len(lane.units)} units left", flush=True)
        return 0

    def lane(self, spec: dict[str, Any], share: float, seed: int, done: set[tuple[str, int]]) -> plan.Lane:
        return plan.lane(spec, share, seed, done)

    def build(self, case: dict[str, Any]) -> models.Built:
        return models.Built(case, self.meter.device)

    def _unit(self, lane: plan.Lane, unit: plan.Unit) -> int:
        built: models.Built | None = None
        first = unit.cases[0]
        shown = f"{lane.name} {first.get('name')} {first['mode']} {first['dtype']} r{unit.repeat}"
        begin = time.monotonic()
        self.now("model", specs.key_of(first), unit.repeat, first, lane.name)
        try:
            with limit(self.case_s):
                built = self.build(first)
        except Exception as error:  # noqa: BLE001 - a failure is a row
            status, reason = why(error)
            error.__traceback__ = None
            for case in unit.cases:
                self._case_row(lane, case, unit.repeat, {"status": status, "reason": f"while building: {reason}"})
            self.forget()
            print(f"{shown}: {status} while building: {reason[:150]}", flush=True)
            return RESTART if self.meter.is_broken_by(error) else 0
        built_s = time.monotonic() - begin
        code = done = 0
        for case in unit.cases:
            if self.left_s() < STOP_BEFORE_S or (done and time.monotonic() - begin > self.unit_s):
                lane.units.insert(0, plan.Unit(unit.cases[done:], unit.repeat))
                break
            code = self._case(lane, unit, built, case)
            done += 1
            if code:
                break
        took = time.monotonic() - begin
        print(f"{shown}: {done} cases in {took:.1f} s (built in {built_s:.1f}), {self.left_s():.0f} s left", flush=True)
        del built
        self.forget()
        return code

    def _case(self, lane: plan.Lane, unit: plan.Unit, built: models.Built, case: dict[str, Any]) -> int:
        self.now("model", specs.key_of(case), unit.repeat, case, lane.name)
        begin = time.perf_counter()
        row: dict[str, Any] = {}
        failure: Exception | None = None
        call = None
        try:
            with limit(self.case_s):
                built.prepare(case)
                self.forget()
                row["weights_mb"] = self.meter.allocated_mb()
                call = built.call(case)
                row.update(runtimes.runtime_of(case).first_call(call.call, self.meter.sync))
                prepared_s = time.perf_counter() - begin
                if models.group_key(case) in self.uncapturable:
                    call.capturable, call.why_not_capturable = False, "capture failed before for this model"
                row.update(measure(call, self.meter, unit.repeat, begin + self.case_s / 2))
                row["spent_s"] = {"prepare": prepared_s, **row["spent_s"]}
            row["status"] = "ok"
        except Exception as error:  # noqa: BLE001 - a failure is a row
            row["status"], row["reason"] = why(error)
            failure = error
            failure.__traceback__ = None  # its frames keep tensors alive
        if str(row.get("graph_ms_reason", "")).startswith("capture failed"):
            self.uncapturable.add(models.group_key(case))
        row.update(built.known(), case_s=time.perf_counter() - begin)
        shaped = {**case, "input_shape": case.get("input_shape") or built.input_shape}
        self._case_row(lane, case, unit.repeat, row, shaped)
        del call
        if row.get("poisoned") or (failure is not None and self.meter.is_broken_by(failure)):
            return RESTART
        if failure is not None:
            gc.collect()
        return 0

    def _host_row(self, when: str) -> None:
        row = {"kind": "host", "key": f"host-{when}", "when": when, "status": "ok"}
        self.write({**row, **host_probe.measure(self.meter)})

    def _case_row(
        self,
        lane: plan.Lane,
        case: dict[str, Any],
        repeat: int,
        row: dict[str, Any],
        shaped: dict[str, Any] | None = None,
    ) -> None:
        about = {"kind": "model", "key": specs.key_of(case), "repeat": repeat, "spec": lane.name}
        about["case"] = shaped or case
        self.write({**about, **row, "load": os.getloadavg()[0]})
