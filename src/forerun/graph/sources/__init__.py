"""The front doors: every kind of model comes in here and leaves as one Graph.

A door is a module with three functions, registered under the entry point group `forerun.sources`:

    matches(model) -> bool            cheap, imports nothing heavy
    key(model, workload) -> dict      what decides the graph, for the cache; None: do not cache
    load(model, workload) -> Graph    or a list of graphs that between them serve every batch size

Optional: `names() -> list[str]` for suggestions, `title(model) -> str` for what the model is called in answers.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from importlib.metadata import entry_points, version
from pathlib import Path
from types import ModuleType
from typing import Any

from forerun.errors import ForerunError, did_you_mean
from forerun.graph import cache
from forerun.graph.ir import Graph
from forerun.graph.quantise import quantise
from forerun.graph.splice import with_bias_adds
from forerun.workload import Workload


@functools.cache
def doors() -> dict[str, ModuleType]:
    """Every registered front door by name. Two doors of one name are a mistake of whoever installed them."""
    found: dict[str, ModuleType] = {}
    for point in entry_points(group="forerun.sources"):
        if point.name in found and found[point.name].__name__ != point.value:
            raise ForerunError(
                f"two front doors call themselves {point.name}: {found[point.name].__name__}, {point.value}"
            )
        found[point.name] = point.load()
    return found


@functools.cache
def _own_version() -> str:
    return version("forerun")


def find_door(model: Any) -> tuple[str, ModuleType]:
    """The door that takes this model; a ForerunError with suggestions when there is none."""
    if isinstance(model, (str, Path)) and not 0 < len(str(model)) < 1000:
        raise ForerunError("a model needs a name, an id or a path of reasonable length")
    for name, door in doors().items():
        if door.matches(model):
            return name, door
    raise ForerunError(_unknown(model))


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
    if workload.dtype in ("int8", "int4") and not graph.facts.get("quantised"):
        fused = workload.runtime == "compile"
        graph = quantise(graph, workload.dtype, fused=fused)
        scalable = scalable and quantise(scalable, workload.dtype, fused=fused)
    return graph.at(workload.batch), scalable


def _captured(workload: Workload) -> list[Graph]:
    """Graphs of which at least one serves the batch size."""
    model = workload.model
    if isinstance(model, Graph):
        if not model.serves(workload.batch):
            raise ForerunError(f"the graph of {model.name} was captured at batch {model.batch} and serves no other")
        captured = model.facts.get("settings", workload.graph_settings)
        for name, value in workload.graph_settings.items():
            if name not in ("quantised", "input_shape", "seq_len", "task") and captured.get(name) != value:
                raise ForerunError(
                    f"the graph of {model.name} was captured with {name} {captured.get(name)}, not {value}"
                )
        return [model]
    name, door = find_door(model)
    key = door.key(model, workload)
    asked = {"door": name, "key": key, "settings": workload.graph_settings, "forerun": _own_version()}
    hashed = None if key is None else cache.digest(asked)
    graphs = cache.read(hashed) if hashed else []
    if not any(g.serves(workload.batch) for g in graphs):
        loaded = door.load(model, workload)
        fresh = [with_bias_adds(g) for g in (loaded if isinstance(loaded, list) else [loaded])]
        graphs = fresh + [g for g in graphs if not any(f.serves(g.batch) for f in fresh)]
        for graph in fresh:
            graph.facts["settings"] = workload.graph_settings
        if hashed:
            cache.write(hashed, graphs)
    if hasattr(door, "title"):
        # Equal configs share one entry; each is called as it was asked for.
        graphs = [replace(graph, name=door.title(model)) for graph in graphs]
    return graphs


def model_names() -> list[str]:
    """Every name a door offers."""
    return [n for door in doors().values() if hasattr(door, "names") for n in door.names()]


def _unknown(model: Any) -> str:
    if not isinstance(model, (str, Path)):
        return (
            f"a {type(model).__name__} is not a model forerun knows; it takes a torch.nn.Module, a keras.Model, "
            "a name, a Hugging Face id or config, or a path to a model file"
        )
    text = str(model)
    if Path(text).suffix in (".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".pkl"):
        return (
            f"{text} is a file of weights or a pickle, which forerun does not execute; pass the torch.nn.Module from "
            "Python, an ONNX export, or the model's name"
        )
    if re.search(r"[/\\]", text) and Path(text).exists():
        return f"{text} is not a model file forerun knows (.onnx, .keras, .h5, SavedModel, Paddle, config.json)"
    return f"no model is called {text!r}.{did_you_mean(text, model_names()) or ' See: forerun models'}"
