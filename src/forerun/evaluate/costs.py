"""Cost of a predictor, measured here: how long it takes to fit and to predict, and how large it is."""

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
#: Repetitions of a single prediction; the median of their times is reported.
REPETITIONS = 20
#: The most cases that are predicted at once.
BATCH = 1000


def costs(predictor: Predictor, cases: Cases, training_s: float) -> dict[str, Any]:
    """The costs of a fitted predictor: `single_s` is one `times` of a graph that is known, `batch_us` one case of
    `predict_cases`. Null where it predicts none of the cases."""
    size, parameters = _size(predictor)
    single = _single_s(predictor, cases)
    return {
        "training_s": training_s, **single, "batch_us": _batch_us(predictor, cases), "bytes": size,
        "parameters": parameters, "machine": machine(),
    }  # fmt: skip


def store_costs(folder: Path, measured: dict[str, Any]) -> None:
    """Writes the costs into the folder of a predictor."""
    (folder / FILE).write_text(json.dumps(measured, indent=1) + "\n")


def stored_costs(folder: Path) -> dict[str, Any] | None:
    """What `store_costs` wrote, or None."""
    path = folder / FILE
    return json.loads(path.read_text()) if path.exists() else None


def machine() -> str:
    """This machine in words: its CPU and cores, and the GPU that PyTorch sees."""
    import torch

    cpu = cpu_name()
    words = f"{platform.machine() if cpu == 'unknown' else cpu}, {os.cpu_count()} cores"
    return f"{words}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else words


def _single_s(predictor: Predictor, cases: Cases) -> dict[str, Any]:
    """Seconds of a single prediction, and what was predicted."""
    question = _question(predictor, cases)
    if question is None:
        return {"single_s": None, "single_of": None}
    workload, device, software = question
    graph = cases.load(workload, software)
    taken = []
    for _ in range(REPETITIONS + 1):
        columns = profile(graph, workload.dtype)  # a new one, since a profile caches what was computed from it
        start = time.perf_counter()
        predictor.times(columns, [device], workload)
        taken.append(time.perf_counter() - start)
    about = f"{workload.model}, {workload.mode}, batch {workload.batch}, on {device.id}"
    return {"single_s": statistics.median(taken[1:]), "single_of": about}  # the first call loads weights and libraries


def _question(predictor: Predictor, cases: Cases) -> tuple[Workload, Device, Any] | None:
    """Of the cases that it predicts, the one whose graph has the median number of launches."""
    launches = cases.rows["kernel_launches"].to_numpy(dtype=float)
    questions = list(zip(cases.workloads, cases.rows["device"], cases.rows["software"], strict=True))
    able = [at for at, (work, name, _) in enumerate(questions) if predictor.problem(work, load_device(name)) is None]
    if not able:
        return None
    workload, name, software = questions[sorted(able, key=lambda at: launches[at])[len(able) // 2]]
    return workload, load_device(name), software


def _batch_us(predictor: Predictor, cases: Cases) -> float | None:
    """Microseconds per case when many are predicted at once; graphs were prepared before (`prepare`)."""
    batch = cases.take(np.arange(len(cases)) < BATCH)
    predicted = predictor.predict_cases(batch)["predicted_latency_ms"].notna().to_numpy()
    if not predicted.any():
        return None
    batch = batch.take(predicted)
    start = time.perf_counter()
    predictor.predict_cases(batch)
    return (time.perf_counter() - start) / len(batch) * 1e6


def _size(predictor: Predictor) -> tuple[int, int | None]:
    """Bytes on disk, and the number of learned parameters; None for these where they are not stored as float arrays."""
    from safetensors.numpy import load_file

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        predictor.save(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        arrays = load_file(folder / ARRAYS).values() if (folder / ARRAYS).exists() else ()
        return size, sum(int(a.size) for a in arrays if np.issubdtype(a.dtype, np.floating)) or None
