"""State-space sequence models: S4 by FFT convolution, Mamba's selective scan, Mamba-2's scan by matmuls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

S4, MAMBA, MAMBA2 = range(3)
HEAD = 64  # channels that share a decay in Mamba-2


def _s4(width: int, state: int) -> nn.Module:
    import torch
    from torch import nn

    class S4(nn.Module):
        """A diagonal state space as one long convolution, computed by FFT in fp32."""

        def __init__(self) -> None:
            super().__init__()
            self.log_step = nn.Parameter(torch.rand(width, 1) * 4 - 6)
            self.log_decay = nn.Parameter(torch.rand(width, state))
            self.frequency = nn.Parameter(torch.arange(state).float().repeat(width, 1))
            self.readout = nn.Parameter(torch.randn(width, state, 2) * state**-0.5)
            self.skip = nn.Parameter(torch.randn(width))
            self.out = nn.Linear(width, 2 * width)

        def forward(self, x: Tensor) -> Tensor:
            length = x.shape[1]
            step = self.log_step.float().exp()
            rate = torch.complex(-self.log_decay.float().exp() * step, self.frequency.float() * step)
            times = torch.arange(length, device=x.device, dtype=torch.float32)
            powers = torch.exp(rate.unsqueeze(-1) * times)
            kernel = (torch.view_as_complex(self.readout.float()).unsqueeze(-1) * powers).real.sum(1)
            signal = x.transpose(1, 2).float()
            product = torch.fft.rfft(signal, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
            y = torch.fft.irfft(product, n=2 * length)[..., :length]
            y = nn.functional.gelu(y.to(x.dtype).transpose(1, 2) + x * self.skip)
            return nn.functional.glu(self.out(y), dim=-1)

    return S4()


def _mamba(width: int, state: int, chunk: int) -> nn.Module:
    import torch
    from torch import nn

    inner, rank = 2 * width, max(1, width // 16)

    class Mamba(nn.Module):
        """The selective scan in plain PyTorch: cumulative sums within a chunk, the state carried between chunks."""

        def __init__(self) -> None:
            super().__init__()
            self.into = nn.Linear(width, 2 * inner, bias=False)
            self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
            self.select = nn.Linear(inner, rank + 2 * state, bias=False)
            self.step = nn.Linear(rank, inner)
            self.log_decay = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(inner, 1) - 4)
            self.skip = nn.Parameter(torch.ones(inner))
            self.out = nn.Linear(inner, width, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            length = x.shape[1]
            x, gate = self.into(x).chunk(2, dim=-1)
            x = nn.functional.silu(self.conv(x.transpose(1, 2))[..., :length].transpose(1, 2))
            step, write, read = self.select(x).split([rank, state, state], dim=-1)
            y = self._scan(x.float(), nn.functional.softplus(self.step(step)).float(), write.float(), read.float())
            y = y.to(x.dtype) + x * self.skip.to(x.dtype)
            return self.out(y * nn.functional.silu(gate))

        def _scan(self, x: Tensor, step: Tensor, write: Tensor, read: Tensor) -> Tensor:
            rate = -self.log_decay.float().exp()
            held = x.new_zeros((x.shape[0], inner, state))
            out = []
            for start in range(0, x.shape[1], chunk):
                part = slice(start, start + chunk)
                decay = torch.cumsum(step[:, part].unsqueeze(-1) * rate, dim=1).clamp(min=-30)
                wrote = (step[:, part] * x[:, part]).unsqueeze(-1) * write[:, part].unsqueeze(2)
                states = torch.exp(decay) * (torch.cumsum(wrote * torch.exp(-decay), dim=1) + held.unsqueeze(1))
                out.append((states * read[:, part].unsqueeze(2)).sum(-1))
                held = states[:, -1]
            return torch.cat(out, dim=1)

    return Mamba()


def _mamba2(width: int, state: int, chunk: int) -> nn.Module:
    import torch
    from torch import nn

    inner = 2 * width
    heads = inner // HEAD
    mixed = inner + 2 * state

    class Mamba2(nn.Module):
        """One decay per head: within a chunk a masked matmul as in attention, between chunks a matmul of states."""

        def __init__(self) -> None:
            super().__init__()
            self.into = nn.Linear(width, mixed + inner + heads, bias=False)
            self.conv = nn.Conv1d(mixed, mixed, 4, padding=3, groups=mixed)
            self.log_decay = nn.Parameter(torch.zeros(heads))
            self.skip = nn.Parameter(torch.ones(heads, 1))
            self.norm = nn.RMSNorm(inner)
            self.out = nn.Linear(inner, width, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            batch, length, _ = x.shape
            z, gate, step = self.into(x).split([mixed, inner, heads], dim=-1)
            z = nn.functional.silu(self.conv(z.transpose(1, 2))[..., :length].transpose(1, 2))
            values, write, read = z.split([inner, state, state], dim=-1)
            values = values.reshape(batch, length // chunk, chunk, heads, HEAD)
            write, read = (t.reshape(batch, length // chunk, chunk, state) for t in (write, read))
            step = nn.functional.softplus(step.float()).reshape(batch, length // chunk, chunk, heads)
            y = self._scan(values * step.unsqueeze(-1).to(z.dtype), step, write, read) + values * self.skip.to(z.dtype)
            return self.out(self.norm((y.reshape(batch, length, inner) * nn.functional.silu(gate)).to(gate.dtype)))

        def _scan(self, values: Tensor, step: Tensor, write: Tensor, read: Tensor) -> Tensor:
            decay = torch.cumsum(-step * self.log_decay.float().exp(), dim=2).permute(0, 3, 1, 2)
            lower = torch.ones(chunk, chunk, dtype=torch.bool, device=values.device).tril()
            gap = (decay.unsqueeze(-1) - decay.unsqueeze(-2)).masked_fill(~lower, -torch.inf)
            scores = torch.einsum("bcls,bcms->bclm", read, write).unsqueeze(1)
            within = torch.einsum("bhclm,bcmhp->bclhp", scores * torch.exp(gap).to(scores.dtype), values)
            to_end = torch.exp(decay[..., -1:] - decay).to(values.dtype)
            added = torch.einsum("bcls,bhcl,bclhp->bchsp", write, to_end, values)
            total = torch.cumsum(nn.functional.pad(decay[..., -1], (1, 0)), dim=-1)
            chunks = total.shape[-1] - 1
            before = torch.ones(chunks, chunks, dtype=torch.bool, device=values.device).tril(-1)
            between = (total[..., :-1].unsqueeze(-1) - total[..., 1:].unsqueeze(-2)).masked_fill(~before, -torch.inf)
            held = torch.einsum("bhcd,bdhsp->bchsp", torch.exp(between).to(added.dtype), added)
            grown = torch.exp(decay).to(values.dtype)
            return within + torch.einsum("bcls,bchsp,bhcl->bclhp", read, held.to(read.dtype), grown)

    return Mamba2()


def build(design: int, width: int, depth: int, state: int, length: int, chunk: int, vocab: int) -> nn.Module:
    """The network; it takes tokens (batch, length) and scores the next ones."""
    from torch import nn

    class SequenceModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            make = {S4: lambda: _s4(width, state), MAMBA: lambda: _mamba(width, state, chunk)}
            self.embedding = nn.Embedding(vocab, width)
            self.layers = nn.ModuleList(make.get(design, lambda: _mamba2(width, state, chunk))() for _ in range(depth))
            self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(depth + 1))
            self.head = nn.Linear(width, vocab, bias=False)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embedding(tokens)
            for layer, norm in zip(self.layers, self.norms, strict=False):
                x = x + layer(norm(x))
            return self.head(self.norms[-1](x))

    return SequenceModel()


def problem(settings: Settings) -> str | None:
    if settings["design"] == MAMBA2 and settings["length"] % settings["chunk"]:
        return "length must be a multiple of chunk"
    if settings["design"] == MAMBA2 and settings["width"] * 2 % HEAD:
        return f"twice the width must be a multiple of {HEAD}"
    return None


FAMILY = Family(
    prefix="state_space",
    kind="state-space model",
    settings={
        "design": Setting(0, 0, 2),  # 0 S4, 1 Mamba, 2 Mamba-2
        "width": Setting(128, 1, 8192),
        "depth": Setting(2, 1, 128),
        "state": Setting(16, 1, 256),
        "length": Setting(256, 1, 65536),
        "chunk": Setting(64, 1, 1024),
        "vocab": Setting(1000, 2, 500000),
    },
    build=build,
    inputs=lambda settings: {"": Input((settings["length"],), below=settings["vocab"])},
    always_named=("design", "width", "depth"),
    problem=problem,
)
