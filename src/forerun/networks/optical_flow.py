"""Estimators of optical flow as RAFT has them: `optical_flow:height=256,across=320,iterations=8`.

Both images are encoded at an eighth of the size; the dot products of all pairs of positions form a correlation pyramid.
A convolutional GRU looks up the pyramid around the current flow, a fixed number of times, and refines the flow.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings


class _Block(nn.Module):
    """Two 3x3 convolutions with instance norm, and the input added."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(into, out, 3, stride, 1), nn.Conv2d(out, out, 3, 1, 1)
        self.norm1, self.norm2 = nn.InstanceNorm2d(out), nn.InstanceNorm2d(out)
        self.skip = nn.Identity() if stride == 1 and into == out else nn.Conv2d(into, out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(F.relu(self.norm2(self.conv2(h))) + self.skip(x))


def _encoder(base: int, out: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, base, 7, 2, 3), nn.InstanceNorm2d(base), nn.ReLU(inplace=True)]
    into = base
    for width, stride in ((base, 1), (base * 3 // 2, 2), (base * 2, 2)):
        layers += [_Block(into, width, stride), _Block(width, width, 1)]
        into = width
    return nn.Sequential(*layers, nn.Conv2d(into, out, 1))


class _Gru(nn.Module):
    """A GRU whose gates are convolutions; separable: once along rows, once along columns."""

    def __init__(self, hidden: int, into: int, separable: bool) -> None:
        super().__init__()
        kernels = [(1, 5), (5, 1)] if separable else [(3, 3)]

        def gates(kernel: tuple[int, int], out: int) -> nn.Module:
            return nn.Conv2d(hidden + into, out, kernel, padding=(kernel[0] // 2, kernel[1] // 2))

        self.gates = nn.ModuleList(gates(kernel, 2 * hidden) for kernel in kernels)
        self.new = nn.ModuleList(gates(kernel, hidden) for kernel in kernels)

    def forward(self, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        for gates, new in zip(self.gates, self.new, strict=True):
            z, r = torch.sigmoid(gates(torch.cat([h, x], dim=1))).chunk(2, dim=1)
            h = (1 - z) * h + z * torch.tanh(new(torch.cat([r * h, x], dim=1)))
        return h


class OpticalFlow(nn.Module):
    """Takes two images and returns the flow between them after each iteration, at full size."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.iterations, self.levels, self.radius, self.hidden = s["iterations"], s["levels"], s["radius"], s["hidden"]
        self.features = _encoder(s["base"], s["features"])
        self.context = _encoder(s["base"], 2 * self.hidden)
        window = self.levels * (2 * self.radius + 1) ** 2
        self.see = nn.Sequential(nn.Conv2d(window, 128, 1), nn.ReLU(inplace=True))
        self.move = nn.Sequential(nn.Conv2d(2, 64, 7, padding=3), nn.ReLU(inplace=True))
        self.join = nn.Conv2d(192, 126, 3, padding=1)
        self.gru = _Gru(self.hidden, self.hidden + 128, bool(s["separable"]))
        self.improve = nn.Sequential(
            nn.Conv2d(self.hidden, 128, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(128, 2, 3, padding=1)
        )

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first_features, second_features = self.features(first), self.features(second)
        pyramid = self._pyramid(first_features, second_features)
        h, context = self.context(first).split(self.hidden, dim=1)
        h, context = torch.tanh(h), torch.relu(context)
        batch, _, rows, columns = first_features.shape
        grid = self._grid(rows, columns, first_features)
        flow = torch.zeros((batch, 2, rows, columns), dtype=first_features.dtype, device=first_features.device)
        flows = []
        for _ in range(self.iterations):
            flow = flow.detach()
            seen = self.see(self._look(pyramid, grid + flow))
            motion = F.relu(self.join(torch.cat([seen, self.move(flow)], dim=1)))
            h = self.gru(h, torch.cat([context, motion, flow], dim=1))
            flow = flow + self.improve(h)
            flows.append(F.interpolate(8 * flow, scale_factor=8.0, mode="bilinear", align_corners=True))
        return tuple(flows) if self.training else (flows[-1],)

    def _pyramid(self, first: torch.Tensor, second: torch.Tensor) -> list[torch.Tensor]:
        batch, width, rows, columns = first.shape
        products = torch.matmul(first.flatten(2).transpose(1, 2), second.flatten(2)) / width**0.5
        maps = [products.view(batch * rows * columns, 1, rows, columns)]
        for _ in range(self.levels - 1):
            maps.append(F.avg_pool2d(maps[-1], 2))
        return maps

    def _grid(self, rows: int, columns: int, like: torch.Tensor) -> torch.Tensor:
        y, x = torch.meshgrid(
            torch.arange(rows, device=like.device), torch.arange(columns, device=like.device), indexing="ij"
        )
        return torch.stack([x, y])[None].to(like.dtype)

    def _look(self, pyramid: list[torch.Tensor], at: torch.Tensor) -> torch.Tensor:
        """The correlations in a window around the current target of each position, on every level."""
        batch, _, rows, columns = at.shape
        side = torch.arange(-self.radius, self.radius + 1, device=at.device).to(at.dtype)
        window = torch.stack(torch.meshgrid(side, side, indexing="ij"), dim=-1)
        centre = at.permute(0, 2, 3, 1).reshape(batch * rows * columns, 1, 1, 2)
        seen = []
        for i, level in enumerate(pyramid):
            points = centre / 2**i + window
            x, y = points.split(1, dim=-1)
            x, y = 2 * x / (level.shape[-1] - 1) - 1, 2 * y / (level.shape[-2] - 1) - 1
            sampled = F.grid_sample(level, torch.cat([x, y], dim=-1), align_corners=True)
            seen.append(sampled.view(batch, rows, columns, -1))
        return torch.cat(seen, dim=-1).permute(0, 3, 1, 2)


def _build(**settings: int) -> nn.Module:
    return OpticalFlow(settings)


def _problem(s: Settings) -> str | None:
    step = 16 * 2 ** (s["levels"] - 1)
    if s["height"] % 8 or s["across"] % 8 or min(s["height"], s["across"]) < step:
        return f"height and across must be multiples of 8, and at least {step} for {s['levels']} levels"
    return None


FAMILY = Family(
    prefix="optical_flow",
    kind="optical flow",
    settings={
        "height": Setting(256, 16, 1024),
        "across": Setting(320, 16, 1920),  # the width of the images
        "base": Setting(64, 4, 256),
        "features": Setting(256, 4, 512),
        "hidden": Setting(128, 4, 512),
        "iterations": Setting(8, 1, 32),
        "levels": Setting(4, 1, 5),
        "radius": Setting(4, 1, 6),
        "separable": Setting(1, 0, 1),
    },
    build=_build,
    inputs=lambda s: {name: Input((3, s["height"], s["across"])) for name in ("first", "second")},
    always_named=("height", "across"),
    problem=_problem,
)
