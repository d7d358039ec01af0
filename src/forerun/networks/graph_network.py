"""Graph neural networks: graph convolutions, graph attention and message passing, on indexed edges or a dense matrix.

Every sample is a graph; the graphs of a batch are merged into one by adding an offset to the edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

CONVOLUTION, ATTENTION, MESSAGES, DENSE = range(4)
CLASSES = 10


def add_up(values: Tensor, targets: Tensor, nodes: int) -> Tensor:
    """The sum of the values of all edges that end in a node."""
    return values.new_zeros((nodes, *values.shape[1:])).index_add(0, targets, values)


def _convolution(width: int) -> nn.Module:
    from torch import nn

    class Convolution(nn.Module):
        """GCN: neighbours weighted by the degrees at both ends."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(width, width)

        def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
            y = self.linear(x)
            ones = y.new_ones(targets.shape[0])
            scale = (add_up(ones, targets, y.shape[0]) + 1).rsqrt().to(y.dtype)
            weights = scale.index_select(0, sources) * scale.index_select(0, targets)
            messages = y.index_select(0, sources) * weights.unsqueeze(-1)
            return nn.functional.relu(add_up(messages, targets, y.shape[0]) + y)

    return Convolution()


def _attention(width: int, heads: int) -> nn.Module:
    import torch
    from torch import nn

    class Attention(nn.Module):
        """GAT: a softmax over the edges that end in a node."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(width, width, bias=False)
            self.from_source = nn.Parameter(torch.randn(heads, width // heads) * 0.1)
            self.from_target = nn.Parameter(torch.randn(heads, width // heads) * 0.1)

        def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
            y = self.linear(x).unflatten(-1, (heads, -1))
            nodes = y.shape[0]
            sent, received = (y * self.from_source).sum(-1), (y * self.from_target).sum(-1)
            scores = sent.index_select(0, sources) + received.index_select(0, targets)
            scores = nn.functional.leaky_relu(scores, 0.2)
            rows = targets.unsqueeze(-1).expand(-1, heads)
            top = scores.new_zeros((nodes, heads)).scatter_reduce(0, rows, scores.detach(), "amax", include_self=False)
            weights = torch.exp(scores - top.index_select(0, targets))
            weights = weights / (add_up(weights, targets, nodes).index_select(0, targets) + 1e-4)
            messages = y.index_select(0, sources) * weights.to(y.dtype).unsqueeze(-1)
            return nn.functional.elu(add_up(messages, targets, nodes).flatten(1)) + x

    return Attention()


def _messages(width: int) -> nn.Module:
    import torch
    from torch import nn

    class Messages(nn.Module):
        """A message from an MLP on both ends of an edge, an update from an MLP on the node and its messages."""

        def __init__(self) -> None:
            super().__init__()
            self.message = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
            self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
            self.norm = nn.LayerNorm(width)

        def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
            ends = torch.cat([x.index_select(0, sources), x.index_select(0, targets)], dim=-1)
            received = add_up(self.message(ends), targets, x.shape[0])
            return self.norm(x + self.update(torch.cat([x, received.to(x.dtype)], dim=-1)))

    return Messages()


def _dense(features: int, width: int, depth: int) -> nn.Module:
    from torch import nn

    class DenseNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(features, width)
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
            self.head = nn.Linear(width, CLASSES)

        def forward(self, features: Tensor, adjacency: Tensor) -> Tensor:
            weights = adjacency / (adjacency.abs().sum(-1, keepdim=True) + 1)
            x = self.stem(features)
            for layer in self.layers:
                x = nn.functional.relu(weights.to(x.dtype) @ layer(x)) + x
            return self.head(x.mean(1))

    return DenseNetwork()


def build(design: int, width: int, depth: int, heads: int, nodes: int, degree: int, features: int) -> nn.Module:
    """The network; it takes node features and edges (2, nodes x degree), or a dense adjacency matrix."""
    import torch
    from torch import nn

    if design == DENSE:
        return _dense(features, width, depth)

    class GraphNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(features, width)
            layer = {CONVOLUTION: lambda: _convolution(width), ATTENTION: lambda: _attention(width, heads)}
            self.layers = nn.ModuleList(layer.get(design, lambda: _messages(width))() for _ in range(depth))
            self.head = nn.Linear(width, CLASSES)

        def forward(self, features: Tensor, edges: Tensor) -> Tensor:
            batch = features.shape[0]
            offsets = torch.arange(batch, device=edges.device).view(-1, 1, 1) * nodes
            sources, targets = (edges + offsets).transpose(0, 1).flatten(1).unbind(0)
            x = self.stem(features.flatten(0, 1))
            for layer in self.layers:
                x = layer(x, sources, targets)
            return self.head(x.unflatten(0, (batch, nodes)).mean(1))

    return GraphNetwork()


def inputs(settings: Settings) -> dict[str, Input]:
    nodes = settings["nodes"]
    given = {"features": Input((nodes, settings["features"]))}
    if settings["design"] == DENSE:
        return {**given, "adjacency": Input((nodes, nodes))}
    return {**given, "edges": Input((2, nodes * settings["degree"]), below=nodes)}


def problem(settings: Settings) -> str | None:
    return "width must be a multiple of heads" if settings["width"] % settings["heads"] else None


FAMILY = Family(
    prefix="graph_network",
    kind="graph neural network",
    settings={
        "design": Setting(0, 0, 3),  # 0 GCN, 1 GAT, 2 message passing, 3 GCN with a dense adjacency matrix
        "width": Setting(64, 1, 4096),
        "depth": Setting(3, 1, 64),
        "heads": Setting(4, 1, 64),  # of GAT
        "nodes": Setting(128, 1, 1000000),
        "degree": Setting(8, 1, 1024),
        "features": Setting(32, 1, 4096),
    },
    build=build,
    inputs=inputs,
    always_named=("design", "width", "depth"),
    problem=problem,
)
