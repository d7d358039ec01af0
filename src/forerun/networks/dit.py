"""Diffusion transformers (DiT) that denoise latents: `dit:width=768,depth=12,heads=12`.

Patches as tokens; in each block the embedding of step and class sets the shift, scale and gate of attention and MLP
(adaLN).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings
from forerun.networks.vision_layers import Attention, sinusoidal


class _GatedMlp(nn.Module):
    """An MLP with a SiLU gate."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, 2 * hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.into(x).chunk(2, dim=-1)
        return self.out(value * F.silu(gate))


def _modulate(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (1 + scale[:, None]) + shift[:, None]


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, ratio: int, gated: bool) -> None:
        super().__init__()
        hidden = ratio * width
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention = Attention(width, heads)
        plain = nn.Sequential(nn.Linear(width, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, width))
        self.mlp = _GatedMlp(width, hidden) if gated else plain
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.condition(c).chunk(6, dim=1)
        x = x + gate1[:, None] * self.attention(_modulate(self.norm1(x), shift1, scale1))
        return x + gate2[:, None] * self.mlp(_modulate(self.norm2(x), shift2, scale2))


class DiT(nn.Module):
    """Takes a noisy latent, the step and a class, and returns the noise and its variance."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.width, self.patch, self.channels = s["width"], s["patch"], s["channels"]
        side = s["image"] // s["patch"]
        self.side = side
        self.embed = nn.Conv2d(self.channels, self.width, self.patch, stride=self.patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, side * side, self.width))
        self.step = nn.Sequential(nn.Linear(256, self.width), nn.SiLU(), nn.Linear(self.width, self.width))
        self.label = nn.Embedding(s["classes"] + 1, self.width)
        self.blocks = nn.ModuleList(
            _Block(self.width, s["heads"], s["ratio"], bool(s["gated"])) for _ in range(s["depth"])
        )
        self.norm = nn.LayerNorm(self.width, elementwise_affine=False, eps=1e-6)
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(self.width, 2 * self.width))
        self.last = nn.Linear(self.width, self.patch**2 * 2 * self.channels)

    def forward(self, x: torch.Tensor, step: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        c = self.step(sinusoidal(step, 256, x.dtype)) + self.label(label)
        x = self.embed(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.condition(c).chunk(2, dim=1)
        x = self.last(_modulate(self.norm(x), shift, scale))
        x = x.view(-1, self.side, self.side, self.patch, self.patch, 2 * self.channels)
        return x.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


def _build(**settings: int) -> nn.Module:
    return DiT(settings)


def _problem(s: Settings) -> str | None:
    if s["image"] % s["patch"]:
        return "image must be a multiple of patch"
    return "width must be a multiple of heads" if s["width"] % s["heads"] else None


FAMILY = Family(
    prefix="dit",
    kind="diffusion transformer",
    settings={
        "image": Setting(32, 4, 512),
        "patch": Setting(2, 1, 16),
        "width": Setting(384, 8, 4096),
        "depth": Setting(12, 1, 64),
        "heads": Setting(6, 1, 64),
        "ratio": Setting(4, 1, 8),
        "gated": Setting(0, 0, 1),
        "channels": Setting(4, 1, 32),
        "classes": Setting(1000, 1, 100_000),
    },
    build=_build,
    inputs=lambda s: {
        "x": Input((s["channels"], s["image"], s["image"])),
        "step": Input((), below=1000),
        "label": Input((), below=s["classes"]),
    },
    always_named=("width", "depth"),
    problem=_problem,
)
