"""How graph networks are trained: batches, losses, a learning rate that is looked for, and the best epoch kept."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from forerun.errors import ForerunError
from forerun.predictors.gnn.arrays import GraphArrays
from forerun.predictors.gnn.features import Batch, stacked

#: Learning rates that the finder runs through, and the steps it takes.
_LOWEST, _HIGHEST, _FINDER_STEPS = 1e-6, 1e-1, 100
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


@dataclass
class Examples:
    """Graphs with their features and numbers, and what was measured (NaN where it was not)."""

    graphs: Sequence[GraphArrays]
    features: Sequence[np.ndarray]
    statics: np.ndarray  # [graphs, numbers]
    targets: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # [graphs, targets]
    given: np.ndarray | None = None  # [graphs, numbers] that join the readout
    both_ways: bool = False

    def __len__(self) -> int:
        return len(self.graphs)

    def take(self, chosen: np.ndarray) -> Examples:
        """Some of them, by their places."""
        return Examples(
            [self.graphs[i] for i in chosen], [self.features[i] for i in chosen], self.statics[chosen],
            self.targets[chosen] if len(self.targets) else self.targets,
            None if self.given is None else self.given[chosen], self.both_ways,
        )  # fmt: skip

    def batches(self, size: int, order: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, Batch]]:
        """Places and graphs of each batch, in the order given."""
        order = np.arange(len(self)) if order is None else order
        for start in range(0, len(order), size):
            places = order[start : start + size]
            chosen = [self.graphs[i] for i in places], [self.features[i] for i in places]
            yield places, stacked(chosen[1], chosen[0], list(self.statics[places]), both_ways=self.both_ways)


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
    held, seen = examples.take(order[:aside]), examples.take(order[aside:])
    network.to(device)
    rate = schedule.learning_rate or find_learning_rate(network, seen, schedule)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    losses: list[float] = []
    best, kept, steps = np.inf, copy.deepcopy(network.state_dict()), 0
    for epoch in range(schedule.epochs):
        network.train()
        total = []
        for places, batch in seen.batches(schedule.batch_size, rng.permutation(len(seen))):
            loss = _loss(network, seen, places, batch, device)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total.append(loss.detach())
            steps += 1
            if schedule.steps is not None and steps >= schedule.steps:
                break
        losses.append(_checked(float(torch.stack(total).mean())))
        score = _validation(network, held, schedule.batch_size, device)
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


def _loss(network: nn.Module, examples: Examples, places: np.ndarray, batch: Batch, device: str) -> Tensor:
    wanted = torch.from_numpy(examples.targets[places].astype(np.float32)).to(device)
    found = network(batch.to(device), _given(examples, places, device))
    known = torch.isfinite(wanted)
    if not known.any():  # nothing was measured of these
        return found.sum() * 0.0
    return nn.functional.huber_loss(found[known], wanted[known])


def _given(examples: Examples, places: np.ndarray, device: str) -> Tensor | None:
    if examples.given is None:
        return None
    return torch.from_numpy(examples.given[places].astype(np.float32)).to(device)


@torch.no_grad()
def _validation(network: nn.Module, held: Examples, size: int, device: str) -> float:
    network.eval()
    losses = [_loss(network, held, places, batch, device) for places, batch in held.batches(8 * size)]
    return float(torch.stack(losses).mean())


def find_learning_rate(network: nn.Module, examples: Examples, schedule: Schedule) -> float:
    """The rate at which the loss falls fastest while rates rise from step to step; the network is put back."""
    device = where_it_runs()
    network.to(device)
    before = copy.deepcopy(network.state_dict())
    rng = np.random.default_rng(schedule.seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=_LOWEST)
    rates = np.geomspace(_LOWEST, _HIGHEST, _FINDER_STEPS)
    losses: list[float] = []
    network.train()
    while len(losses) < len(rates):
        for places, batch in examples.batches(schedule.batch_size, rng.permutation(len(examples))):
            if len(losses) == len(rates):
                break
            for group in optimizer.param_groups:
                group["lr"] = rates[len(losses)]
            loss = _loss(network, examples, places, batch, device)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            if not np.isfinite(losses[-1]) or losses[-1] > 4 * min(losses):
                rates = rates[: len(losses)]
    network.load_state_dict(before)
    known = np.array([value for value in losses if np.isfinite(value)])
    if len(known) < 10:
        raise ForerunError("no learning rate can be found: the loss is no number from the first steps on")
    smooth = np.convolve(known, np.ones(8) / 8, mode="valid")
    return float(rates[int(np.argmin(np.gradient(smooth))) + 4])


@torch.no_grad()
def answers(network: nn.Module, examples: Examples, size: int = 256) -> np.ndarray:
    """[graphs, targets], in the order of the examples."""
    network.eval()
    device = str(next(network.parameters()).device)
    found = [
        network(batch.to(device), _given(examples, places, device)).cpu() for places, batch in examples.batches(size)
    ]
    return torch.cat(found).numpy().astype(float)
