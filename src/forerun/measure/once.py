"""Measures one workload on this machine, on its GPU or else its CPU; ONNX files with onnxruntime."""

from __future__ import annotations

from typing import Any

from forerun.errors import ForerunError
from forerun.frontends.tabular.kinds import is_tabular
from forerun.measure.busy import Watch
from forerun.measure.cases import case_of
from forerun.measure.onnx_runtime import measure_onnx
from forerun.measure.tabular import measure_tabular
from forerun.workload import Workload, is_onnx_file


def measure_workload(workload: Workload, device: str = "auto") -> dict[str, Any]:
    """One row: times with their spread, memory, energy if there is a meter for it, machine and software.

    `device` names a meter; `auto` selects the best one of this machine. A row that was measured while other programs
    used the machine has the status `busy` and the reason.
    """
    watch = Watch()
    if is_tabular(workload.model):
        row = measure_tabular(workload, device)
    else:
        row = measure_onnx(workload, device) if is_onnx_file(workload.model) else _measure(workload, device)
    share, reason = watch.busy()
    row["others_share"] = share
    return row if reason is None else {**row, "status": "busy", "reason": reason}


def _measure(workload: Workload, device: str) -> dict[str, Any]:
    case = case_of(workload)
    from forerun.capture import torch_compat

    torch_compat.prepare()
    import torch

    from forerun.measure.core import host_facts, meters, protocol, specs
    from forerun.measure.core.models import Built
    from forerun.measure.core.worker import now_text

    meter = meters.meter_for(device)
    if workload.dtype == "tf32" and meter.is_host:
        raise ForerunError("a CPU has no TF32: leave dtype at fp32")
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    try:
        built = Built(case, meter.device)
        built.prepare(case)
        call = built.call(case)
        call.limit_s = float("inf")  # a sweep skips slow calls; a single case is not limited
        results = protocol.measure(call, meter)
    except torch.OutOfMemoryError as e:
        raise ForerunError(f"{workload.model} at batch {workload.batch} does not fit the device's memory") from e
    except Exception as e:  # a model's own code can fail in any way
        reason = (str(e).splitlines() or [type(e).__name__])[0]
        raise ForerunError(f"{workload.model} could not be measured: {reason}") from e
    finally:
        matmul.allow_tf32 = before
    shaped = {**case, "input_shape": case.get("input_shape") or built.input_shape}
    return {
        "kind": "model", "key": specs.key_of(case), "repeat": 0, "case": shaped, "status": "ok",
        "protocol": protocol.PROTOCOL_VERSION, "time": now_text(), **built.facts, **results,
        "device": meter.describe(), "host": host_facts.host(), "software": host_facts.software(meter),
    }  # fmt: skip
