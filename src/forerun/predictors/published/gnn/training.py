"""Training of graph networks: batches, losses, a search for the learning rate, and the choice of the best epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from forerun.errors import ForerunError
from forerun.predictors.published.gnn.batches import Batch, Examples

#: Learning rates that the finder runs through, and the steps it takes.
_LOWEST, _HIGHEST, _FINDER_STEPS = 1e-6, 1e-1, 100
#: Graphs by whose loss a rate is judged, and over how many steps it is averaged.
_JUDGED, _SMOOTHED = 64, 8
#: The share of the cases that the best epoch is chosen on.
VALIDATION = 0.15


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a network learns. `learning_rate` None is looked for first; `steps` ends it early."""

    epochs: int
    learning_rate: float | None
    batch_size: int = 32
    steps: int | None = None
    seed: int = 0


def where_it_runs() -> str:
    """The device of PyTorch's that networks are trained on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def train(
    network: nn.Module, examples: Examples, schedule: Schedule, progress: Callable[[int, float], None] | None = None
) -> list[float]:
    """Trains a network in place to the epoch that is best on cases set aside; returns the loss of every epoch.

    Huber loss, Adam. Targets should be standardised.
    """
    device = where_it_runs()
    rng = np.random.default_rng(schedule.seed)
    torch.manual_seed(schedule.seed)
    order = rng.permutation(len(examples))
    aside = max(1, int(VALIDATION * len(examples)))
    held, seen = order[:aside], order[aside:]
    network.to(device)
    examples = examples.to(device)
    rate = schedule.learning_rate or find_learning_rate(network, examples, seen, schedule)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=device == "cuda")
    losses: list[float] = []
    best, kept, steps = np.inf, copy.deepcopy(network.state_dict()), 0
    for epoch in range(schedule.epochs):
        network.train()
        total = []
        for batch in examples.batches(schedule.batch_size, rng.permutation(seen)):
            loss = _loss(network, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total.append(loss.detach())
            steps += 1
            if schedule.steps is not None and steps >= schedule.steps:
                break
        losses.append(_checked(float(torch.stack(total).mean())))
        score = _validation(network, examples, held, schedule.batch_size)
        if score < best:
            best, kept = score, copy.deepcopy(network.state_dict())
        if progress:
            progress(epoch + 1, losses[-1])
        if schedule.steps is not None and steps >= schedule.steps:
            break
    network.load_state_dict(kept)
    network.cpu().eval()
    return losses


def _checked(loss: float) -> float:
    if not np.isfinite(loss):
        raise ForerunError(
            "the loss is no longer a number: lower the learning rate, or look for values of 0 or infinity in the rows"
        )
    return loss


def _loss(network: nn.Module, batch: Batch) -> Tensor:
    """Huber loss of measured targets; a batch without any has none."""
    assert batch.targets is not None
    known = torch.isfinite(batch.targets)
    each = nn.functional.huber_loss(network(batch), torch.where(known, batch.targets, 0.0), reduction="none")
    return (each * known).sum() / known.sum().clamp(min=1)


@torch.no_grad()
def _validation(network: nn.Module, examples: Examples, held: np.ndarray, size: int) -> float:
    network.eval()
    return float(torch.stack([_loss(network, batch) for batch in examples.batches(8 * size, held)]).mean())


def find_learning_rate(network: nn.Module, examples: Examples, seen: np.ndarray, schedule: Schedule) -> float:
    """The rate at which the loss falls fastest while rates rise from step to step; the network is put back.

    The loss is that of one batch, the same after every step: losses of the batches that are learned from differ by more
    than a step changes them."""
    before = copy.deepcopy(network.state_dict())
    rng = np.random.default_rng(schedule.seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=_LOWEST)
    rates = np.geomspace(_LOWEST, _HIGHEST, _FINDER_STEPS)
    judged = next(iter(examples.batches(_JUDGED, seen)))
    losses: list[float] = []
    while len(losses) < len(rates):
        for batch in examples.batches(schedule.batch_size, rng.permutation(seen)):
            if len(losses) == len(rates):
                break
            network.train()
            for group in optimizer.param_groups:
                group["lr"] = rates[len(losses)]
            optimizer.zero_grad()
            _loss(network, batch).backward()
            optimizer.step()
            network.eval()
            with torch.no_grad():
                value = float(_loss(network, judged))
            if not np.isfinite(value) or value > 4 * min([*losses, value]):
                rates = rates[: len(losses)]
            else:
                losses.append(value)
    network.load_state_dict(before)
    if len(losses) < 2 * _SMOOTHED:
        raise ForerunError("no learning rate can be found: the loss rises from the first steps on, or is no number")
    smooth = np.convolve(losses, np.ones(_SMOOTHED) / _SMOOTHED, mode="valid")
    falling = smooth[: int(np.argmin(smooth)) + 1]
    if len(falling) < 2:
        raise ForerunError("no learning rate can be found: the loss falls at none")
    return float(rates[int(np.argmin(np.gradient(falling))) + _SMOOTHED // 2])


@torch.no_grad()
def answers(network: nn.Module, examples: Examples, size: int = 256) -> np.ndarray:
    """[graphs, targets], in the order of the examples."""
    network.eval()
    moved = examples.to(str(next(network.parameters()).device))
    return torch.cat([network(batch).cpu() for batch in moved.batches(size)]).numpy().astype(float)
