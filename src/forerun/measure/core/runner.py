"""Runs the cases of several specs within a time budget and writes a row for each, whatever comes of it."""

from __future__ import annotations

import contextlib
import datetime
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from . import hostprobe, meters, models, operators, plan, specs
from .errors import CaseTimeoutError, TooSlowError
from .protocol import PROTOCOL_VERSION, measure
from .rows import Rows, read

RESTART = 75  # exit code that asks the supervisor for a fresh process
STOP_BEFORE_S = 2.0


class Runner:
    """One process's worth of measuring."""

    def __init__(self, args: Any) -> None:
        self.begin = time.monotonic()
        self.budget_s, self.case_s = float(args.budget), float(args.case_limit)
        self.state = Path(args.state) if args.state else None
        self.rows = Rows(args.out)
        earlier = [row for path in [*args.resume, args.out] for row in read(path)]
        self.done = {(row["key"], row.get("repeat", 0)) for row in earlier if row.get("kind") != "host"}
        # A model that broke a capture once is not captured again: a broken capture can cost a restart.
        self.uncapturable = {
            models.group_key(row["case"])
            for row in earlier
            if row.get("kind") == "model" and str(row.get("graph_ms_reason", "")).startswith("capture failed")
        }
        self.meter = meters.meter_for(args.device)
        _prepare_torch()
        self.common = {
            "protocol": PROTOCOL_VERSION,
            "device": self.meter.describe(),
            "host": meters.host(),
            "software": meters.software(),
        }
        shares = dict(enumerate(args.share or []))
        self.lanes = [
            plan.lane(spec, float(shares.get(i, spec.get("share", 1.0))), args.seed, self.done)
            for i, spec in enumerate(map(specs.load, args.spec))
        ]
        gc.freeze()  # the libraries' own objects need no looking at again
        self.counts: dict[str, int] = {}
        self.probe = not args.no_host_probe
        signal.signal(signal.SIGALRM, _out_of_time)

    def left_s(self) -> float:
        return self.budget_s - (time.monotonic() - self.begin)

    def run(self) -> int:
        if self.probe:
            self._host_row("start")
        while self.left_s() > STOP_BEFORE_S:
            lane = plan.next_lane(self.lanes)
            if lane is None:
                break
            begin = time.monotonic()
            unit = lane.units.pop(0)
            code = self._run_ops(lane, unit) if unit.cases[0]["kind"] == "op" else self._run_models(lane, unit)
            lane.spent_s += time.monotonic() - begin
            if code:
                return code
        if self.probe:
            self._host_row("end")
        units = sum(len(lane.units) for lane in self.lanes)
        print(f"measured {self.counts} in {time.monotonic() - self.begin:.0f} s; {units} units left", flush=True)
        for lane in self.lanes:
            print(f"  {lane.name}: {lane.spent_s:.0f} s, {len(lane.units)} units left", flush=True)
        return 0

    def _run_models(self, lane: plan.Lane, unit: plan.Unit) -> int:
        built: models.Built | None = None
        first = unit.cases[0]
        shown = f"{lane.name} {first.get('name')} {first['mode']} {first['dtype']} r{unit.repeat}"
        begin = time.monotonic()
        self._now(first, unit.repeat)
        try:
            with _limit(self.case_s):
                built = models.Built(first, self.meter.device)
        except Exception as error:  # noqa: BLE001 - a failure is a row
            status, reason = _why(error)
            for case in unit.cases:
                self._write(lane, case, unit.repeat, {"status": status, "reason": f"while building: {reason}"})
            self._forget()
            print(f"{shown}: {status} while building: {reason[:150]}", flush=True)
            return RESTART if _sticky(error) else 0
        built_s = time.monotonic() - begin
        code = 0
        for case in unit.cases:
            if self.left_s() < STOP_BEFORE_S:
                break
            code = self._one_model_case(lane, unit, built, case)
            if code:
                break
        took = time.monotonic() - begin
        print(f"{shown}: {len(unit.cases)} cases in {took:.1f} s (built in {built_s:.1f}), {self.left_s():.0f} s left",
              flush=True)  # fmt: skip
        del built
        self._forget()
        return code

    def _one_model_case(self, lane: plan.Lane, unit: plan.Unit, built: models.Built, case: dict[str, Any]) -> int:
        self._now(case, unit.repeat)
        begin = time.perf_counter()
        row: dict[str, Any] = {}
        failure: Exception | None = None
        call = None
        try:
            with _limit(self.case_s):
                built.prepare(case)
                self._forget()
                row["weights_mb"] = self.meter.allocated_mb()
                call = built.call(case)
                if models.group_key(case) in self.uncapturable:
                    call.capturable, call.why_not_capturable = False, "capture failed before for this model"
                row.update(measure(call, self.meter, unit.repeat, begin + self.case_s / 2))
            row["status"] = "ok"
        except Exception as error:  # noqa: BLE001 - a failure is a row
            row["status"], row["reason"] = _why(error)
            failure = error
            failure.__traceback__ = None  # its frames hold the tensors that must go
        if str(row.get("graph_ms_reason", "")).startswith("capture failed"):
            self.uncapturable.add(models.group_key(case))
        row.update(built.facts, case_s=time.perf_counter() - begin)
        shaped = {**case, "input_shape": case.get("input_shape") or built.input_shape}
        self._write(lane, case, unit.repeat, row, shaped)
        del call
        if row.get("poisoned") or (failure is not None and _sticky(failure)):
            return RESTART
        if failure is not None:
            gc.collect()
        return 0

    def _run_ops(self, lane: plan.Lane, unit: plan.Unit) -> int:
        begin = time.monotonic()
        for case in unit.cases:
            if self.left_s() < STOP_BEFORE_S:
                break
            self._now(case, unit.repeat)
            row: dict[str, Any]
            failure: Exception | None = None
            try:
                with _limit(self.case_s):
                    row = {"status": "ok", **operators.measure(case, self.meter)}
            except Exception as error:  # noqa: BLE001 - a failure is a row
                status, reason = _why(error)
                row, failure = {"status": status, "reason": reason}, error
                failure.__traceback__ = None
            self._write(lane, case, unit.repeat, row)
            if failure is not None:
                self._forget()
                if _sticky(failure):
                    return RESTART
        self._forget()
        print(
            f"{lane.name}: {len(unit.cases)} operators r{unit.repeat} in {time.monotonic() - begin:.1f} s", flush=True
        )
        return 0

    def _host_row(self, when: str) -> None:
        row = {"kind": "host", "key": f"host-{when}", "when": when, **self.common, "time": _now_text()}
        self.rows.append({**row, "status": "ok", **hostprobe.measure(self.meter)})

    def _write(
        self,
        lane: plan.Lane,
        case: dict[str, Any],
        repeat: int,
        row: dict[str, Any],
        shaped: dict[str, Any] | None = None,
    ) -> None:
        key = specs.key_of(case)
        about = {"kind": case["kind"], "key": key, "repeat": repeat, "spec": lane.name, "case": shaped or case}
        when = {"time": _now_text(), "load": os.getloadavg()[0]}
        self.rows.append({**about, **row, **when, **self.common})
        self.done.add((key, repeat))
        self.counts[row["status"]] = self.counts.get(row["status"], 0) + 1

    def _now(self, case: dict[str, Any], repeat: int) -> None:
        """Tells the supervisor what is under way, in case this process does not come back from it."""
        if self.state is not None:
            self.state.write_text(json.dumps({"at": time.time(), "repeat": repeat, "case": case}))

    def _forget(self) -> None:
        gc.collect()
        self.meter.reset_memory()


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raises CaseTimeoutError in the main thread after so many seconds."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise CaseTimeoutError


def _why(error: Exception) -> tuple[str, str]:
    if isinstance(error, CaseTimeoutError):
        return "timeout", "the case took longer than its limit"
    if isinstance(error, TooSlowError):
        return "timeout", str(error)
    text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return ("oom", text) if "out of memory" in str(error).lower() else ("error", text)


def _sticky(error: Exception) -> bool:
    """Whether CUDA itself is broken from here on in this process."""
    text = str(error)
    signs = ("CUDA error", "illegal memory access", "device-side assert", "Offset increment", "captur")
    return any(sign in text for sign in signs) and "out of memory" not in text.lower()


def _prepare_torch() -> None:
    import logging
    import warnings

    import torch

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # every model is built from its config; nothing is to be fetched
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    try:
        from forerun.graph import torch_compat

        torch_compat.prepare()
    except ImportError:
        pass


def _now_text() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def main(args: Any) -> int:
    runner = Runner(args)
    with runner.rows:
        code = runner.run()
    sys.stdout.flush()
    return code
