"""The empirical ceilings of a device: peaks by dtype, bandwidth of memory and cache, launch cost, idle and full power.

`python -m forerun.measure.core.ceilings --out FILE` measures them where only PyTorch is installed; `forerun measure
machine` does the same and saves them.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import host_facts
from ..meters import Meter
from . import bandwidth, launch_power, peaks
from .effort import WHOLE_S, Effort, check_works, why

__all__ = ["VERSION", "WHOLE_S", "measure"]

VERSION = 1
HOST_S = 40.0  # a CPU has fewer parts that take long


def measure(
    meter: Meter,
    budget_s: float | None = None,
    keep: Callable[[dict[str, Any]], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Measures all ceilings within about `budget_s` seconds. `keep` gets the partial record after every part."""
    budget_s = budget_s or (HOST_S if meter.is_host else WHOLE_S)
    software = host_facts.software(meter)  # imports PyTorch, which does not count towards the budget
    effort = Effort(budget_s)
    rest = launch_power.idle(meter, effort)  # first, before this process has a context on the device
    out: dict[str, Any] = {
        "ceilings": VERSION, "measured_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": host_facts.machine(), "device": meter.describe(), "memory_mb": meter.total_mb(),
        "host": host_facts.host(), "software": software, "budget_s": budget_s, "state_before": meter.state(),
        "power": {"idle": rest}, "peaks": {}, "spent_s": {},
    }  # fmt: skip
    parts: dict[str, Callable[[], Any]] = {
        "launch": partial(launch_power.launch, meter, effort),
        "bandwidth": partial(bandwidth.bandwidth, meter, effort),
        **{dtype: partial(peaks.peak, meter, dtype, effort) for dtype in peaks.DTYPES},
        "full": partial(launch_power.full, meter, effort, out["peaks"]),
        "idle_after": partial(launch_power.idle, meter, effort, settle=True),
    }
    for number, (name, part) in enumerate(parts.items()):
        if progress is not None:
            progress(number, len(parts))
        begin = time.monotonic()
        result = _tried(part, meter) if effort.left_s > 0 else {"reason": f"no time left within {budget_s:g} s"}
        out["spent_s"][name] = time.monotonic() - begin
        if name in peaks.DTYPES:
            out["peaks"][name] = result
        elif name in ("full", "idle_after"):
            meter.reset_memory()
            out["power"][name] = result
        else:
            out[name] = result
        if keep is not None:
            keep(out)
    out["state_after"] = meter.state()
    if keep is not None:
        keep(out)
    if progress is not None:
        progress(len(parts), len(parts))
    return out


def _tried(part: Callable[[], dict[str, Any]], meter: Meter) -> dict[str, Any]:
    """The result of a part, or why it failed; later parts still run while the device works."""
    try:
        return part()
    except Exception as error:  # noqa: BLE001 - any failure of a part is recorded
        check_works(meter)
        return {"reason": why(error)}
