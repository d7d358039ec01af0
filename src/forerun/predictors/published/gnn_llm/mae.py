"""Stage 1: a graph masked auto-encoder, which learns from graphs alone by restoring the features of masked nodes.

GIN layers in encoder and decoder, batch norm inside their MLPs, PReLU. Of the masked nodes a few get the features of
another node instead of the mask. The loss is the scaled cosine error, (1 - cosine)^alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from forerun._util.extras import needed
from forerun.errors import ForerunError
from forerun.predictors.published.gnn.batches import Batch, Examples
from forerun.predictors.published.gnn.networks import readout
from forerun.predictors.published.gnn_llm.nodes import FEATURES, Nodes


@dataclass(frozen=True)
class MaeSettings:
    """The published settings of the auto-encoder."""

    mask_rate: float = 0.5
    replace_rate: float = 0.1
    alpha: float = 2.0
    learning_rate: float = 5e-4
    batch_size: int = 128


def gin(given: int, width: int) -> nn.Module:
    """One GIN layer with batch norm inside its MLP."""
    with needed("graph networks"):
        from torch_geometric.nn import GINConv
    inner = nn.Sequential(nn.Linear(given, width), nn.BatchNorm1d(width), nn.PReLU(), nn.Linear(width, width))
    return GINConv(inner)


class GraphEncoder(nn.Module):
    """GIN layers, and the mean over the nodes as the vector of a graph."""

    def __init__(self, width: int = 256, layers: int = 5) -> None:
        super().__init__()
        self.width = width
        self.graph_layers = nn.ModuleList(gin(a, b) for a, b in pairwise([FEATURES, *[width] * layers]))
        self.activations = nn.ModuleList(nn.PReLU() for _ in range(layers - 1))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """[nodes, width]"""
        for layer, activation in zip(self.graph_layers, self.activations, strict=False):
            nodes = activation(layer(nodes, edges))
        return self.graph_layers[-1](nodes, edges)

    def vectors(self, batch: Batch) -> Tensor:
        """[graphs, width]: the mean over the nodes."""
        return readout(self(batch.nodes, batch.edges), batch, "mean")


class MaskedAutoEncoder(nn.Module):
    """An encoder with the mask that hides nodes from it and the decoder that restores them."""

    def __init__(self, encoder: GraphEncoder, settings: MaeSettings) -> None:
        super().__init__()
        self.encoder, self.settings = encoder, settings
        self.mask = nn.Parameter(torch.zeros(FEATURES))
        self.between = nn.Linear(encoder.width, encoder.width, bias=False)
        self.decoder = gin(encoder.width, encoder.width)
        self.restored = nn.Linear(encoder.width, FEATURES)

    def forward(self, batch: Batch, draws: torch.Generator) -> Tensor:
        """The loss of a batch."""
        settings, count = self.settings, len(batch.nodes)
        hidden = torch.rand(count, generator=draws)
        other = torch.randint(count, (count,), generator=draws).to(batch.nodes.device)
        masked = (hidden < settings.mask_rate).to(batch.nodes.device)
        replaced = (hidden < settings.mask_rate * settings.replace_rate).to(batch.nodes.device)
        shown = torch.where(masked[:, None], self.mask.to(batch.nodes.dtype), batch.nodes)
        shown = torch.where(replaced[:, None], batch.nodes[other], shown)
        latent = self.between(self.encoder(shown, batch.edges))
        latent = torch.where(masked[:, None], torch.zeros_like(latent), latent)  # hidden from the decoder, too
        found = self.restored(self.decoder(latent, batch.edges))
        cosine = functional.cosine_similarity(found, batch.nodes, dim=1)
        return ((1 - cosine) ** settings.alpha * masked).sum() / masked.sum().clamp(min=1)


def examples_of(graphs: Sequence[Nodes]) -> Examples:
    """Graphs for the encoder; messages run both ways."""
    empty = np.zeros((len(graphs), 0), dtype=np.float32)
    return Examples.of(graphs, [g.features for g in graphs], empty, both_ways=True)  # type: ignore[arg-type]


def pretrain(
    encoder: GraphEncoder, graphs: Sequence[Nodes], *, steps: int, settings: MaeSettings | None = None, seed: int = 0,
    device: str = "cpu", progress: Callable[[int, float], None] | None = None,
) -> list[float]:  # fmt: skip
    """Trains an encoder in place; returns the loss of every step."""
    settings = settings or MaeSettings()
    torch.manual_seed(seed)
    rng, draws = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    whole = MaskedAutoEncoder(encoder, settings).to(device).train()
    examples = examples_of(graphs).to(device)
    optimizer = torch.optim.Adam(whole.parameters(), lr=settings.learning_rate)
    losses: list[Tensor] = []
    while len(losses) < steps:
        for batch in examples.batches(settings.batch_size, rng.permutation(len(examples))):
            loss = whole(batch, draws)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            if progress and len(losses) % 50 == 0:
                progress(len(losses), float(losses[-1]))
            if len(losses) >= steps:
                break
    encoder.cpu().eval()
    found = [float(loss) for loss in torch.stack(losses).cpu()] if losses else []
    if not np.isfinite(found).all():
        raise ForerunError("the loss of the auto-encoder is no longer a number: lower the learning rate")
    return found


@torch.no_grad()
def vectors_of(encoder: GraphEncoder, graphs: Sequence[Nodes], device: str = "cpu", size: int = 256) -> Tensor:
    """[graphs, width], by a frozen encoder."""
    encoder.to(device).eval()
    found = [encoder.vectors(batch).float() for batch in examples_of(graphs).to(device).batches(size)]
    return torch.cat(found)
