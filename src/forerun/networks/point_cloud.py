"""Networks on point clouds: PointNet, PointNet++ with sampled centres, and edge convolutions on nearest neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

POINTNET, SAMPLED, EDGES = range(3)


def nearest(centres: Tensor, points: Tensor, count: int) -> Tensor:
    """Indices (batch, centres, count) of the points nearest to each centre."""
    inner = centres @ points.transpose(1, 2)
    far = points.square().sum(-1).unsqueeze(1) - 2 * inner
    return far.topk(count, dim=-1, largest=False)[1]


def take(values: Tensor, index: Tensor) -> Tensor:
    """The rows of (batch, points, width) at the indices (batch, centres, count): (batch, centres, count, width)."""
    batch, centres, count = index.shape
    rows = index.reshape(batch, centres * count, 1).expand(-1, -1, values.shape[-1])
    return values.gather(1, rows).unflatten(1, (centres, count))


def _shared(into: int, widths: list[int]) -> nn.Module:
    """The same layers on every point of (batch, width, points)."""
    from torch import nn

    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Conv1d(into, width, 1, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
        into = width
    return nn.Sequential(*layers)


def _head(into: int, classes: int) -> nn.Module:
    from torch import nn

    return nn.Sequential(
        nn.Linear(into, into // 2), nn.ReLU(), nn.Linear(into // 2, into // 4), nn.ReLU(), nn.Linear(into // 4, classes)
    )


def _pointnet(width: int, depth: int, classes: int, segment: int) -> nn.Module:
    import torch
    from torch import nn

    class Turn(nn.Module):
        """Predicts a matrix from the cloud by which its points are multiplied."""

        def __init__(self, size: int) -> None:
            super().__init__()
            self.size = size
            self.points = _shared(size, [width, 2 * width, 16 * width])
            self.matrix = _head(16 * width, size * size)

        def forward(self, x: Tensor) -> Tensor:
            matrix = self.matrix(self.points(x).amax(-1)).unflatten(1, (self.size, self.size))
            return (matrix + torch.eye(self.size, dtype=matrix.dtype, device=x.device)) @ x

    class PointNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn_points, self.turn_features = Turn(3), Turn(width)
            self.first = _shared(3, [width] * depth)
            self.second = _shared(width, [width, 2 * width, 16 * width])
            each = nn.Sequential(_shared(17 * width, [8 * width, 2 * width]), nn.Conv1d(2 * width, classes, 1))
            self.head = each if segment else _head(16 * width, classes)

        def forward(self, x: Tensor) -> Tensor:
            near = self.turn_features(self.first(self.turn_points(x.transpose(1, 2))))
            cloud = self.second(near).amax(-1)
            if not segment:
                return self.head(cloud)
            return self.head(torch.cat([near, cloud.unsqueeze(-1).expand(-1, -1, near.shape[-1])], dim=1))

    return PointNet()


def _sampled(width: int, depth: int, points: int, neighbours: int, classes: int) -> nn.Module:
    import torch
    from torch import nn

    class SetLayer(nn.Module):
        """A quarter of the points as centres, each the maximum over its neighbours."""

        def __init__(self, into: int, out: int, centres: int, count: int) -> None:
            super().__init__()
            self.centres, self.count = centres, count
            self.points = _shared(into + 3, [out, out, 2 * out])

        def forward(self, where: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            centres = where[:, :: where.shape[1] // self.centres][:, : self.centres]
            index = nearest(centres, where, self.count)
            around = take(where, index) - centres.unsqueeze(2)
            grouped = torch.cat([around, take(x, index)], dim=-1).flatten(1, 2).transpose(1, 2)
            features = self.points(grouped).unflatten(-1, (self.centres, self.count)).amax(-1)
            return centres, features.transpose(1, 2)

    class PointNetPlus(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [(points // 4**i, width * 2**i) for i in range(depth + 1)]
            self.layers = nn.ModuleList(
                SetLayer(3 if i == 0 else sizes[i][1], sizes[i][1], sizes[i + 1][0], min(neighbours, sizes[i][0]))
                for i in range(depth)
            )
            self.last = _shared(sizes[-1][1] + 3, [8 * width, 16 * width])
            self.head = _head(16 * width, classes)

        def forward(self, x: Tensor) -> Tensor:
            where, features = x, x
            for layer in self.layers:
                where, features = layer(where, features)
            joined = torch.cat([where, features], dim=-1).transpose(1, 2)
            return self.head(self.last(joined).amax(-1))

    return PointNetPlus()


def _edges(width: int, depth: int, neighbours: int, classes: int, segment: int) -> nn.Module:
    import torch
    from torch import nn

    class EdgeLayer(nn.Module):
        """The maximum over a point's edges to its neighbours, which are recomputed from the features."""

        def __init__(self, into: int) -> None:
            super().__init__()
            self.conv = nn.Sequential(
                nn.Conv2d(2 * into, width, 1, bias=False), nn.BatchNorm2d(width), nn.LeakyReLU(0.2)
            )

        def forward(self, x: Tensor) -> Tensor:
            around = take(x, nearest(x, x, neighbours))
            centre = x.unsqueeze(2).expand_as(around)
            pairs = torch.cat([centre, around - centre], dim=-1).permute(0, 3, 1, 2)
            return self.conv(pairs).amax(-1).transpose(1, 2)

    class EdgeNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(EdgeLayer(width if i else 3) for i in range(depth))
            self.join = _shared(depth * width, [16 * width])
            self.head = nn.Conv1d(16 * width, classes, 1) if segment else _head(16 * width, classes)

        def forward(self, x: Tensor) -> Tensor:
            levels = []
            for layer in self.layers:
                x = layer(x)
                levels.append(x)
            joined = self.join(torch.cat(levels, dim=-1).transpose(1, 2))
            return self.head(joined if segment else joined.amax(-1))

    return EdgeNet()


def build(design: int, width: int, depth: int, points: int, neighbours: int, classes: int, segment: int) -> nn.Module:
    """The network; it takes points (batch, points, 3)."""
    if design == POINTNET:
        return _pointnet(width, depth, classes, segment)
    if design == SAMPLED:
        return _sampled(width, depth, points, neighbours, classes)
    return _edges(width, depth, neighbours, classes, segment)


def problem(settings: Settings) -> str | None:
    if settings["design"] == SAMPLED and settings["points"] < 4 ** settings["depth"]:
        return "PointNet++ (design=1) needs points of at least 4 to the power of depth"
    if settings["neighbours"] > settings["points"]:
        return "neighbours must not be more than points"
    return None


FAMILY = Family(
    prefix="point_cloud",
    kind="point cloud",
    settings={
        "design": Setting(0, 0, 2),  # 0 PointNet, 1 PointNet++, 2 edge convolutions (DGCNN)
        "width": Setting(64, 4, 1024),
        "depth": Setting(2, 1, 12),
        "points": Setting(256, 4, 65536),
        "neighbours": Setting(16, 1, 256),
        "classes": Setting(40, 2, 1000),
        "segment": Setting(0, 0, 1),  # scores for every point; PointNet++ always scores the cloud
    },
    build=build,
    inputs=lambda settings: {"": Input((settings["points"], 3))},
    always_named=("design", "width", "points"),
    problem=problem,
)
