"""The networks: graph layers of several kinds, a readout, and fully connected layers that end in the targets."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from forerun._util.extras import needed
from forerun.errors import ForerunError
from forerun.predictors.published.gnn.batches import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Kinds of graph layer; mlp sees every op alone.
VARIANTS = ("sage", "gcn", "gat", "gin", "mlp")


def layer(variant: str, given: int, width: int) -> nn.Module:
    """One graph layer."""
    if variant == "mlp":
        return _Alone(given, width)
    with needed("graph networks"):
        from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv
    if variant == "gin":
        inner = nn.Sequential(nn.Linear(given, width), nn.ReLU(), nn.Linear(width, width))
        return GINConv(inner)
    kinds = {"sage": SAGEConv, "gcn": GCNConv, "gat": GATConv}
    if variant not in kinds:
        raise ForerunError(f"there is no graph layer {variant!r}; choose {', '.join(VARIANTS)}")
    return kinds[variant](given, width)


class _Alone(nn.Module):
    """A layer without messages."""

    def __init__(self, given: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(given, width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        return self.linear(nodes)


def readout(nodes: Tensor, batch: Batch, how: str) -> Tensor:
    """The nodes of each graph as one vector: their sum or mean, an op counted as often as it runs."""
    many = batch.static.shape[0]
    out = nodes.new_zeros(many, nodes.shape[1]).index_add_(0, batch.graph, nodes * batch.weight[:, None])
    if how == "sum":
        return out
    total = nodes.new_zeros(many).index_add_(0, batch.graph, batch.weight)
    return out / total.clamp(min=1.0)[:, None]


class GraphRegressor(nn.Module):
    """Graph layers, a readout, and fully connected layers over readout, numbers of the call, and further inputs."""

    def __init__(
        self, variant: str, features: int, static: int, targets: int, *, width: int, layers: int, dense: int,
        dropout: float, pooled: str = "mean", given: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        sizes = [features, *[width] * layers]
        self.graph_layers = nn.ModuleList(layer(variant, a, b) for a, b in pairwise(sizes))
        joined = [width + static + given, *[width] * (dense - 1), targets]
        self.dense_layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(joined))
        self.dropout, self.pooled = nn.Dropout(dropout), pooled

    def forward(self, batch: Batch) -> Tensor:
        """[graphs, targets]; further inputs (`given`) are concatenated with the readout."""
        nodes = batch.nodes
        for one in self.graph_layers:
            nodes = self.dropout(torch.relu(one(nodes, batch.edges)))
        pooled = readout(nodes, batch, self.pooled)
        # A sum over hundreds of ops is large: its logarithm is what the other numbers are of a size with.
        pooled = torch.log1p(pooled) if self.pooled == "sum" else pooled
        out = torch.cat([pooled, batch.static, *([] if batch.given is None else [batch.given])], dim=1)
        for one in self.dense_layers[:-1]:
            out = self.dropout(torch.relu(one(out)))
        return self.dense_layers[-1](out)


class Encoder(nn.Module):
    """The encoder of a graph auto-encoder: four graph layers, each normalised, to a latent vector for every op."""

    def __init__(self, features: int, *, width: int, layers: int = 4, dropout: float = 0.5) -> None:
        super().__init__()
        self.width = width
        sizes = [features, *[width] * layers]
        self.graph_layers = nn.ModuleList(layer("sage", a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Batch) -> Tensor:
        nodes = batch.nodes
        for one, norm in zip(self.graph_layers, self.norms, strict=False):
            nodes = self.dropout(torch.relu(norm(one(nodes, batch.edges))))
        return self.graph_layers[-1](nodes, batch.edges)


def edge_loss(latent: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
    """Cross-entropy of inner products of latent vectors: true edges against random pairs of the same graphs."""
    source, target = batch.edges
    draw = torch.rand(len(source), generator=generator).to(latent.device)
    first = torch.searchsorted(batch.graph, torch.arange(batch.static.shape[0], device=latent.device))
    counts = torch.bincount(batch.graph, minlength=batch.static.shape[0])
    own = batch.graph[source]
    other = first[own] + (draw * counts[own]).long().minimum(counts[own] - 1)
    scale = latent.shape[1] ** -0.5
    true = (latent[source] * latent[target]).sum(1) * scale
    false = (latent[source] * latent[other]).sum(1) * scale
    criterion = nn.functional.binary_cross_entropy_with_logits
    return criterion(true, torch.ones_like(true)) + criterion(false, torch.zeros_like(false))


def flat(network: nn.Module) -> Tensor:
    """All that a network learned as one vector, statistics of its norms included."""
    values = [value.detach().float().reshape(-1) for value in network.state_dict().values()]
    return torch.cat(values).cpu()


def unflatten(network: nn.Module, values: Tensor) -> nn.Module:
    """The network with the parameters of a vector that `flat` made."""
    state = network.state_dict()
    sizes = [value.numel() for value in state.values()]
    if sum(sizes) != len(values):
        raise ValueError(f"the network has {sum(sizes)} values, {len(values)} were kept")
    parts: Sequence[Tensor] = values.split(sizes)
    network.load_state_dict(
        {name: part.reshape(state[name].shape).to(state[name].dtype) for name, part in zip(state, parts, strict=True)}
    )
    return network
