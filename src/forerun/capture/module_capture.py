"""Captures a module as graphs that together cover every batch size, its repeated blocks folded."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

from forerun.capture.capture import TORCH_DTYPES, record
from forerun.capture.fold import fold
from forerun.capture.foldable import Folding, Stacks
from forerun.capture.known_values import has_values
from forerun.capture.recorder import TooManyCalls
from forerun.capture.scale import merge
from forerun.capture.steps import Inputs, as_step
from forerun.graph.ir import Graph
from forerun.workload import Workload


def capture_module(
    build: Callable[[], nn.Module],
    make_inputs: Callable[[int], Inputs],
    workload: Workload,
    name: str,
    mask_density: float = 1.0,
    most_calls: int | None = None,
    stacks: Stacks | None = None,
    count_python: bool = True,
) -> list[Graph]:
    """Graphs that together cover every batch size: one scalable graph, and the exact one where batch 1 differs.

    `build` gives a fresh module on meta in the weight dtype; `make_inputs` gives its inputs at a batch size. A model
    that launches more than `most_calls` in one pass is not captured: TooManyCalls is raised. `stacks` says which can
    be folded, where that was counted elsewhere. Without `count_python`, the Python that runs the module is not the
    model's own, and is not counted.
    """
    folded = (stacks or Folding(build, make_inputs, workload, mask_density).stacks)(most_calls)

    def at(batch: int, python: bool = True) -> Graph:
        return _capture(build, make_inputs(batch), workload, name, mask_density, batch, folded, most_calls,
                        python and count_python)  # fmt: skip

    def probe(batch: int, python: bool = True) -> Graph | None:
        """Batch norm refuses a batch of 1 in training; other models need a batch of their own. The requested one will
        show."""
        try:
            return at(batch, python)
        except TooManyCalls:
            raise
        except Exception:  # noqa: BLE001 - whatever the model refuses at this batch
            return None

    # What is merged keeps the facts of the smaller one, so that the model's Python need not be counted in the larger.
    first, second = probe(1), probe(2, python=False)
    merged = merge(first, second) if first is not None and second is not None else None
    if merged is not None:
        return [merged]
    # 5 and 7, since 2 or 3 may be confused with a number of classes or channels.
    five = probe(5) if second is not None else None
    seven = probe(7, python=False) if five is not None and not _sample_by_sample(first, second, five) else None
    grown = merge(five, seven) if five is not None and seven is not None else None
    if grown is not None:
        grown.min_batch = 2
    graphs = [g for g in (grown, first) if g is not None]
    if not any(g.serves(workload.batch) for g in graphs):
        graphs.append(at(workload.batch))
    return graphs


def _sample_by_sample(*graphs: Graph | None) -> bool:
    """Whether ops are launched per sample, so that no graph serves two batch sizes."""
    sizes = [len(graph.ops) for graph in graphs if graph is not None]
    return len(sizes) == len(graphs) and all(less < more for less, more in pairwise(sizes))


def _capture(
    build: Callable[[], nn.Module],
    inputs: Inputs,
    workload: Workload,
    name: str,
    mask_density: float,
    batch: int,
    stacks: frozenset[str],
    most_calls: int | None,
    count_python: bool,
) -> Graph:
    model = build()
    parameters = sum(p.numel() for p in model.parameters())
    repeats = fold(model, stacks)
    try:
        graph = _record(model, inputs, workload, repeats, mask_density, most_calls, count_python)
    except RuntimeError as e:
        if "device" not in str(e):
            raise
        with torch.device("meta"):  # for code that creates tensors without naming a device
            graph = _record(build(), inputs, workload, {}, mask_density, most_calls, count_python)
    graph.name, graph.batch = name, batch
    graph.parameters, graph.active_parameters = parameters, parameters
    return graph


def _record(
    model: nn.Module,
    inputs: Inputs,
    workload: Workload,
    repeats: dict[str, int],
    mask_density: float,
    most_calls: int | None,
    count_python: bool,
) -> Graph:
    step = as_step(model, inputs, workload)
    return record(
        model,
        step,
        repeats=repeats,
        amp=TORCH_DTYPES[workload.amp] if workload.amp else None,
        mask_density=mask_density,
        held=step.held,
        follow=has_values(inputs),
        most_calls=most_calls,
        count_python=count_python,
    )
