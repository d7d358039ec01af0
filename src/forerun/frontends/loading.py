"""From a model to its graph: the frontend that takes it, the cache of captured graphs, and the format of weights."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from forerun._util import documents, limits
from forerun.capture.capturing import apart
from forerun.errors import ForerunError
from forerun.frontends.base import Frontend, reading_limits
from forerun.frontends.published import notes
from forerun.frontends.registry import find_frontend, frontends
from forerun.graph import cache
from forerun.graph.ir import Graph
from forerun.graph.quantise import FORMATS, in_fp8, quantise
from forerun.graph.splice import with_hidden_ops
from forerun.graph.validate import validate
from forerun.runtimes.registry import runtime
from forerun.workload import Workload

#: Libraries whose version decides what is captured of a model by name.
LIBRARIES = ("transformers", "timm", "torchvision", "torch")
#: The scope of routed experts.
_EXPERTS = re.compile(r"(^|\.)experts(\.|$)")

#: Frontends that have read an untrusted model in this process: where there is one, there may be more.
_read_untrusted: set[str] = set()


def check_runtime(workload: Workload) -> None:
    """Refuses a runtime that there is not, and what a runtime cannot run."""
    if (problem := runtime(workload.runtime).problem(workload)) is not None:
        raise ForerunError(problem)


def load_graph(workload: Workload) -> Graph:
    """The graph of a workload at its batch size."""
    return load_graphs(workload)[0]


def load_graphs(workload: Workload) -> tuple[Graph, Graph | None]:
    """The graph of a workload at its batch size, and the one that serves other batch sizes, if the model has one.

    Taken from the cache when the model has been captured before.
    """
    check_runtime(workload)
    graphs = apart(_captured, workload)
    graph = next(g for g in graphs if g.serves(workload.batch))
    scalable = next((g for g in graphs if g.scalable), None)
    # Notes of a format may name sizes, so the graph is brought to its batch first.
    at_batch = _as_asked(graph.at(workload.batch), workload)
    return at_batch, scalable and _as_asked(scalable, workload, any_batch=True)


def _as_asked(graph: Graph, workload: Workload, *, any_batch: bool = False) -> Graph:
    """The graph in the format of its weights, with the notes on its dtype first."""
    made, first = _in_format(graph, workload, any_batch), list(notes(workload))
    return replace(made, notes=[*first, *(n for n in made.notes if n not in first)]) if first else made


def _in_format(graph: Graph, workload: Workload, any_batch: bool) -> Graph:
    """The graph with its weights in the format that the workload asks for: by its dtype, or as they are published."""
    if graph.facts.get("quantised"):
        return graph
    run = runtime(workload.runtime)
    fused, kept = run.dequantises_in_kernels, run.never_quantised
    if workload.dtype == "fp8":
        return in_fp8(graph, kept)
    if workload.dtype in FORMATS:
        return quantise(graph, workload.dtype, method=run.weight_kernels, fused=fused, skip=kept, any_batch=any_batch)
    stored = graph.facts.get("weight_format")
    if stored and workload.weight_format:
        return _as_stored(graph, stored, fused, any_batch)
    return graph


def _as_stored(graph: Graph, stored: dict[str, Any], fused: bool, any_batch: bool) -> Graph:
    """The graph with its weights as its checkpoint stores them; routed experts may have a format of their own."""
    fused = fused or stored["dtype"] == "fp8"  # their kernels multiply what they read
    skip, how = list(stored["skip"]), {"method": stored["method"], "fused": fused, "any_batch": any_batch}
    if stored.get("experts"):
        scopes = {op.scope for op in graph.ops if op.kind in ("matmul", "moe_matmul")}
        experts = {scope for scope in scopes if _EXPERTS.search(scope)}
        others = [scope for scope in scopes - experts if not any(one.startswith(f"{scope}.") for one in experts)]
        graph = quantise(graph, stored["experts"], skip=[*skip, *others], **how)
        skip += experts
    return quantise(graph, stored["dtype"], skip=skip, **how)


def _captured(workload: Workload) -> list[Graph]:
    """Graphs of which at least one serves the batch size."""
    model = workload.model
    if isinstance(model, Graph):
        return [_given(model, workload)]
    name, frontend = find_frontend(model)
    _check_file(frontend, model)
    if (workload.image_size or workload.images) and not frontend.reads_images:
        raise ForerunError("image_size and images are settings of Hugging Face models; give the input_shape here")
    runs = frontend.runs_modules or (frontend.trains_modules and workload.mode == "training")
    if (workload.amp or workload.channels_last) and not runs:
        raise ForerunError("amp and channels_last are settings of PyTorch models; this one has its own dtypes")
    key = frontend.key(model, workload)
    hashed = _cache_key(name, key, workload)
    graphs = cache.read(hashed) if hashed else []
    if not any(g.serves(workload.batch) for g in graphs):
        fresh = [with_hidden_ops(_entered(g)) for g in _loaded(name, frontend, model, workload)]
        graphs = fresh + [g for g in graphs if not any(f.serves(g.batch) for f in fresh)]
        if not any(g.serves(workload.batch) for g in fresh):
            raise ForerunError(f"the frontend {name} gave no graph of {model} that serves batch {workload.batch}")
        for graph in fresh:
            graph.facts["settings"] = workload.graph_settings
            graph.facts["software"] = {library: key[library] for library in LIBRARIES if key and key.get(library)}
        if hashed:
            cache.write(hashed, graphs)
    title = frontend.title(model)
    # Equal configs share one entry; each is called as it was asked for.
    return graphs if title is None else [replace(graph, name=title) for graph in graphs]


def is_captured(workload: Workload) -> bool:
    """Whether the cache has a graph of the workload's model at its batch: it is then answered in milliseconds."""
    name, frontend = find_frontend(workload.model)
    hashed = _cache_key(name, frontend.key(workload.model, workload), workload)
    return hashed is not None and any(graph.serves(workload.batch) for graph in cache.read(hashed))


