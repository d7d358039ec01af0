"""The base of the workers of all phases: budget, file of rows, session line, limits, and error classification."""

from __future__ import annotations

import abc
import contextlib
import datetime
import gc
import json
import os
import signal
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from . import host_facts, meters
from .errors import CaseTimeoutError, TooSlowError
from .protocol import PROTOCOL_VERSION
from .rows import Rows, read

RESTART = 75  # exit code that makes the supervisor start a fresh process
STOP_BEFORE_S = 2.0
OUT_OF_MEMORY = ("out of memory", "can't allocate memory")  # of a GPU, of the host
LIBRARIES = {"timm": ("timm",), "torchvision": ("torchvision",), "hf": ("transformers",)}


class Worker(abc.ABC):
    """One process of one phase. Every row refers to its session, which is described once."""

    phase = ""

    def __init__(self, args: Any) -> None:
        self.begin = time.monotonic()
        self.budget_s, self.case_s = float(args.budget), float(args.case_limit)
        self.cooldown_s = float(args.cooldown)
        self.state = Path(args.state) if args.state else None
        self.rows = Rows(args.out)
        every = [row for path in [*args.resume, args.out] for row in read(path)]
        self.meter = meters.meter_for(args.device)
        # Rows of another protocol or device do not count as measured.
        elsewhere = other_devices(every, str(self.meter.describe()["name"]))
        self.earlier = [
            row for row in every if row.get("protocol") == PROTOCOL_VERSION and row.get("session") not in elsewhere
        ]
        prepare_torch()
        self.session = uuid.uuid4().hex[:12]
        self.described = False
        self.counts: dict[str, int] = {}
        signal.signal(signal.SIGALRM, _out_of_time)

    def left_s(self) -> float:
        return self.budget_s - (time.monotonic() - self.begin)

    def write(self, row: dict[str, Any]) -> None:
        about = {"session": self.session, "protocol": PROTOCOL_VERSION}
        if not self.described:
            self.described = True
            described = {"device": self.meter.describe(), "host": host_facts.host(), "software": self.software()}
            self.rows.append({"kind": "session", **about, "phase": self.phase, "time": now_text(), **described})
        self.rows.append({**row, **about, "time": now_text()})
        self._report(None)
        status = str(row.get("status", "done"))
        self.counts[status] = self.counts.get(status, 0) + 1

    def software(self) -> dict[str, Any]:
        """The versions that the rows depend on; phases with further libraries add theirs."""
        return host_facts.software(self.meter)

    def now(self, kind: str, key: str, repeat: int, case: dict[str, Any] | None = None, spec: str = "") -> None:
        """Reports the current case to the supervisor, in case this process does not survive it."""
        if self.state is not None:
            row = {"kind": kind, "key": key, "repeat": repeat, "session": self.session, "protocol": PROTOCOL_VERSION}
            if case is not None:
                row.update(spec=spec, case=case)
            self._report(row)

    def _report(self, row: dict[str, Any] | None) -> None:
        report_state(self.state, row)

    def rest(self) -> None:
        """Lets the device cool down before the next model, if --cooldown is given."""
        until = time.monotonic() + min(self.cooldown_s, max(0.0, self.left_s()))
        while time.monotonic() < until:
            time.sleep(min(5.0, max(0.0, until - time.monotonic())))
            self._report(None)

    def forget(self) -> None:
        gc.collect()
        self.meter.reset_memory()

    def print_end(self, waiting: int) -> None:
        print(f"{self.phase}: {self.counts} in {time.monotonic() - self.begin:.0f} s; {waiting} units left", flush=True)

    @abc.abstractmethod
    def run(self) -> int:
        """Does the phase's work and returns the exit code."""


def report_state(state: Path | None, row: dict[str, Any] | None) -> None:
    """Tells the supervisor that this process is alive, and its current row."""
    if state is not None:
        fresh = state.with_suffix(".new")  # the supervisor reads either the complete new state or the previous one
        fresh.write_text(json.dumps({"at": time.time(), "row": row}))
        os.replace(fresh, state)


def other_devices(rows: Iterable[dict[str, Any]], device: str) -> set[str]:
    """The sessions on devices with another name."""
    others = set()
    for row in rows:
        name = str((row.get("device") or {}).get("name", device)) if row.get("kind") == "session" else device
        if not name.startswith(device):  # a CPU's name may be followed by its model and cores
            others.add(row["session"])
    return others


def preload(sources: Iterable[str]) -> None:
    """Imports the libraries that the cases need, and exempts their objects from garbage collection."""
    for source in sources:
        for library in LIBRARIES.get(source, ()):
            with contextlib.suppress(Exception):  # a broken library fails again with its first model
                __import__(library)
        if source == "hf":
            with contextlib.suppress(Exception):
                from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, DynamicCache

                del AutoModelForCausalLM, AutoModelForSequenceClassification, DynamicCache
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raises CaseTimeoutError in the main thread after this many seconds."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise CaseTimeoutError


def why(error: Exception) -> tuple[str, str]:
    """A row's status and reason."""
    if isinstance(error, CaseTimeoutError):
        return "timeout", "the case took longer than its limit"
    if isinstance(error, TooSlowError):
        return "timeout", str(error)
    text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return ("oom", text) if any(sign in str(error).lower() for sign in OUT_OF_MEMORY) else ("error", text)


def prepare_torch() -> None:
    """Configures PyTorch: quiet, offline and seeded, with fallbacks for older versions."""
    import logging
    import warnings

    import torch

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are built from their configs, without downloads
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    try:
        from forerun.capture import torch_compat

        torch_compat.prepare()
    except ImportError:
        pass


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
