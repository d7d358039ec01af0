"""Phase `batch_limits`: the largest batch of a case that runs and the smallest that runs out of memory.

Every batch is tried in a fresh process, since memory that an earlier call cached, loaded or fragmented would shift the
limit. The processes are forked from this one, which has imported the libraries but never touches the device, since its
own context would take memory from the call.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from . import host_facts, meters, models, specs
from .protocol import PROTOCOL_VERSION
from .rows import Rows, read
from .worker import STOP_BEFORE_S, now_text, preload, prepare_torch, report_state, why

KIND = "batch_limit"
CLOSE = 1.015  # the search ends when the smallest batch that ran out of memory is within this factor of one that ran
MOST_TRIALS = 9
SECOND_CALL_S = 3.0  # an inference call that takes longer is not repeated
#: Ambiguous library errors that can also be caused by a lack of memory: treated as out of memory if the device is
#: nearly full.
NO_MEMORY = ("alloc_failed", "unable to find an engine", "cudnn_status_not_supported")
NEARLY_FULL = 0.85

#: One trial of a batch: status (ran, oom, or an error), reason, memory, seconds, device.
Trial = dict[str, Any]


def cases(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The cases of a spec of this kind; the batch of each is the start of its search."""
    return [{**case, "kind": KIND} for case in specs.cases(spec)]


def key_of(case: dict[str, Any]) -> str:
    """The identity of a case, independent of the batch at which its search starts."""
    return specs.key_of({**case, "batch": None})


def find_limit(trial: Callable[[int], Trial], start: int, most: int = MOST_TRIALS) -> dict[str, Any]:
    """The bracketed limit: `ran_batch`, `oom_batch` (None if no batch ran out of memory), and every trial."""
    ran, oom, batch = 0, None, max(1, start)
    trials: list[Trial] = []
    while len(trials) < most:
        result = trial(batch)
        trials.append({"batch": batch, **result})
        if result["status"] == "ran":
            ran = max(ran, batch)
        elif result["status"] == "oom":
            oom = batch if oom is None else min(oom, batch)
        else:  # the failure is not about memory
            break
        if oom is not None and (oom - ran <= 1 or (ran and oom <= CLOSE * ran)):
            break
        batch = _next(ran, oom, trials)
    return {"ran_batch": ran or None, "oom_batch": oom, "trials": trials}


def _next(ran: int, oom: int | None, trials: list[Trial]) -> int:
    if oom is None:  # extrapolate from the memory in use, and go slightly further
        last = trials[-1]
        room = (last.get("total_mb") or 0.0) / max(last.get("used_mb") or 1.0, 1.0)
        return max(ran + 1, int(ran * min(max(1.01 * room, 1.02), 2.0)))
    if not ran:
        return max(1, min(oom - 1, int(0.93 ** len(trials) * oom)))
    return min(oom - 1, max(ran + 1, round((ran * oom) ** 0.5)))


def try_batch(case: dict[str, Any], batch: int, device: str, limit_s: float) -> Trial:
    """Runs one batch in a fresh process; a process that hangs is ended, and hanging or dying is recorded."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=({**case, "batch": batch}, device, sender))
    begin = time.monotonic()
    child.start()
    sender.close()
    try:
        if not receiver.poll(limit_s):
            return {"status": "timeout", "reason": f"not done after {limit_s:.0f} s"}
        result: Trial = json.loads(receiver.recv_bytes())
        return {**result, "seconds": round(time.monotonic() - begin, 3)}
    except EOFError:
        child.join()
        return {"status": "error", "reason": f"the process died with exit code {child.exitcode}"}
    finally:
        child.kill()
        child.join()


def _child(case: dict[str, Any], device: str, answer: Connection) -> None:
    meter = meters.meter_for(device)
    result: Trial = {}
    try:
        result = {"device": meter.describe(), "software": host_facts.software(meter), "total_mb": meter.total_mb()}
        _run(case, meter)
        result["status"] = "ran"
    except Exception as error:  # noqa: BLE001 - running out of memory is the expected outcome
        result["status"], result["reason"] = why(error)
        text = str(error).lower()
        used, total = meter.memory()["reserved_mb"], meter.total_mb()
        if any(sign in text for sign in NO_MEMORY) and used and total and used > NEARLY_FULL * total:
            result["status"] = "oom"
    result.update(meter.memory())
    answer.send_bytes(json.dumps(result).encode())
    answer.close()


def _run(case: dict[str, Any], meter: meters.Meter) -> None:
    """Makes the call twice, since the optimizer's state exists only from the second step on."""
    built = models.Built(case, meter.device)
    built.prepare(case)
    meter.reset_memory()
    call = built.call(case)
    begin = time.perf_counter()
    call.call()
    meter.sync()
    if case["mode"] == "training" or time.perf_counter() - begin < SECOND_CALL_S:
        call.call()
        meter.sync()