def _cache_key(name: str, key: dict[str, Any] | None, workload: Workload) -> str | None:
    """What the graphs of a model are kept under; None where they must not be kept."""
    request = {"frontend": name, "key": key, "settings": workload.graph_settings}
    return None if key is None else cache.digest(request)


def _check_file(frontend: Frontend, model: Any) -> None:
    """Refuses pipes, devices and files of impossible size before anything of them is read."""
    if frontend.claims(model) and Path(model).exists() and not Path(model).is_dir():
        size = documents.regular_file(Path(model))
        if size > frontend.max_bytes:
            raise ForerunError(f"{model} has {size:,} bytes; files of its kind have at most {frontend.max_bytes:,}")


def _loaded(name: str, frontend: Frontend, model: Any, workload: Workload) -> list[Graph]:
    """What the frontend makes of a model; an untrusted one is read by a child process, where it can do no harm."""
    if not frontend.untrusted(model):
        return frontend.load(model, workload)
    if name in _read_untrusted:
        frontend.warm_up()
    _read_untrusted.add(name)
    path = Path(model) if isinstance(model, (str, Path)) else None
    given = str(model) if path else model
    size_mb = path.stat().st_size / 2**20 if path and path.is_file() else 0.0
    what = path.name if path else str(frontend.title(model) or name)
    settings = {**workload.to_dict(), "model": None}
    limit = reading_limits(size_mb, workload)
    found = limits.run(_load_in_child, name, given, settings, what=what, limits=limit)
    return [Graph.from_dict(one) for one in found]


def _load_in_child(name: str, model: Any, settings: dict[str, Any]) -> list[dict[str, Any]]:
    return [graph.to_dict() for graph in frontends()[name].load(model, Workload(**{**settings, "model": model}))]


def _given(graph: Graph, workload: Workload) -> Graph:
    """A graph that the user captured before, if it fits the workload."""
    if not graph.serves(workload.batch):
        raise ForerunError(f"the graph of {graph.name} was captured at batch {graph.batch} and serves no other")
    captured = graph.facts.get("settings", workload.graph_settings)
    asked = workload.graph_settings
    for name in dict.fromkeys((*asked, "channels_last")):
        same = captured.get(name) == asked.get(name)
        if not same and name not in ("quantised", "input_shape", "seq_len", "task", "remote_code"):
            found = f"{name} {captured.get(name)}, not {asked.get(name)}"
            raise ForerunError(f"the graph of {graph.name} was captured with {found}")
    stored = (graph.facts.get("weight_format") or {}).get("dtype")  # of a checkpoint whose weights are quantised
    if (quantised := graph.facts.get("quantised")) not in (None, stored, workload.dtype):
        raise ForerunError(f"the weights of the graph of {graph.name} are {quantised} already, not {workload.dtype}")
    return _entered(graph)


def _entered(graph: Graph) -> Graph:
    """The graph itself once it is valid, with a note for every op of unknown kind."""
    validate(graph)
    unknown = sorted({op.name for op in graph.ops if op.kind == "unknown"})
    notes = [f"no cost law for {name}: its bytes are counted, its FLOPs are not" for name in unknown]
    missing = [note for note in notes if note not in graph.notes]
    return replace(graph, notes=missing + graph.notes) if missing else graph
