"""Graphs for a network: all of them in a few tensors on the device that trains, of which batches are gathered there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from forerun.predictors.published.gnn.arrays import GraphArrays


@dataclass(frozen=True)
class Batch:
    """Several graphs as one: nodes one after another, and which graph each belongs to."""

    nodes: Tensor  # [nodes, features]
    edges: Tensor  # [2, edges]
    graph: Tensor  # [nodes]
    weight: Tensor  # [nodes] how often each runs
    static: Tensor  # [graphs, numbers]
    given: Tensor | None = None  # [graphs, numbers] that join the readout
    targets: Tensor | None = None  # [graphs, targets] what was measured, NaN where it was not


@dataclass(frozen=True)
class Examples:
    """Graphs one after another with their features and numbers, and their measurements."""

    nodes: Tensor  # [all nodes, features]
    weight: Tensor  # [all nodes]
    edges: Tensor  # [2, all edges], counted from the first node of each graph
    node_counts: np.ndarray  # [graphs]
    edge_counts: np.ndarray  # [graphs]
    static: Tensor  # [graphs, numbers]
    given: Tensor | None = None
    targets: Tensor | None = None

    @classmethod
    def of(
        cls, graphs: Sequence[GraphArrays], features: Sequence[np.ndarray], statics: np.ndarray, *,
        both_ways: bool = False,
    ) -> Self:  # fmt: skip
        """Graphs and the features made of them; `both_ways`: messages run against the edges, too."""
        edges = [np.concatenate([g.edges, g.edges[::-1]], axis=1) if both_ways else g.edges for g in graphs]
        return cls(
            torch.from_numpy(np.concatenate(features)),
            torch.from_numpy(np.concatenate([g.repeat for g in graphs])),
            torch.from_numpy(np.ascontiguousarray(np.concatenate(edges, axis=1))),
            np.array([len(f) for f in features]),
            np.array([e.shape[1] for e in edges]),
            torch.from_numpy(statics),
        )

    def __len__(self) -> int:
        return len(self.node_counts)

    def to(self, device: str) -> Examples:
        """The same on another device of PyTorch's."""
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    def with_targets(self, targets: np.ndarray) -> Examples:
        """The same with measured targets."""
        return replace(self, targets=torch.from_numpy(targets.astype(np.float32)).to(self.nodes.device))

    def with_given(self, given: Tensor) -> Examples:
        """The same with numbers that join the readout."""
        return replace(self, given=given.to(self.nodes.device))

    def batches(self, size: int, order: np.ndarray | None = None) -> Iterator[Batch]:
        """Batches of `size` graphs, in the given order. Indices are sent to the device once for all batches: a copy for
        each would make the device wait."""
        order = np.arange(len(self)) if order is None else order
        device = self.nodes.device
        places = torch.from_numpy(order).to(device)
        spans = [_Spans(counts, order, device) for counts in (self.node_counts, self.edge_counts)]
        for start in range(0, len(order), size):
            part = slice(start, start + size)
            (graph, nodes, first), (of_edge, edges, _) = (one.of(part) for one in spans)
            chosen = places[part]
            yield Batch(
                self.nodes[nodes], self.edges[:, edges] + first[of_edge], graph, self.weight[nodes],
                self.static[chosen], None if self.given is None else self.given[chosen],
                None if self.targets is None else self.targets[chosen],
            )  # fmt: skip


class _Spans:
    """The spans of the graphs' nodes or edges among all of them, for graphs in a given order."""

    def __init__(self, counts: np.ndarray, order: np.ndarray, device: torch.device) -> None:
        starts = np.cumsum(counts) - counts
        self.sizes = counts[order]
        self.on_device = torch.from_numpy(np.stack([self.sizes, starts[order]])).to(device)

    def of(self, part: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Of the graphs in a part of the order, one after another: the graph of each node or edge, where it is among
        all, and where those of each graph begin."""
        sizes, starts = self.on_device[:, part]
        total = int(self.sizes[part].sum())
        first = sizes.cumsum(0) - sizes
        numbers = torch.arange(len(sizes), device=sizes.device)
        owner = torch.repeat_interleave(numbers, sizes, output_size=total)
        return owner, torch.arange(total, device=sizes.device) + (starts - first)[owner], first
