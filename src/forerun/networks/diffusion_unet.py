"""U-Nets that denoise images or latents, as Stable Diffusion has them: `diffusion_unet:width=320,levels=4`.

Residual blocks with group norm, SiLU and the embedding of the step; on all levels but the last a transformer block
after each: self-attention, cross-attention to the tokens of a text (with `context`), and an MLP with gated GELU.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from forerun.networks.base import Family, Input, Setting, Settings
from forerun.networks.vision_layers import Attention, group_norm, sinusoidal

_GROWTH = (1, 2, 4, 4, 8, 8)


class _Block(nn.Module):
    """Two 3x3 convolutions, the step's embedding added between them."""

    def __init__(self, into: int, out: int, steps: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = group_norm(into), nn.Conv2d(into, out, 3, padding=1)
        self.step = nn.Linear(steps, out)
        self.norm2, self.conv2 = group_norm(out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Identity() if into == out else nn.Conv2d(into, out, 1)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.step(F.silu(step))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class _Transformer(nn.Module):
    """Attention over the positions of a feature map, and to the context where there is one."""

    def __init__(self, width: int, head: int, context: int) -> None:
        super().__init__()
        heads = max(1, width // head)
        self.norm, self.into = group_norm(width), nn.Conv2d(width, width, 1)
        self.norm1, self.own = nn.LayerNorm(width), Attention(width, heads, bias=False)
        self.cross = Attention(width, heads, context, bias=False) if context else None
        self.norm2 = nn.LayerNorm(width) if context else None
        self.norm3, self.gate = nn.LayerNorm(width), nn.Linear(width, 8 * width)
        self.down, self.out = nn.Linear(4 * width, width), nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None) -> torch.Tensor:
        h = self.into(self.norm(x)).flatten(2).transpose(1, 2)
        h = h + self.own(self.norm1(h))
        if self.cross is not None and self.norm2 is not None:
            h = h + self.cross(self.norm2(h), context)
        value, gate = self.gate(self.norm3(h)).chunk(2, dim=-1)
        h = h + self.down(value * F.gelu(gate))
        return x + self.out(h.transpose(1, 2).unflatten(2, x.shape[2:]))


class _Layer(nn.Module):
    """A residual block, and a transformer block where the level has attention."""

    def __init__(self, into: int, out: int, steps: int, head: int, context: int, attention: bool) -> None:
        super().__init__()
        self.block = _Block(into, out, steps)
        self.transformer = _Transformer(out, head, context) if attention else None

    def forward(self, x: torch.Tensor, step: torch.Tensor, context: torch.Tensor | None) -> torch.Tensor:
        x = self.block(x, step)
        return x if self.transformer is None else self.transformer(x, context)


class DiffusionUNet(nn.Module):
    """Takes a noisy image, the step and a context, and returns the noise."""

    def __init__(self, channels: int, width: int, levels: int, blocks: int, head: int, context: int) -> None:
        super().__init__()
        self.width, steps = width, 4 * width
        widths = [width * _GROWTH[i] for i in range(levels)]

        def layer(into: int, out: int, attention: bool) -> _Layer:
            return _Layer(into, out, steps, head, context, attention)

        self.time = nn.Sequential(nn.Linear(width, steps), nn.SiLU(), nn.Linear(steps, steps))
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        into, skips = width, [width]
        for i, out in enumerate(widths):
            attends = i < levels - 1 or levels == 1
            self.down.append(nn.ModuleList(layer(into if j == 0 else out, out, attends) for j in range(blocks)))
            skips += [out] * blocks
            into = out
            if i < levels - 1:
                self.shrink.append(nn.Conv2d(out, out, 3, stride=2, padding=1))
                skips.append(out)
        self.middle = nn.ModuleList([layer(into, into, True), layer(into, into, False)])
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for i, out in reversed(list(enumerate(widths))):
            attends, stage = i < levels - 1 or levels == 1, nn.ModuleList()
            for _ in range(blocks + 1):
                stage.append(layer(into + skips.pop(), out, attends))
                into = out
            self.up.append(stage)
            if i:
                self.grow.append(nn.Conv2d(out, out, 3, padding=1))
        self.norm, self.last = group_norm(width), nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x: torch.Tensor, step: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        t = self.time(sinusoidal(step, self.width, x.dtype))
        x = self.first(x)
        skips = [x]
        for i, stage in enumerate(self.down):
            for part in stage:  # type: ignore[attr-defined]
                x = part(x, t, context)
                skips.append(x)
            if i < len(self.shrink):
                x = self.shrink[i](x)
                skips.append(x)
        for part in self.middle:
            x = part(x, t, context)
        for i, stage in enumerate(self.up):
            for part in stage:  # type: ignore[attr-defined]
                x = part(torch.cat([x, skips.pop()], dim=1), t, context)
            if i < len(self.grow):
                x = self.grow[i](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.last(F.silu(self.norm(x)))


def build(
    image: int, channels: int, width: int, levels: int, blocks: int, head: int, context: int, tokens: int
) -> nn.Module:
    """The network; for any image size that the levels divide."""
    return DiffusionUNet(channels, width, levels, blocks, head, context)


def _inputs(s: Settings) -> dict[str, Input]:
    inputs = {"x": Input((s["channels"], s["image"], s["image"])), "step": Input((), below=1000)}
    return {**inputs, "context": Input((s["tokens"], s["context"]))} if s["context"] else inputs


def _problem(s: Settings) -> str | None:
    if s["image"] % 2 ** (s["levels"] - 1):
        return f"image must be a multiple of {2 ** (s['levels'] - 1)} for {s['levels']} levels"
    if s["width"] % 2 or (s["width"] > s["head"] and s["width"] % s["head"]):
        return "width must be even, and a multiple of head"
    return None


FAMILY = Family(
    prefix="diffusion_unet",
    kind="diffusion U-Net",
    settings={
        "image": Setting(64, 4, 1024),
        "channels": Setting(4, 1, 16),
        "width": Setting(320, 8, 1024),
        "levels": Setting(4, 1, 6),
        "blocks": Setting(2, 1, 8),
        "head": Setting(40, 8, 256),
        "context": Setting(768, 0, 4096),  # 0: no text
        "tokens": Setting(77, 1, 1024),
    },
    build=build,
    inputs=_inputs,
    always_named=("width",),
    problem=_problem,
)
