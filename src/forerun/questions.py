"""What is asked, made ready for a predictor: the workload's graph and its columns, and what cannot be asked."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from forerun.device import Device
from forerun.errors import ForerunError, did_you_mean
from forerun.graph.ir import Graph
from forerun.graph.profile import Profile, profile
from forerun.graph.runtimes import as_run
from forerun.graph.sources import load_graphs
from forerun.predictors.base import Predictor
from forerun.predictors.specs import spec_problem
from forerun.workload import Workload


@dataclasses.dataclass(frozen=True)
class Question:
    """A workload's graph at its batch size, the graph that serves other batch sizes, and the columns of the first."""

    graph: Graph
    scalable: Graph | None
    columns: Profile


def profiled(workload: Workload) -> Question:
    """The workload ready for a predictor; remembered for models given by name."""
    if not isinstance(workload.model, str) or _is_file(workload.model):
        return _read(workload)
    return _remembered(_Keyed(workload))


def workload_from(settings: dict[str, Any]) -> Workload:
    """A workload from its settings by name."""
    known = {f.name for f in dataclasses.fields(Workload)}
    for name in settings:
        if name not in known:
            raise ForerunError(f"{name!r} is not a setting of a workload.{did_you_mean(str(name), known)}")
    return Workload(**settings)


def dtype_problem(workload: Workload, device: Device) -> str | None:
    """Why this device cannot run this dtype, or None. Only what is certain is a problem."""
    wanted = {"tf32": "tf32", "int8": "fp16", "int4": "fp16", "fp32-ieee": "fp32"}.get(workload.dtype, workload.dtype)
    for dtype in {wanted, workload.amp or wanted}:
        if device.supports(dtype) is False:
            able = ", ".join(d for d in ("fp32", "fp16", "bf16", "tf32") if device.supports(d))
            return f"{device.id} has no {dtype} units; it can run {able}"
    if workload.dtype == "fp8" and not device.supports("fp8"):
        return f"whether {device.id} has fp8 units is not known; int8 stores weights as small and runs everywhere"
    return None


def problem(workload: Workload, device: Device, predictor: Predictor) -> str | None:
    """Why this question has no answer, as a sentence, or None."""
    return dtype_problem(workload, device) or spec_problem(device) or predictor.problem(workload, device)


def check(workload: Workload, device: Device, predictor: Predictor) -> None:
    """Raises the sentence of a question that has no answer."""
    found = problem(workload, device, predictor)
    if found:
        raise ForerunError(found)


def items_per_call(graph: Graph, workload: Workload) -> tuple[int, str]:
    """How many samples or tokens one call handles, and which of them."""
    tokens = graph.facts.get("tokens_per_sample")
    return (workload.batch * tokens, "tokens") if tokens else (workload.batch, "samples")


class _Keyed:
    """A workload as the key of a cache: equal when all settings are, read as text."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.key = tuple(str(value) for value in workload.to_dict().values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.lru_cache(maxsize=256)
def _remembered(keyed: _Keyed) -> Question:
    return _read(keyed.workload)


def _read(workload: Workload) -> Question:
    graph, scalable = load_graphs(workload)
    graph, scalable = as_run(graph, workload.runtime), scalable and as_run(scalable, workload.runtime)
    return Question(graph, scalable, profile(graph, workload.dtype))


def _is_file(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False