class BatchLimits:
    """Searches the limit of every case of the specs in turn; each case is a row."""

    phase = "batch_limits"

    def __init__(self, args: Any) -> None:
        self.begin, self.budget_s = time.monotonic(), float(args.budget)
        self.limit_s, self.device = 2 * float(args.case_limit), str(args.device)
        self.state = Path(args.state) if args.state else None
        self.rows, self.session, self.described = Rows(args.out), uuid.uuid4().hex[:12], False
        done = {row["key"] for path in [*args.resume, args.out] for row in read(path) if row.get("kind") == KIND}
        loaded = [spec for spec in map(specs.load, args.spec) if spec.get("kind") == KIND]
        self.todo = [(spec["name"], case) for spec in loaded for case in cases(spec) if key_of(case) not in done]
        prepare_torch()
        preload({str(case["source"]) for _, case in self.todo})

    def left_s(self) -> float:
        return self.budget_s - (time.monotonic() - self.begin)

    def run(self) -> int:
        while self.todo and self.left_s() > STOP_BEFORE_S:
            name, case = self.todo.pop(0)

            def trial(batch: int, case: dict[str, Any] = case) -> Trial:
                if self.left_s() < STOP_BEFORE_S:
                    return {"status": "stopped", "reason": "the time budget is spent"}
                report_state(self.state, None)
                return try_batch(case, batch, self.device, min(self.limit_s, max(1.0, self.left_s())))

            limit = find_limit(trial, case["batch"])
            last = limit["trials"][-1]
            if self.left_s() < STOP_BEFORE_S and not (limit["ran_batch"] and limit["oom_batch"]):
                break  # the budget was too short; another run continues
            self._write(name, case, limit)
            shown = f"{case.get('name')} {case['mode']} {case['dtype']} from {case['batch']}"
            ends = f"ran {limit['ran_batch']}, out of memory {limit['oom_batch']}"
            print(
                f"{shown}: {ends} ({last['status']} {last.get('reason', '')[:100]}), {self.left_s():.0f} s", flush=True
            )
        print(f"{self.phase}: {len(self.todo)} cases remaining", flush=True)
        return 0

    def _write(self, name: str, case: dict[str, Any], limit: dict[str, Any]) -> None:
        about = {"session": self.session, "protocol": PROTOCOL_VERSION, "time": now_text()}
        trials = [{k: v for k, v in t.items() if k not in ("device", "software")} for t in limit["trials"]]
        known: Trial = next((t for t in limit["trials"] if "device" in t), {})
        if not self.described and known:
            self.described = True
            described = {"device": known["device"], "host": host_facts.host(), "software": known["software"]}
            self.rows.append({"kind": "session", **about, "phase": self.phase, **described})
        bracketed = limit["ran_batch"] and limit["oom_batch"]
        status = "ok" if bracketed else trials[-1]["status"]
        row = {"kind": KIND, "key": key_of(case), "repeat": 0, "spec": name, "case": case, **limit, "trials": trials}
        row |= {"status": "open" if status in ("ran", "oom") else status, "load": os.getloadavg()[0]}
        self.rows.append({**row, **about})
