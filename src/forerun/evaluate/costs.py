"""What a predictor costs: how long it takes to fit and to answer, and how large it is; all of it measured here."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from forerun.device import Device, load_device
from forerun.graph.profile import profile
from forerun.measure.core.host_facts import cpu_name
from forerun.predictors.base import Predictor
from forerun.predictors.cases import Cases
from forerun.predictors.saved import ARRAYS
from forerun.workload import Workload

FILE = "costs.json"
#: How often a single question is asked; of the times, the median counts.
ASKED = 20
#: How many cases are asked about at once, at most.
BATCH = 1000


def costs(predictor: Predictor, cases: Cases, training_s: float) -> dict[str, Any]:
    """The costs of a fitted predictor: `single_s` is one `times` of a graph that is known, `batch_us` one case of
    `predict_cases`. Null where it answers none of the cases."""
    size, parameters = _size(predictor)
    single = _single_s(predictor, cases)
    return {
        "training_s": training_s, **single, "batch_us": _batch_us(predictor, cases), "bytes": size,
        "parameters": parameters, "machine": machine(),
    }  # fmt: skip


def keep_costs(folder: Path, found: dict[str, Any]) -> None:
    """Writes the costs into the folder of a predictor."""
    (folder / FILE).write_text(json.dumps(found, indent=1) + "\n")


def kept_costs(folder: Path) -> dict[str, Any] | None:
    """What `keep_costs` wrote, or None."""
    path = folder / FILE
    return json.loads(path.read_text()) if path.exists() else None


def machine() -> str:
    """This machine in words: its CPU and cores, and the GPU that PyTorch sees."""
    import torch

    named = cpu_name()
    words = f"{platform.machine() if named == 'unknown' else named}, {os.cpu_count()} cores"
    return f"{words}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else words


def _single_s(predictor: Predictor, cases: Cases) -> dict[str, Any]:
    """Seconds of a single prediction, and what was asked."""
    question = _question(predictor, cases)
    if question is None:
        return {"single_s": None, "single_of": None}
    workload, device, software = question
    graph = cases.load(workload, software)
    taken = []
    for _ in range(ASKED + 1):
        columns = profile(graph, workload.dtype)  # anew, since it remembers what was computed of it
        start = time.perf_counter()
        predictor.times(columns, [device], workload)
        taken.append(time.perf_counter() - start)
    about = f"{workload.model}, {workload.mode}, batch {workload.batch}, on {device.id}"
    return {"single_s": statistics.median(taken[1:]), "single_of": about}  # the first call loads what it needs


def _question(predictor: Predictor, cases: Cases) -> tuple[Workload, Device, Any] | None:
    """The answered case whose graph has the median number of launches."""
    launches = cases.rows["kernel_launches"].to_numpy(dtype=float)
    asked = list(zip(cases.workloads, cases.rows["device"], cases.rows["software"], strict=True))
    able = [at for at, (work, name, _) in enumerate(asked) if predictor.problem(work, load_device(name)) is None]
    if not able:
        return None
    workload, name, software = asked[sorted(able, key=lambda at: launches[at])[len(able) // 2]]
    return workload, load_device(name), software


def _batch_us(predictor: Predictor, cases: Cases) -> float | None:
    """Microseconds per case when many are asked about at once; graphs were looked at before (`prepare`)."""
    asked = cases.take(np.arange(len(cases)) < BATCH)
    answered = predictor.predict_cases(asked)["predicted_latency_ms"].notna().to_numpy()
    if not answered.any():
        return None
    asked = asked.take(answered)
    start = time.perf_counter()
    predictor.predict_cases(asked)
    return (time.perf_counter() - start) / len(asked) * 1e6


def _size(predictor: Predictor) -> tuple[int, int | None]:
    """Bytes on disk, and how many learned numbers; None for that where they are not kept as arrays of real numbers."""
    from safetensors.numpy import load_file

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        predictor.save(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        arrays = load_file(folder / ARRAYS).values() if (folder / ARRAYS).exists() else ()
        return size, sum(int(a.size) for a in arrays if np.issubdtype(a.dtype, np.floating)) or None
