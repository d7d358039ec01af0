"""Captures a module as the graphs that between them answer every batch size, its repeated blocks folded."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from forerun.errors import ForerunError
from forerun.graph.capture import TORCH_DTYPES, census, record
from forerun.graph.fold import fold, folded_size, folded_stacks, parameter_bytes
from forerun.graph.ir import Graph
from forerun.graph.known_values import has_values
from forerun.graph.recorder import TooManyCalls
from forerun.graph.scale import merge
from forerun.graph.steps import STEPS, Inputs, Step
from forerun.workload import Workload


def capture_module(
    build: Callable[[], nn.Module],
    make_inputs: Callable[[int], Inputs],
    workload: Workload,
    name: str,
    mask_density: float = 1.0,
    most_calls: int | None = None,
    stacks: frozenset[str] | None = None,
) -> list[Graph]:
    """Graphs that between them answer every batch size: one scalable graph, and the exact one where batch 1 differs.

    `build` gives a fresh module on meta in the weight dtype; `make_inputs` gives its inputs at a batch size. A model
    that launches more than `most_calls` in one pass is not captured: TooManyCalls is raised. `stacks` are those that
    can be folded, where they are known.
    """

    if stacks is None:
        stacks = foldable(build, make_inputs, workload, mask_density, most_calls)

    def at(batch: int) -> Graph:
        return _capture(build, make_inputs(batch), workload, name, mask_density, batch, stacks, most_calls)

    def probe(batch: int) -> Graph | None:
        """Batch norm refuses a batch of one in training; others want a batch of their own. The asked one will show."""
        try:
            return at(batch)
        except TooManyCalls:
            raise
        except Exception:  # noqa: BLE001 - whatever the model refuses at this batch
            return None

    first, second = probe(1), probe(2)
    merged = merge(first, second) if first is not None and second is not None else None
    if merged is not None:
        return [merged]
    # 5 and 7, since at 2 or 3 a batch is easily taken for a number of classes or channels.
    five = probe(5) if second is not None else None
    seven = probe(7) if five is not None and not _sample_by_sample(first, second, five) else None
    grown = merge(five, seven) if five is not None and seven is not None else None
    if grown is not None:
        grown.min_batch = 2
    graphs = [g for g in (grown, first) if g is not None]
    if not any(g.serves(workload.batch) for g in graphs):
        graphs.append(at(workload.batch))
    return graphs


def calls_of_a_pass(build: Callable[[], nn.Module], inputs: Inputs, workload: Workload, mask_density: float) -> int:
    """How many calls the whole module launches in one pass over such inputs."""
    model = build()
    step = _step(model, inputs, workload)
    return census(model, step.once, {}, mask_density, has_values(inputs)).total()


def _sample_by_sample(*graphs: Graph | None) -> bool:
    """Whether ops are launched for each sample, so that no graph serves two batch sizes."""
    sizes = [len(graph.ops) for graph in graphs if graph is not None]
    return len(sizes) == len(graphs) and all(less < more for less, more in pairwise(sizes))


def foldable(
    build: Callable[[], nn.Module],
    make_inputs: Callable[[int], Inputs],
    workload: Workload,
    mask_density: float,
    most_calls: int | None = None,
) -> frozenset[str]:
    """The stacks of blocks that can be folded: the folded model launches exactly what the whole one does.

    The whole model runs once, unrecorded, with its calls counted by name and shape; so does the folded one, its middle
    blocks counted as often as they stand for. Anything that depends on its place in the stack (a mask, a cache), or
    works between the blocks, shows as a difference. Of a model with a tower for images or sounds, whose layers are
    often read at certain places, the stacks are also tried one by one.
    """
    folded = build()
    whole_bytes = parameter_bytes(folded)
    every = folded_stacks(fold(folded))
    if not every:
        return frozenset()
    inputs = make_inputs(2)
    towers = has_values(inputs)

    def count(model: nn.Module, times: dict[str, int]) -> Any:
        step = _step(model, make_inputs(2), workload)
        return census(model, step.once, times, mask_density, towers, most_calls)

    def counts(stacks: frozenset[str]) -> Any:
        model = build()
        times = fold(model, stacks)
        if folded_size(model, times) != whole_bytes:
            return None
        try:
            return count(model, times)
        except TooManyCalls:
            raise
        except Exception:  # noqa: BLE001 - a model that depends on its depth; a real fault shows in the whole one
            return None

    found = counts(every)
    if found is None and not (towers and len(every) > 1):
        return frozenset()
    try:
        whole = count(build(), {})
    except TooManyCalls:
        raise
    except Exception:  # noqa: BLE001 - it shows when the model is captured
        return frozenset()
    if found == whole:
        return every
    if not towers or len(every) == 1:
        return frozenset()
    single = frozenset(stack for stack in every if counts(frozenset({stack})) == whole)
    return single if len(single) < 2 or counts(single) == whole else frozenset()


def _capture(
    build: Callable[[], nn.Module],
    inputs: Inputs,
    workload: Workload,
    name: str,
    mask_density: float,
    batch: int,
    stacks: frozenset[str],
    most_calls: int | None = None,
) -> Graph:
    model = build()
    parameters = sum(p.numel() for p in model.parameters())
    repeats = fold(model, stacks)
    try:
        graph = _record(model, inputs, workload, repeats, mask_density, most_calls)
    except RuntimeError as e:
        if "device" not in str(e):
            raise
        with torch.device("meta"):  # code that makes tensors without naming a device
            graph = _record(build(), inputs, workload, {}, mask_density, most_calls)
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
) -> Graph:
    step = _step(model, inputs, workload)
    return record(
        model,
        step,
        repeats=repeats,
        amp=TORCH_DTYPES[workload.amp] if workload.amp else None,
        mask_density=mask_density,
        held=step.held,
        follow=has_values(inputs),
        most_calls=most_calls,
    )


def _step(model: nn.Module, inputs: Inputs, workload: Workload) -> Step:
    """One call of the model in its mode, with images and weights as they lie in memory."""
    model.train(workload.mode == "training")
    if workload.channels_last:
        if not any(map(_is_image, inputs.values())):
            raise ForerunError("channels_last is a setting of models that take images")
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = {
            name: t.to(memory_format=torch.channels_last) if _is_image(t) else t for name, t in inputs.items()
        }  # fmt: skip
    return STEPS[workload.mode](model, inputs, workload)


def _is_image(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()
