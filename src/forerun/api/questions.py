"""What is asked, made ready for a predictor: the workload's graph and its columns, and what cannot be asked."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun._util.readable import short
from forerun.advice.fit import fit
from forerun.device import Device
from forerun.errors import ForerunError, did_you_mean
from forerun.frontends import load_graphs
from forerun.graph.cost import totals
from forerun.graph.ir import Graph
from forerun.graph.layout import Layout
from forerun.graph.pipeline import slowest_stage, with_all_sends
from forerun.graph.profile import Profile, in_dtype, profile
from forerun.graph.shard import tensor_parallel, without_collectives
from forerun.prediction import Fit
from forerun.predictors.base import Predictor, Times
from forerun.predictors.laws.bounds import ask
from forerun.predictors.laws.memory import MemoryEstimate, estimates
from forerun.predictors.laws.specs import spec_problem
from forerun.runtimes.registry import as_run
from forerun.workload import Workload, is_python_file

#: Dtypes whose graph is that of fp32: only the units that do its products differ.
_SAME_GRAPH = ("tf32", "fp32-ieee")


@dataclasses.dataclass(frozen=True)
class Shards:
    """A workload on several devices: its whole graph, and that of one device of every stage with their collectives."""

    layout: Layout
    whole: Graph
    row: Graph


@dataclasses.dataclass(frozen=True)
class Question:
    """A workload's graph at its batch size, the graph that serves other batch sizes, and the columns of the first.

    On several devices (`shards`), the graphs are those of the stage that takes longest, whose memory is asked about,
    and the columns those of one device of every stage in turn, without collectives.
    """

    graph: Graph
    scalable: Graph | None
    columns: Profile
    workload: Workload  # whose call the columns are
    shards: Shards | None = None  # of a call that several devices run together

    @property
    def mode(self) -> str:
        return self.workload.mode

    @property
    def work(self) -> tuple[float, float, float]:
        """FLOPs, multiply-accumulates and bytes of the whole."""
        if self.shards is not None:
            whole = totals(self.shards.whole)
            return whole.flops, whole.macs, whole.bytes
        columns, weights = self.columns, self.columns.repeat[:, None]
        flops, macs, moved = (float((each * weights).sum()) for each in (columns.flops, columns.macs, columns.bytes))
        return flops, macs, moved

    def items(self, workload: Workload) -> tuple[int, str]:
        """How many samples or tokens the whole handles, and which of them."""
        return items_per_call(self.graph, workload)

    def ask(self, predictor: Predictor, devices: Sequence[Device]) -> Any:
        """The predictor's predictions, within the bounds of physics."""
        return ask(predictor, self.columns, devices, self.workload)

    def latency_on_hosts_ms(
        self, times: Times, device: Device, predictor: Predictor, slowness: Sequence[float]
    ) -> list[float]:
        """The latency, whose `times` on one device are known, on hosts that are `slowness` times slower."""
        return predictor.latency_on_hosts_ms(times, self.columns, device, self.workload, slowness)

    def memories(self, devices: Sequence[Device]) -> list[MemoryEstimate]:
        """Simulated memory on every device."""
        return estimates(self.graph, devices)

    def fit(self, device: Device, memory: MemoryEstimate) -> Fit | None:
        """Whether this memory fits, and the largest batch that does."""
        return fit(self.graph, self.scalable, device, memory)


def profiled(workload: Workload) -> Question:
    """One call ready for a predictor; remembered for models given by name."""
    if workload.mode == "generate":
        raise ForerunError("a whole generation is many calls, and this is about one: give mode prefill or decode")
    if not isinstance(workload.model, str) or _is_file(workload.model):
        return _read(workload)
    return _remembered(_Keyed(workload))


