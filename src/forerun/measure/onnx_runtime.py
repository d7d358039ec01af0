"""Measures an ONNX file on this machine's CPU with onnxruntime, under the same protocol as PyTorch models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from forerun._util.extras import needed
from forerun.errors import ForerunError
from forerun.runtimes.onnxruntime import OnnxRuntime
from forerun.runtimes.registry import USUAL
from forerun.workload import Workload, is_onnx_file

#: onnxruntime's names of element types -> those of NumPy.
_NUMPY = {
    "float": "float32", "float16": "float16", "double": "float64", "int64": "int64", "int32": "int32",
    "int16": "int16", "int8": "int8", "uint8": "uint8", "bool": "bool",
}  # fmt: skip


def runtime_of(model: Any, runtime: str) -> str:
    """The runtime under which `forerun measure` runs a model: for ONNX files, onnxruntime."""
    return OnnxRuntime.name if is_onnx_file(model) else runtime


def measure_onnx(workload: Workload, device: str = "auto", *, limit_s: float = float("inf")) -> dict[str, Any]:
    """One row, like that of `once.measure_workload`, with the runtime `onnxruntime`.

    The row names the file without its folder; `sha256` tells which file it is. A call over `limit_s` is an error.
    """
    path = Path(workload.model)
    _check(workload, path, device)
    runtime = _library()
    from forerun.capture import torch_compat

    torch_compat.prepare()
    from forerun.frontends.base import file_hash, first_line
    from forerun.measure.core import host_facts, meters, protocol, specs
    from forerun.measure.core.worker import now_text

    threads = _cores()
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        given = _inputs(session.get_inputs(), workload, path.name)
        meter = meters.meter_for(str(OnnxRuntime.meter))
        call = protocol.Call(lambda: session.run(None, given), limit_s=limit_s)
        results = protocol.measure(call, meter)
    except ForerunError:
        raise
    except Exception as e:  # a file can make the library raise anything
        raise ForerunError(f"{path} could not be measured with onnxruntime: {first_line(e)}") from e
    case = {
        "kind": "model", "source": "onnx", "name": path.stem, "path": path.name, "sha256": file_hash(path),
        "mode": "inference", "batch": workload.batch, "dtype": "fp32", "threads": threads,
        "input_shape": {name: list(value.shape) for name, value in given.items()}, "runtime": OnnxRuntime.name,
        "seq_len": workload.seq_len,
    }  # fmt: skip
    software = {**host_facts.software(meter), OnnxRuntime.name: runtime.__version__}
    return {
        "kind": "model", "key": specs.key_of(case), "repeat": 0, "case": case, "status": "ok",
        "protocol": protocol.PROTOCOL_VERSION, "time": now_text(), **results,
        "kernel_ms": None, "kernel_ms_reason": meter.why_no_kernels,
        "device": meter.describe(), "host": host_facts.host(), "software": software,
    }  # fmt: skip


def _check(workload: Workload, path: Path, device: str) -> None:
    if not path.is_file():
        raise ForerunError(f"there is no file {path}")
    if device not in ("auto", OnnxRuntime.meter):
        raise ForerunError(f"ONNX files are measured on this machine's CPU, not by the meter {device}")
    if workload.mode != "inference":
        raise ForerunError("an ONNX file can be measured for inference only")
    if workload.amp or workload.channels_last or workload.runtime not in (USUAL, OnnxRuntime.name):
        raise ForerunError("an ONNX file is measured as it is: omit amp, channels_last and other runtimes")
    if workload.dtype != "fp32":
        raise ForerunError(f"an ONNX file is measured in its own dtypes: omit --dtype {workload.dtype}")


def _library() -> Any:
    with needed("measuring an ONNX file"):
        import onnxruntime
    return onnxruntime


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _inputs(declared: Any, workload: Workload, name: str) -> dict[str, Any]:
    """Arrays for every input: random floats, and for integers the value of `_whole_number`."""
    import numpy as np

    given = workload.input_shape
    shapes = given if isinstance(given, dict) else {declared[0].name: given} if given and declared else {}
    unknown = [n for n in shapes if n not in {i.name for i in declared}]
    if unknown:
        raise ForerunError(f"{name} has no input called {unknown[0]!r}; it has {', '.join(i.name for i in declared)}")
    random = np.random.default_rng(0)
    out: dict[str, Any] = {}
    for i in declared:
        kind = _NUMPY.get(str(i.type).removeprefix("tensor(").removesuffix(")"))
        if kind is None:
            raise ForerunError(f"the input {i.name} of {name} is a {i.type}, which cannot be made up")
        shape = _shape(i, shapes.get(i.name), workload, name, first=i is declared[0])
        if kind.startswith("float"):
            out[i.name] = random.standard_normal(shape).astype(kind)
        else:
            out[i.name] = np.full(shape, _whole_number(i.name.lower(), workload), dtype=kind)
    return out


def _whole_number(name: str, workload: Workload) -> int:
    """The value of an integer input: where its name tells its meaning, one that skips no work."""
    if "length" in name:
        return workload.seq_len or 1
    if name in ("sr", "sample_rate", "sampling_rate"):
        return 16_000
    return 1 if "mask" in name else 0


def _shape(
    declared: Any, given: tuple[int, ...] | None, workload: Workload, name: str, *, first: bool
) -> tuple[int, ...]:
    """The sizes of an input: those of the file with the batch first, and the given ones for dynamic sizes."""
    if given is not None:
        if len(given) != len(declared.shape):
            return (workload.batch, *given)
        # A 1 for a dynamic size stands for the batch, as in a prediction.
        open_axes = [i for i, size in enumerate(declared.shape) if given[i] == 1 and not isinstance(size, int)]
        return tuple(workload.batch if i in open_axes[:1] else size for i, size in enumerate(given))
    sizes = []
    for place, size in enumerate(declared.shape):
        if isinstance(size, int) and size > 0:
            if first and place == 0 and size != workload.batch:
                raise ForerunError(f"{name} was exported for batch {size} and takes no other")
            sizes.append(size)
        elif place == 0:
            sizes.append(workload.batch)
        elif workload.seq_len is not None:
            sizes.append(workload.seq_len)
        else:
            raise ForerunError(
                f"the sizes of {declared.name} are open in {name}: give --seq-len, or --input-shape {declared.name}=… "
                "without the batch"
            )
    return tuple(sizes)
