"""Fourier neural operators on grids of one or two dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn


def _spectral(dims: int, width: int, modes: int) -> nn.Module:
    import torch
    from torch import nn

    class Spectral(nn.Module):
        """Multiplies the lowest frequencies with a matrix each. Fourier transforms are computed in fp32."""

        def __init__(self) -> None:
            super().__init__()
            # Real and imaginary parts in a last dimension: casting a complex weight to fp16 would drop one of them.
            shape = (width, width, *[modes] * dims, 2)
            self.weights = nn.ParameterList(nn.Parameter(torch.randn(shape) / width) for _ in range(dims))

        def forward(self, x: Tensor) -> Tensor:
            sizes = x.shape[2:]
            axes = tuple(range(2, 2 + dims))
            spectrum = torch.fft.rfftn(x.float(), dim=axes)
            out = torch.zeros_like(spectrum)
            weights = [torch.view_as_complex(w.float()) for w in self.weights]
            if dims == 1:
                out[:, :, :modes] = torch.einsum("bim,iom->bom", spectrum[:, :, :modes], weights[0])
            else:
                low, high = slice(0, modes), slice(-modes, None)
                for rows, weight in zip((low, high), weights, strict=True):
                    out[:, :, rows, low] = torch.einsum("bimn,iomn->bomn", spectrum[:, :, rows, low], weight)
            return torch.fft.irfftn(out, s=sizes, dim=axes).to(x.dtype)

    return Spectral()


def build(dims: int, width: int, depth: int, modes: int, size: int, channels: int, outputs: int) -> nn.Module:
    """The network; it takes and returns fields (batch, channels, size[, size])."""
    import torch
    from torch import nn

    conv = nn.Conv1d if dims == 1 else nn.Conv2d

    class Operator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lift = nn.Sequential(conv(channels + dims, 2 * width, 1), nn.GELU(), conv(2 * width, width, 1))
            self.spectral = nn.ModuleList(_spectral(dims, width, modes) for _ in range(depth))
            self.direct = nn.ModuleList(conv(width, width, 1) for _ in range(depth))
            self.project = nn.Sequential(conv(width, 2 * width, 1), nn.GELU(), conv(2 * width, outputs, 1))

        def forward(self, x: Tensor) -> Tensor:
            line = torch.linspace(0, 1, size, device=x.device, dtype=x.dtype)
            grid = torch.stack(torch.meshgrid(*[line] * dims, indexing="ij"))
            x = self.lift(torch.cat([x, grid.expand(x.shape[0], *grid.shape)], dim=1))
            for spectral, direct in zip(self.spectral, self.direct, strict=True):
                x = nn.functional.gelu(spectral(x) + direct(x))
            return self.project(x)

    return Operator()


def inputs(settings: Settings) -> dict[str, Input]:
    return {"": Input((settings["channels"], *[settings["size"]] * settings["dims"]))}


def problem(settings: Settings) -> str | None:
    return "modes must not be more than half of size" if 2 * settings["modes"] > settings["size"] else None


FAMILY = Family(
    prefix="neural_operator",
    kind="Fourier neural operator",
    settings={
        "dims": Setting(2, 1, 2),
        "width": Setting(32, 1, 1024),
        "depth": Setting(4, 1, 32),
        "modes": Setting(12, 1, 512),
        "size": Setting(64, 4, 65536),
        "channels": Setting(1, 1, 64),
        "outputs": Setting(1, 1, 64),
    },
    build=build,
    inputs=inputs,
    always_named=("dims", "width", "depth"),
    problem=problem,
)
