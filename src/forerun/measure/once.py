"""Measures one workload on this machine: its GPU, or its CPU when there is none."""

from __future__ import annotations

from typing import Any

from forerun.errors import ForerunError
from forerun.measure.cases import case_of
from forerun.workload import Workload


def measure_workload(workload: Workload) -> dict[str, Any]:
    """One row: times with their spread, memory, energy where a meter exists, machine and software."""
    case = case_of(workload)
    from forerun.graph import torch_compat

    torch_compat.prepare()
    import torch

    from forerun.measure.core import meters, protocol, specs
    from forerun.measure.core.models import Built
    from forerun.measure.core.worker import now_text

    meter = meters.meter_for("cuda" if torch.cuda.is_available() else "cpu")
    try:
        built = Built(case, meter.device)
        built.prepare(case)
        call = built.call(case)
        call.limit_s = float("inf")  # a sweep passes slow calls over; who asks for one case waits for it
        results = protocol.measure(call, meter)
    except torch.cuda.OutOfMemoryError as e:
        raise ForerunError(f"{workload.model} at batch {workload.batch} does not fit this GPU's memory") from e
    except Exception as e:  # a model's own code can fail in any way
        said = (str(e).splitlines() or [type(e).__name__])[0]
        raise ForerunError(f"{workload.model} could not be measured: {said}") from e
    shaped = {**case, "input_shape": case.get("input_shape") or built.input_shape}
    return {
        "kind": "model", "key": specs.key_of(case), "repeat": 0, "case": shaped, "status": "ok",
        "protocol": protocol.PROTOCOL_VERSION, "time": now_text(), **built.facts, **results,
        "device": meter.describe(), "host": meters.host(), "software": meters.software(),
    }  # fmt: skip
