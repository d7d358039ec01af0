"""Keeps a measuring process alive: replaces one that died or hangs, and records the case it was at."""

from __future__ import annotations

import ctypes
import datetime
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import specs
from .protocol import PROTOCOL_VERSION
from .rows import Rows
from .runner import RESTART

POLL_S = 0.5
PR_SET_PDEATHSIG = 1


def main(args: Any, argv: list[str]) -> int:
    """Runs the same command line in a child until the budget is spent or the work is done."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "now.json"
        restarts = 0
        while True:
            left = args.budget - (time.monotonic() - begin)
            if left < 5:
                return 0
            state.unlink(missing_ok=True)
            command = [sys.executable, "-m", __package__, *argv, "--worker", "--state", str(state)]
            if restarts:
                command += ["--no-host-probe"]
            child = subprocess.Popen([*command, "--budget", f"{left:.1f}"], preexec_fn=_die_with_parent)
            code, reason = _watch(child, state, 3 * args.case_limit, left + 30)
            if code == 0:
                return 0
            if reason is not None:
                _record(args.out, state, reason)
            restarts += 1
            print(f"worker ended with {code} ({reason or 'asked for a fresh process'}); restart {restarts}", flush=True)
            if restarts > args.restarts:
                return 1


def _watch(child: subprocess.Popen[bytes], state: Path, stuck_s: float, whole_s: float) -> tuple[int, str | None]:
    """The child's exit code, and why it failed when that was not its own wish."""
    begin = time.monotonic()
    while child.poll() is None:
        time.sleep(POLL_S)
        try:
            stuck = time.time() - json.loads(state.read_text())["at"] > stuck_s
        except (OSError, ValueError, KeyError):
            stuck = time.monotonic() - begin > 300
        if stuck or time.monotonic() - begin > whole_s:
            child.kill()
            child.wait()
            return -9, "the process hung and was ended"
    code = child.returncode
    if code in (0, RESTART):
        return code, None
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return code, f"the process died: {name}"


def _record(out: str, state: Path, reason: str) -> None:
    try:
        now = json.loads(state.read_text())
    except (OSError, ValueError):
        return
    case = now["case"]
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    row = {"kind": case["kind"], "key": specs.key_of(case), "repeat": now["repeat"], "case": case}
    status = "timeout" if "hung" in reason else "error"
    with Rows(out) as rows:
        rows.append({**row, "status": status, "reason": reason, "protocol": PROTOCOL_VERSION, "time": stamp})


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
