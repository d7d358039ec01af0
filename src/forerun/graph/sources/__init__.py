"""The front doors: every kind of model comes in here and leaves as graphs. `door.Door` is the contract of one."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

from forerun import documents, limits
from forerun.errors import ForerunError, did_you_mean
from forerun.graph import cache
from forerun.graph.ir import Graph
from forerun.graph.quantise import FORMATS, in_fp8, quantise
from forerun.graph.sources.door import Door, weights_only
from forerun.graph.splice import with_hidden_ops
from forerun.graph.validate import validate
from forerun.workload import Workload

#: Files that hold weights or code and no architecture, unless a door says otherwise.
_WEIGHTS = (".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".pkl")


@functools.cache
def doors() -> dict[str, Door]:
    """Every registered front door by name, in the order they are asked."""
    found: dict[str, tuple[str, Door]] = {}
    for point in entry_points(group="forerun.sources"):
        if point.name in found and found[point.name][0] != point.value:
            raise ForerunError(f"two front doors are called {point.name}: {found[point.name][0]} and {point.value}")
        try:
            made = point.load()()
        except Exception as e:
            raise ForerunError(f"the front door {point.name} ({point.value}) cannot be loaded: {e}") from e
        if not isinstance(made, Door):
            raise ForerunError(f"the front door {point.name} ({point.value}) is no subclass of {Door.__module__}.Door")
        found[point.name] = (point.value, made)
    ordered = sorted(found.items(), key=lambda item: (-item[1][1].priority, item[0]))
    return {name: door for name, (_, door) in ordered}


@functools.cache
def _own_version() -> str:
    return version("forerun")


def find_door(model: Any) -> tuple[str, Door]:
    """The door that takes this model; a ForerunError with suggestions when there is none."""
    claimed: dict[str, Door] = {}
    if isinstance(model, (str, Path)):
        path = Path(model)
        if not 0 < len(str(model)) < 1000 or any(len(part) > 255 for part in path.parts):
            raise ForerunError("a model needs a name, an id or a path of reasonable length")
        claimed = _claimants(path)
    weights = isinstance(model, (str, Path)) and Path(model).suffix.lower() in _WEIGHTS
    for name, door in (claimed if claimed or weights else doors()).items():
        if door.matches(model):
            return name, door
    if weights:
        raise ForerunError(weights_only(model))
    raise ForerunError(_unknown(model, is_file=bool(claimed)))


def is_file(model: str | Path) -> bool:
    """Whether a name is that of a file, by its suffix: one that a door claims, or one of weights."""
    path = Path(model)
    return path.suffix.lower() in _WEIGHTS or bool(_claimants(path))


def _claimants(path: Path) -> dict[str, Door]:
    """The doors that claim the suffix of a path."""
    suffix = path.suffix.lower()
    return {name: door for name, door in doors().items() if suffix in door.suffixes} if suffix else {}


def load_graph(workload: Workload) -> Graph:
    """The graph of a workload at its batch size."""
    return load_graphs(workload)[0]


def load_graphs(workload: Workload) -> tuple[Graph, Graph | None]:
    """The graph of a workload at its batch size, and the one that serves other batch sizes, if the model has one.

    Taken from the cache when the model has been captured before.
    """
    graphs = _captured(workload)
    graph = next(g for g in graphs if g.serves(workload.batch))
    scalable = next((g for g in graphs if g.scalable), None)
    # Notes of a format may name sizes, so the graph is brought to its batch first.
    return _in_format(graph.at(workload.batch), workload), scalable and _in_format(scalable, workload)


def _in_format(graph: Graph, workload: Workload) -> Graph:
    """The graph with its weights in the format that the workload asks for, or else in that of its checkpoint."""
    if graph.facts.get("quantised"):
        return graph
    fused = workload.runtime.startswith("compile")
    if workload.dtype == "fp8":
        return in_fp8(graph)
    if workload.dtype in FORMATS:
        return quantise(graph, workload.dtype, fused=fused)
    stored = graph.facts.get("weight_format")
    if stored and workload.mode != "training":
        return quantise(graph, stored["dtype"], fused=fused, skip=stored["skip"])
    return graph


def _captured(workload: Workload) -> list[Graph]:
    """Graphs of which at least one serves the batch size."""
    model = workload.model
    if isinstance(model, Graph):
        return [_given(model, workload)]
    name, door = find_door(model)
    _check_file(door, model)
    if (workload.image_size or workload.images) and not door.reads_images:
        raise ForerunError("image_size and images are settings of Hugging Face models; give the input_shape here")
    if (workload.amp or workload.channels_last) and not door.runs_modules:
        raise ForerunError("amp and channels_last are settings of PyTorch models; this one has its own dtypes")
    hashed = _cache_key(name, door, workload)
    graphs = cache.read(hashed) if hashed else []
    if not any(g.serves(workload.batch) for g in graphs):
        fresh = [with_hidden_ops(_entered(g)) for g in _loaded(name, door, model, workload)]
        graphs = fresh + [g for g in graphs if not any(f.serves(g.batch) for f in fresh)]
        if not any(g.serves(workload.batch) for g in fresh):
            raise ForerunError(f"the front door {name} gave no graph of {model} that serves batch {workload.batch}")
        for graph in fresh:
            graph.facts["settings"] = workload.graph_settings
        if hashed:
            cache.write(hashed, graphs)
    title = door.title(model)
    # Equal configs share one entry; each is called as it was asked for.
    return graphs if title is None else [replace(graph, name=title) for graph in graphs]


def is_captured(workload: Workload) -> bool:
    """Whether the cache has a graph of the workload's model at its batch: it is then answered in milliseconds."""
    name, door = find_door(workload.model)
    hashed = _cache_key(name, door, workload)
    return hashed is not None and any(graph.serves(workload.batch) for graph in cache.read(hashed))


