"""Stages 2 and 3: graph to text with a frozen graph network, then performance as text with everything trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from forerun.errors import ForerunError
from forerun.predictors.published.gnn.batches import Examples
from forerun.predictors.published.gnn_llm.joined import GraphLanguageModel
from forerun.predictors.published.gnn_llm.language import trained
from forerun.predictors.published.gnn_llm.mae import examples_of, vectors_of
from forerun.predictors.published.gnn_llm.nodes import Nodes


@dataclass(frozen=True)
class Item:
    """A prompt, the graphs that stand in it, and the answer that is learned."""

    prompt: str
    answer: str
    graphs: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a stage learns. Rates rise over the first steps and fall to nothing at the last."""

    steps: int
    batch_size: int = 32
    language_rate: float = 1e-4
    graph_rate: float = 1e-3
    frozen_graphs: bool = False  # stage 2: the graph network stays as it is
    warmup: float = 0.05
    seed: int = 0

    def share(self, step: int) -> float:
        """What share of its rates a step has."""
        rising = max(1, int(self.warmup * self.steps))
        return min((step + 1) / rising, 0.5 * (1 + np.cos(np.pi * min(1.0, step / max(1, self.steps)))))


@dataclass
class Course:
    """How far a stage has come; it goes on from there."""

    step: int = 0
    losses: list[float] = field(default_factory=list)
    optimizer: dict[str, Any] | None = None


def learn(
    model: GraphLanguageModel, graphs: Sequence[Nodes], items: Sequence[Item], schedule: Schedule, *,
    course: Course | None = None, until: float | None = None, progress: Callable[[int, float], None] | None = None,
) -> Course:  # fmt: skip
    """Trains a model in place, from where `course` ended to the last step or to a time (`time.monotonic`)."""
    course = course or Course()
    torch.manual_seed(schedule.seed + course.step)
    device = model.device
    vectors, examples = _graph_side(model, graphs, items, schedule)
    optimizer = _optimizer(model, schedule)
    if course.optimizer is not None:
        optimizer.load_state_dict(course.optimizer)
    model.train()
    if schedule.frozen_graphs:
        model.encoder.eval()
    half = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()
    pending: list[Tensor] = []
    while course.step < schedule.steps and (until is None or time.monotonic() < until):
        chosen = [items[place] for place in _places(len(items), course.step, schedule)]
        for group in optimizer.param_groups:
            group["lr"] = group["full"] * schedule.share(course.step)
        given = _vectors(model, vectors, examples, chosen)
        with half:  # the language model alone: sums over many nodes need all digits
            loss = model.loss([one.prompt for one in chosen], [one.answer for one in chosen], given)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
        optimizer.step()
        pending.append(loss.detach())
        course.step += 1
        if len(pending) == 20 or course.step == schedule.steps:
            _note(course, pending)
            if progress:
                progress(course.step, course.losses[-1])
    if pending:
        _note(course, pending)
    course.optimizer = optimizer.state_dict()
    model.eval()
    return course


def _note(course: Course, pending: list[Tensor]) -> None:
    course.losses += [float(loss) for loss in torch.stack(pending).cpu()]
    pending.clear()
    if not np.isfinite(course.losses[-1]):
        raise ForerunError("the loss of the language model is no longer a number: lower the learning rates")


def _graph_side(
    model: GraphLanguageModel, graphs: Sequence[Nodes], items: Sequence[Item], schedule: Schedule
) -> tuple[Tensor | None, Examples | None]:
    """What of the graphs can be worked out before: their vectors, or their features alone where these change."""
    for parameter in model.encoder.parameters():
        parameter.requires_grad_(not schedule.frozen_graphs)
    if not any(item.graphs for item in items):
        return torch.zeros(0), None
    if schedule.frozen_graphs:
        return vectors_of(model.encoder, graphs, str(model.device)), None
    return None, examples_of(graphs).to(str(model.device))


def _vectors(
    model: GraphLanguageModel, vectors: Tensor | None, examples: Examples | None, chosen: Sequence[Item]
) -> Tensor:
    """The vectors of the graphs in some prompts, each graph worked out once."""
    places = np.array([place for item in chosen for place in item.graphs], dtype=int)
    if vectors is not None:
        return vectors[torch.from_numpy(places)] if len(places) else vectors[:0]
    assert examples is not None
    distinct, which = np.unique(places, return_inverse=True)
    found = model.encoder.vectors(next(examples.batches(len(distinct), distinct)))
    return found[torch.from_numpy(which).to(found.device)]


def _optimizer(model: GraphLanguageModel, schedule: Schedule) -> torch.optim.Optimizer:
    """The language model at its rate, projection and graph network at theirs."""
    graph_side = [*model.projection.parameters(), *(p for p in model.encoder.parameters() if p.requires_grad)]
    groups = [
        {"params": trained(model.language), "full": schedule.language_rate},
        {"params": graph_side, "full": schedule.graph_rate},
    ]
    return torch.optim.AdamW(groups, lr=schedule.language_rate, weight_decay=0.0)


def _places(count: int, step: int, schedule: Schedule) -> np.ndarray:
    """Which items a step takes: of every round all, in an order that the seed decides."""
    size = min(schedule.batch_size, count)
    per_round = count // size
    order = np.random.default_rng((schedule.seed, step // per_round)).permutation(count)
    at = (step % per_round) * size
    return order[at : at + size]
