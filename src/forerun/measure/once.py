"""Measures one workload on this machine: its GPU, or its CPU when there is none."""

from __future__ import annotations

from typing import Any

from forerun.errors import ForerunError
from forerun.graph.sources import cnn_family, hf_catalog, huggingface, vision_zoo
from forerun.workload import Workload


def case_of(workload: Workload) -> dict[str, Any]:
    """The workload as the measuring core takes it; a ForerunError says what it cannot run."""
    name, mode = workload.model, workload.mode
    if not isinstance(name, str):
        raise ForerunError("forerun measure takes a model by name, a Hugging Face id, or cnn:depth=…,filters=…")
    if workload.runtime != "eager" or workload.task is not None or isinstance(workload.input_shape, dict):
        raise ForerunError("runtime, task and inputs by name cannot be measured yet")
    if workload.dtype not in ("fp32", "fp16", "bf16"):
        raise ForerunError(f"dtype {workload.dtype} cannot be measured yet; choose fp32, fp16 or bf16")
    case: dict[str, Any] = {
        "kind": "model",
        "mode": mode,
        "batch": workload.batch,
        "dtype": workload.dtype,
        "name": name,
    }
    if mode == "training":
        # The core's sgd has momentum 0.9, as everyone's has.
        optimizer = {"momentum": "sgd", "adamw": "adamw"}.get(str(workload.optimizer))
        if optimizer is None:
            raise ForerunError(f"training with {workload.optimizer} is not measured; choose momentum or adamw")
        case |= {"optimizer": optimizer, "amp": workload.amp}
    known = hf_catalog.architecture(name)
    if known is not None:
        if known.task not in ("causal-lm", "encoder"):
            raise ForerunError(f"{name} is a {known.task} model; language models and encoders can be measured so far")
        return case | {
            "source": "hf",
            "config": known.config,
            "seq_len": workload.seq_len or huggingface.DEFAULT_SEQ_LEN,
        }
    if name.startswith(cnn_family.PREFIX):
        cnn_family.parse(name)
        return case | {"source": "cnn"}
    if not vision_zoo.matches(name):
        raise ForerunError(
            f"{name} cannot be built for measuring; give a name, a catalogued id, or cnn:depth=…,filters=…"
        )
    library, _, bare = name.rpartition("/")
    if isinstance(workload.input_shape, tuple):
        case["input_shape"] = list(workload.input_shape)
    return case | {"source": library or "timm", "name": bare}


def measure_workload(workload: Workload) -> dict[str, Any]:
    """One row: times with their spread, memory, energy where a meter exists, machine and software."""
    case = case_of(workload)
    from forerun.graph import torch_compat

    torch_compat.prepare()
    import torch

    from forerun.measure.core import meters, protocol
    from forerun.measure.core.models import Built

    meter = meters.meter_for("cuda" if torch.cuda.is_available() else "cpu")
    try:
        built = Built(case, meter.device)
        built.prepare(case)
        call = built.call(case)
        call.limit_s = float("inf")  # a sweep passes slow calls over; who asks for one case waits for it
        results = protocol.measure(call, meter)
    except torch.cuda.OutOfMemoryError as e:
        raise ForerunError(f"{workload.model} at batch {workload.batch} does not fit this GPU's memory") from e
    except (RuntimeError, ValueError) as e:
        raise ForerunError(f"{workload.model} could not be measured: {str(e).splitlines()[0]}") from e
    return {
        "case": case, "protocol": protocol.PROTOCOL_VERSION, **built.facts, **results, "device": meter.describe(),
        "host": meters.host(), "software": meters.software(),
    }  # fmt: skip