def _cache_key(name: str, door: Door, workload: Workload) -> str | None:
    """What the graphs of a model are kept under; None where they must not be kept."""
    key = door.key(workload.model, workload)
    request = {"door": name, "key": key, "settings": workload.graph_settings, "forerun": _own_version()}
    return None if key is None else cache.digest(request)


def _check_file(door: Door, model: Any) -> None:
    """Refuses pipes, devices and files of impossible size before anything of them is read."""
    if door.claims(model) and Path(model).exists() and not Path(model).is_dir():
        size = documents.regular_file(Path(model))
        if size > door.max_bytes:
            raise ForerunError(f"{model} has {size:,} bytes; files of its kind have at most {door.max_bytes:,}")


def _loaded(name: str, door: Door, model: Any, workload: Workload) -> list[Graph]:
    """What the door makes of a model; an untrusted one is read by a child process, so that it can do no harm here."""
    if not door.untrusted(model):
        return door.load(model, workload)
    path = Path(model) if isinstance(model, (str, Path)) else None
    given = str(model) if path else model
    size_mb = path.stat().st_size / 2**20 if path and path.is_file() else 0.0
    what = path.name if path else str(door.title(model) or name)
    settings = {**workload.to_dict(), "model": None}
    found = limits.run(_load_in_child, name, given, settings, what=what, limits=limits.for_a_file_of(size_mb))
    return [Graph.from_dict(one) for one in found]


def _load_in_child(name: str, model: Any, settings: dict[str, Any]) -> list[dict[str, Any]]:
    return [graph.to_dict() for graph in doors()[name].load(model, Workload(**{**settings, "model": model}))]


def _given(graph: Graph, workload: Workload) -> Graph:
    """A graph that the user captured before, if it fits the workload."""
    if not graph.serves(workload.batch):
        raise ForerunError(f"the graph of {graph.name} was captured at batch {graph.batch} and serves no other")
    captured = graph.facts.get("settings", workload.graph_settings)
    asked = workload.graph_settings
    for name in dict.fromkeys((*asked, "channels_last")):
        same = captured.get(name) == asked.get(name)
        if not same and name not in ("quantised", "input_shape", "seq_len", "task"):
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


def model_names() -> list[str]:
    """Every name a door offers."""
    return [name for door in doors().values() for name in door.names()]


def _unknown(model: Any, is_file: bool) -> str:
    """Why no door takes a model, and what would be taken."""
    taken = [f"{d.takes} ({', '.join(d.suffixes)})" if d.suffixes else d.takes for d in doors().values()]
    if not isinstance(model, (str, Path)):
        return f"a {type(model).__name__} is not a model forerun knows; it takes {', '.join(taken)}"
    text = str(model)
    if is_file and not Path(text).exists():
        return f"there is no file {text}"
    if is_file or (re.search(r"[/\\]", text) and Path(text).exists()):
        return f"{text} is not a model forerun knows; it takes {', '.join(taken)}"
    return f"no model is called {text!r}.{did_you_mean(text, model_names()) or ' See: forerun models'}"
