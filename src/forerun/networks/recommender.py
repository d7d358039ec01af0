"""Recommenders that look up large embedding tables: DLRM with dot interactions, or cross layers (DCN v2)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

DENSE = 13  # real-valued features, as in the Criteo data


def _mlp(sizes: list[int]) -> nn.Module:
    from torch import nn

    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
    return nn.Sequential(*layers)


def build(tables: int, rows: int, width: int, bag: int, hidden: int, depth: int, cross: int, pooled: int) -> nn.Module:
    """The network; it takes 13 real features and `bag` indices for each table, and scores one click."""
    import torch
    from torch import nn

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            table = (
                (lambda: nn.EmbeddingBag(rows, width, mode="sum")) if pooled else (lambda: nn.Embedding(rows, width))
            )
            self.tables = nn.ModuleList(table() for _ in range(tables))
            self.bottom = _mlp([DENSE, *[hidden // 2] * (depth - 1), width])
            fields = tables + 1
            self.cross = nn.ModuleList(nn.Linear(fields * width, fields * width) for _ in range(cross))
            joined = fields * width if cross else width + fields * (fields - 1) // 2
            self.top = nn.Sequential(_mlp([joined, *[hidden] * depth]), nn.Linear(hidden, 1))
            rows_of, columns_of = torch.tril_indices(fields, fields, -1).unbind()
            self.register_buffer("pairs", rows_of * fields + columns_of, persistent=False)
            self.pairs: Tensor

        def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
            vectors_of = [self.bottom(dense)]
            for table, index in zip(self.tables, indices.unbind(1), strict=True):
                vectors = table(index)
                vectors_of.append(vectors if pooled else vectors.sum(1))
            x = torch.stack([v.to(vectors_of[0].dtype) for v in vectors_of], dim=1)
            if cross:
                first = last = x.flatten(1)
                for layer in self.cross:
                    last = first * layer(last) + last
                return self.top(last)
            products = torch.bmm(x, x.transpose(1, 2)).flatten(1)
            return self.top(torch.cat([vectors_of[0], products.index_select(1, self.pairs)], dim=1))

    return Recommender()


def inputs(settings: Settings) -> dict[str, Input]:
    return {"dense": Input((DENSE,)), "indices": Input((settings["tables"], settings["bag"]), below=settings["rows"])}


FAMILY = Family(
    prefix="recommender",
    kind="recommender",
    settings={
        "tables": Setting(8, 1, 1000),
        "rows": Setting(10000, 2, 100000000),
        "width": Setting(32, 1, 1024),
        "bag": Setting(1, 1, 1000),  # indices for each table and sample
        "hidden": Setting(256, 2, 16384),
        "depth": Setting(2, 1, 16),  # layers of each MLP
        "cross": Setting(0, 0, 16),  # cross layers; 0: dot products of all pairs
        "pooled": Setting(1, 0, 1),  # nn.EmbeddingBag, else nn.Embedding and a sum
    },
    build=build,
    inputs=inputs,
    always_named=("tables", "rows", "width"),
)
