"""Measures a tabular model on this machine's CPU: a fit, or a call that predicts rows, on a table that is made up."""

from __future__ import annotations

import os
from typing import Any

from forerun.errors import ForerunError
from forerun.frontends.tabular import kinds, settings
from forerun.workload import Workload


def measure_tabular(workload: Workload, device: str = "auto") -> dict[str, Any]:
    """One row, like that of `once.measure_workload`; its threads are all cores that this process may use."""
    if device not in ("auto", "cpu"):
        raise ForerunError(f"tabular models are measured on this machine's CPU, not by the meter {device}")
    model = kinds.parse(workload.model)
    settings.check(workload, model)
    from forerun.measure.core import host_facts, meters, protocol, specs, tabular_cases
    from forerun.measure.core.tabular_phase import Built, versions
    from forerun.measure.core.worker import now_text

    case = tabular_cases.case_of(model, workload.mode, workload.batch, _cores())
    meter = meters.meter_for("cpu")
    try:
        built = Built(case)
        built.prepare(case)
        started = meter.allocated_mb()
        call = built.call(case)
        call.limit_s = float("inf")
        results = protocol.measure(call, meter)
    except ForerunError:
        raise
    except Exception as error:  # a library can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ForerunError(f"{model.name} could not be measured: {reason}") from error
    return {
        "kind": "model", "key": specs.key_of(case), "repeat": 0, "case": {**case, "input_shape": built.input_shape},
        "status": "ok", "protocol": protocol.PROTOCOL_VERSION, "time": now_text(), "weights_mb": started,
        **built.known(), **results, "device": meter.describe(), "host": host_facts.host(),
        "software": {**host_facts.software(meter), **versions()},
    }  # fmt: skip


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
