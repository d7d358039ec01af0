"""Masked autoencoders of images: `mixer_mae:width=768,depth=12,heads=12`.

A random share of the patches is gathered and encoded; the decoder gets them back in their positions among mask tokens
and returns the pixels of every patch. Blocks mix tokens by attention, or with `mixer` by an MLP over the tokens.
"""

from __future__ import annotations

import torch
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings
from forerun.networks.vision_layers import TransformerBlock


class _TokenMixer(nn.Module):
    """An MLP over the tokens of each channel, as in an MLP-Mixer."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(x.transpose(1, 2)).transpose(1, 2)


class MaskedAutoencoder(nn.Module):
    """Takes an image and returns the pixels of all its patches."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        width, small = s["width"], s["decoder_width"]
        self.tokens = (s["image"] // s["patch"]) ** 2
        self.visible = _visible(s)

        def block(size: int, tokens: int) -> TransformerBlock:
            mixer = (lambda: _TokenMixer(tokens)) if s["mixer"] else None
            return TransformerBlock(size, max(1, size * s["heads"] // width), mixer=mixer)

        self.embed = nn.Conv2d(3, width, s["patch"], stride=s["patch"])
        self.position = nn.Parameter(0.02 * torch.randn(1, self.tokens, width))
        self.encoder = nn.ModuleList(block(width, self.visible) for _ in range(s["depth"]))
        self.norm, self.shrink = nn.LayerNorm(width), nn.Linear(width, small)
        self.mask = nn.Parameter(0.02 * torch.randn(1, 1, small))
        self.decoder_position = nn.Parameter(0.02 * torch.randn(1, self.tokens, small))
        self.decoder = nn.ModuleList(block(small, self.tokens) for _ in range(s["decoder_depth"]))
        self.decoder_norm, self.pixels = nn.LayerNorm(small), nn.Linear(small, 3 * s["patch"] ** 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.position
        order = torch.rand(x.shape[:2], device=x.device).argsort(dim=1)
        back = order.argsort(dim=1)
        x = torch.gather(x, 1, order[:, : self.visible, None].expand(-1, -1, x.shape[2]))
        for block in self.encoder:
            x = block(x)
        x = self.shrink(self.norm(x))
        masks = self.mask.expand(x.shape[0], self.tokens - self.visible, -1)
        x = torch.cat([x, masks.to(x.dtype)], dim=1)
        x = torch.gather(x, 1, back[:, :, None].expand(-1, -1, x.shape[2])) + self.decoder_position
        for block in self.decoder:
            x = block(x)
        return self.pixels(self.decoder_norm(x))


def _visible(s: Settings) -> int:
    return max(1, (s["image"] // s["patch"]) ** 2 * s["keep"] // 100)


def _build(**settings: int) -> nn.Module:
    return MaskedAutoencoder(settings)


def _problem(s: Settings) -> str | None:
    if s["image"] % s["patch"]:
        return "image must be a multiple of patch"
    head = s["width"] // s["heads"]
    if s["width"] % s["heads"] or (s["decoder_width"] > head and s["decoder_width"] % head):
        return "width must be a multiple of heads, and decoder_width of the width of a head"
    return None


FAMILY = Family(
    prefix="mixer_mae",
    kind="masked autoencoder",
    settings={
        "image": Setting(224, 8, 1024),
        "patch": Setting(16, 2, 64),
        "width": Setting(768, 8, 4096),
        "depth": Setting(12, 1, 64),
        "heads": Setting(12, 1, 64),
        "decoder_width": Setting(512, 8, 4096),
        "decoder_depth": Setting(8, 0, 32),
        "keep": Setting(25, 1, 100),  # percent of the patches that are encoded
        "mixer": Setting(0, 0, 1),
    },
    build=_build,
    inputs=lambda s: {"": Input((3, s["image"], s["image"]))},
    always_named=("width", "depth"),
    problem=_problem,
)
