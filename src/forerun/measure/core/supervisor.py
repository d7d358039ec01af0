"""Supervises the measuring process: replaces one that died or hangs, and records its current case as failed."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import specs, tabular_cases
from .kernel_phase import waiting
from .protocol import PROTOCOL_VERSION
from .rows import Rows, read
from .worker import RESTART, now_text

POLL_S = 0.5
PR_SET_PDEATHSIG = 1
USER_ERROR = 2  # exit code of a ForerunError


def phases(args: Any) -> list[tuple[str, float]]:
    """The phases in order, each with the cumulative share of the budget at which it must end.

    Timing comes first, since the others use the profiler. Operators and kernels use the time that the other leaves.
    """
    kinds = {str(specs.load(path).get("kind", "model")) for path in args.spec}
    operators = args.operator_share if "op" in kinds else 0.0
    timing = args.timing_share if args.timing_share is not None else (0.64 if operators else 0.76)
    ends: list[tuple[str, float]] = [("batch_limits", 1.0)] if "batch_limit" in kinds else []
    if "serving" in kinds:
        ends.append(("serving", 1.0))
    if tabular_cases.KIND in kinds:
        ends.append((tabular_cases.KIND, 1.0))
    if "model" in kinds:
        if timing:
            ends.append(("timing", timing if timing + operators < 1 else 1.0 - operators))
        ends.append(("kernels", 1.0 - operators))
    if operators:
        ends += [("operators", 1.0)] + ([("kernels", 1.0)] if "model" in kinds else [])
    return [("curves", 1.0), *ends] if "curve" in kinds else ends


def main(args: Any, argv: list[str]) -> int:
    """Runs the same command line in a child process, phase by phase, until the budget is spent or the work is done."""
    begin = time.monotonic()
    restarts = 0
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "now.json"
        for phase, until in phases(args):
            while True:
                left = until * args.budget - (time.monotonic() - begin)
                if left < 5 or (phase == "kernels" and not waiting(_current([*args.resume, args.out]))):
                    break
                state.unlink(missing_ok=True)
                command = [sys.executable, "-m", __package__, *argv, "--worker", "--state", str(state)]
                if restarts:
                    command += ["--no-host-probe"]
                command += ["--phase", phase, "--budget", f"{left:.1f}"]
                child = subprocess.Popen(command, preexec_fn=die_with_parent)
                code, reason = _watch(child, state, 3 * args.case_limit, left + 30 + 2 * args.case_limit)
                if code == 0:
                    break
                if code == USER_ERROR:  # the worker has printed it, and a new one would fail in the same way
                    return code
                if reason is not None:
                    _record(args.out, state, reason)
                restarts += 1
                shown = reason or "it needs a fresh process"
                print(f"{phase} worker ended with {code} ({shown}); restart {restarts}", flush=True)
                if restarts > args.restarts:
                    return 1
    return 0


def _current(paths: list[str]) -> list[dict[str, Any]]:
    return [row for path in paths for row in read(path) if row.get("protocol") == PROTOCOL_VERSION]


def _watch(child: subprocess.Popen[bytes], state: Path, stuck_s: float, whole_s: float) -> tuple[int, str | None]:
    """The child's exit code, and the reason if it was ended."""
    begin = time.monotonic()
    while child.poll() is None:
        time.sleep(POLL_S)
        try:
            stuck = time.time() - json.loads(state.read_text())["at"] > stuck_s
        except OSError:  # no case has begun yet
            stuck = time.monotonic() - begin > 150
        if stuck or time.monotonic() - begin > whole_s:
            child.kill()
            child.wait()
            return -9, "the process hung and was ended"
    code = child.returncode
    if code in (0, RESTART, USER_ERROR):
        return code, None
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return code, f"the process died: {name}"


def _record(out: str, state: Path, reason: str) -> None:
    try:
        now = json.loads(state.read_text())
    except (OSError, ValueError):
        return
    row = now["row"]
    if row is None:  # between two cases
        return
    if row["kind"] == "kernels":
        row.update(kernel_ms=None, kernel_ms_reason=reason)
    else:
        row.update(status="timeout" if "hung" in reason else "error", reason=reason)
    with Rows(out) as rows:
        rows.append({**row, "time": now_text()})


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
