"""Neural radiance fields: an MLP of encoded coordinates along rays, `nerf:samples=64,width=256,depth=8`.

The batch is the number of rays. Sines and cosines of the points go through the MLP, with the input concatenated again
half-way; density and colour (seen along the direction, with `view`) are summed along the ray by their transmittance.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings


def _encoded(x: torch.Tensor, frequencies: int) -> torch.Tensor:
    rates = math.pi * 2 ** torch.arange(frequencies, device=x.device, dtype=x.dtype)
    angles = (x[..., None] * rates).flatten(-2)
    return torch.cat([x, angles.sin(), angles.cos()], dim=-1)


class RadianceField(nn.Module):
    """Takes the points on each ray and its direction, and returns the ray's colour."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        width, depth = s["width"], s["depth"]
        self.frequencies, self.view_frequencies, self.view = s["frequencies"], 4, bool(s["view"])
        point = 3 + 6 * self.frequencies
        self.again = depth // 2
        self.layers = nn.ModuleList(
            nn.Linear(point if i == 0 else width + (point if i == self.again and i else 0), width) for i in range(depth)
        )
        self.density = nn.Linear(width, 1)
        seen = 3 + 6 * self.view_frequencies if self.view else 0
        self.feature = nn.Linear(width, width)
        self.colour = nn.Sequential(nn.Linear(width + seen, max(1, width // 2)), nn.ReLU(inplace=True))
        self.last = nn.Linear(max(1, width // 2), 3)

    def forward(self, points: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        x = encoded = _encoded(points, self.frequencies)
        for i, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat([x, encoded], dim=-1) if i == self.again and i else x))
        density = F.softplus(self.density(x)).squeeze(-1)
        feature = self.feature(x)
        if self.view:
            seen = _encoded(direction, self.view_frequencies)
            feature = torch.cat([feature, seen[:, None].expand(-1, points.shape[1], -1)], dim=-1)
        colour = torch.sigmoid(self.last(self.colour(feature)))
        optical = density / points.shape[1]
        through = torch.exp(-(torch.cumsum(optical, dim=1) - optical))
        weights = through * (1 - torch.exp(-optical))
        return (weights[..., None] * colour).sum(dim=1)


def _build(**settings: int) -> nn.Module:
    return RadianceField(settings)


FAMILY = Family(
    prefix="nerf",
    kind="neural radiance field",
    settings={
        "samples": Setting(64, 1, 1024),
        "width": Setting(256, 1, 4096),
        "depth": Setting(8, 1, 64),
        "frequencies": Setting(10, 1, 32),
        "view": Setting(1, 0, 1),
    },
    build=_build,
    inputs=lambda s: {"points": Input((s["samples"], 3)), "direction": Input((3,))},
    always_named=("width", "depth"),
)