def workload_from(settings: dict[str, Any]) -> Workload:
    """A workload from its settings by name."""
    if not isinstance(settings, Mapping):
        raise ForerunError(
            f"a workload is a mapping of its settings, such as {{'model': 'resnet50'}}, got {short(settings)}"
        )
    known = {f.name for f in dataclasses.fields(Workload)}
    for name in settings:
        if name not in known:
            raise ForerunError(f"{name!r} is not a setting of a workload.{did_you_mean(str(name), known)}")
    return Workload(**settings)


def given_model(model: Any, settings: dict[str, Any]) -> Workload:
    """A workload of a model that the caller names itself: naming a Python file of one's own is the order to run it."""
    trusted = {"trust_remote_code": True} if is_python_file(model) else {}
    return workload_from({"model": model, **settings, **trusted})


class Captures:
    """Graphs of models that are no names, each captured once for the same settings, whatever the batch.

    A module or a file may change between two questions, so it is captured anew at each. A decision asks many about one
    model: it has a `Captures` of its own, and the next decision another.
    """

    def __init__(self) -> None:
        self._graphs: dict[tuple[Any, ...], list[Graph]] = {}
        self._models: list[Any] = []  # kept alive, so that no other model gets the identity of one

    def workload(self, workload: Workload) -> Workload:
        """The workload with a graph for its model where that is no name."""
        model = workload.model
        if workload.mode == "generate" or isinstance(model, Graph) or (isinstance(model, str) and not _is_file(model)):
            return workload
        return dataclasses.replace(workload, model=self.graph(workload))

    def graph(self, workload: Workload) -> Graph:
        """The graph at any batch where there is such a one, else at the workload's."""
        model = workload.model
        key = (model if isinstance(model, str) else id(model), repr(workload.graph_settings), workload.dtype)
        captured = self._graphs.setdefault(key, [])
        graph = next((graph for graph in captured if graph.serves(workload.batch)), None)
        if graph is None:
            self._models.append(model)
            graph, scalable = load_graphs(workload)
            graph = scalable if scalable is not None and scalable.serves(workload.batch) else graph
            captured.append(graph)
        return graph


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
    reason = problem(workload, device, predictor)
    if reason:
        raise ForerunError(reason)


def items_per_call(graph: Graph, workload: Workload) -> tuple[int, str]:
    """How many samples or tokens one call handles, and which of them."""
    tokens = graph.facts.get("tokens_per_sample")
    return (workload.batch * tokens, "tokens") if tokens else (workload.batch, "samples")


class _Keyed:
    """A workload as the key of a cache: equal when all settings are, read as text."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.key = tuple(f"{name}={value}" for name, value in workload.to_dict().items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.lru_cache(maxsize=256)
def _remembered(keyed: _Keyed) -> Question:
    return _read(keyed.workload)


def _read(workload: Workload) -> Question:
    if workload.dtype in _SAME_GRAPH and isinstance(workload.model, str):
        plain = profiled(dataclasses.replace(workload, dtype="fp32"))
        return dataclasses.replace(plain, columns=in_dtype(plain.columns, workload.dtype), workload=workload)
    graph, scalable = load_graphs(workload)
    if workload.devices > 1:
        return _sharded(graph, scalable, workload)
    graph, scalable = as_run(graph, workload.runtime), scalable and as_run(scalable, workload.runtime)
    return Question(graph, scalable, profile(graph, workload.dtype), workload)


def _sharded(whole: Graph, scalable: Graph | None, workload: Workload) -> Question:
    layout = Layout(tp=workload.tp, pp=workload.pp)

    def stage(graph: Graph) -> Graph:
        return as_run(slowest_stage(tensor_parallel(graph, layout), layout.pp), workload.runtime)

    row = as_run(with_all_sends(tensor_parallel(whole, layout), layout.pp), workload.runtime)
    columns = profile(without_collectives(row), workload.dtype)
    return Question(stage(whole), scalable and stage(scalable), columns, workload, Shards(layout, whole, row))


def _is_file(name: str) -> bool:
    try:
        return Path(name).exists() or is_python_file(name)
    except (OSError, ValueError):
        return False
