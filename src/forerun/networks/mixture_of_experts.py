"""Language models with a mixture of experts: one-hot dispatch (GShard), a loop over experts, or batched experts.

Every expert takes the same number of tokens, so that no size is data-dependent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forerun.networks.base import Family, Input, Setting, Settings

if TYPE_CHECKING:
    from torch import Tensor, nn

ONE_HOT, LOOP, BATCHED = range(3)


def capacity(tokens: int, experts: int, top: int) -> int:
    """How many of the tokens one expert takes: a quarter more than an equal share."""
    return min(tokens, max(1, tokens * top * 5 // (experts * 4)))


def _one_hot(width: int, inner: int, experts: int, top: int) -> nn.Module:
    import torch
    from torch import nn

    class OneHot(nn.Module):
        """Tokens are dispatched to experts and combined by matmuls with one-hot matrices, per sequence."""

        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(width, experts, bias=False)
            self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
            self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

        def forward(self, x: Tensor) -> Tensor:
            room = capacity(x.shape[1], experts, top)
            shares, chosen = torch.softmax(self.router(x), dim=-1).topk(top, dim=-1)
            sent = (chosen.unsqueeze(-1) == torch.arange(experts, device=x.device)).to(x.dtype)
            place = torch.cumsum(sent.flatten(1, 2), dim=1).unflatten(1, (-1, top)) * sent - 1
            slots = torch.arange(room, device=x.device)
            routed = (place.unsqueeze(-1) == slots).to(x.dtype)
            dispatch = routed.sum(2).to(x.dtype)
            combine = (routed * shares.to(x.dtype)[..., None, None]).sum(2).to(x.dtype)
            grouped = torch.einsum("btec,btd->ebcd", dispatch, x)
            hidden = nn.functional.gelu(torch.einsum("ebcd,edf->ebcf", grouped, self.up))
            by_expert = torch.einsum("ebcf,efd->ebcd", hidden, self.down)
            return torch.einsum("btec,ebcd->btd", combine.to(by_expert.dtype), by_expert)

    return OneHot()


def _chosen(design: int, width: int, inner: int, experts: int, top: int) -> nn.Module:
    import torch
    from torch import nn

    from forerun.networks.transformer_layers import FeedForward

    class Chosen(nn.Module):
        """Every expert chooses its tokens, which are gathered, transformed and added back."""

        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(width, experts, bias=False)
            if design == LOOP:
                self.experts = nn.ModuleList(FeedForward(width, inner) for _ in range(experts))
            else:
                self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
                self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)

        def forward(self, x: Tensor) -> Tensor:
            flat = x.flatten(0, 1)
            room = capacity(flat.shape[0], experts, top)
            shares, rows = torch.softmax(self.router(flat), dim=-1).transpose(0, 1).topk(room, dim=-1)
            combined = self._loop(flat, shares, rows) if design == LOOP else self._batched(flat, shares, rows)
            return combined.view(x.shape)

        def _loop(self, flat: Tensor, shares: Tensor, rows: Tensor) -> Tensor:
            total = torch.zeros_like(flat)
            for i, expert in enumerate(self.experts):
                y = expert(flat.index_select(0, rows[i])) * shares[i].unsqueeze(-1)
                total = total.index_add(0, rows[i], y.to(total.dtype))
            return total

        def _batched(self, flat: Tensor, shares: Tensor, rows: Tensor) -> Tensor:
            grouped = flat.index_select(0, rows.flatten()).unflatten(0, rows.shape)
            y = torch.bmm(nn.functional.gelu(torch.bmm(grouped, self.up)), self.down) * shares.unsqueeze(-1)
            return torch.zeros_like(flat).index_add(0, rows.flatten(), y.flatten(0, 1).to(flat.dtype))

    return Chosen()


def build(
    design: int, width: int, depth: int, inner: int, experts: int, top: int, length: int, vocab: int
) -> nn.Module:
    """The network; it takes tokens (batch, length) and scores the next ones. Heads are 64 wide."""
    from torch import nn

    from forerun.networks.transformer_layers import Attention

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
            self.attention = Attention(width, max(1, width // 64), bias=False, causal=True, head=64)
            make = _one_hot(width, inner, experts, top) if design == ONE_HOT else None
            self.experts = make or _chosen(design, width, inner, experts, top)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attention(self.norms[0](x))
            return x + self.experts(self.norms[1](x))

    return nn.Sequential(
        nn.Embedding(vocab, width), *(Block() for _ in range(depth)), nn.RMSNorm(width), nn.Linear(width, vocab)
    )


def problem(settings: Settings) -> str | None:
    return "top must not be more than experts" if settings["top"] > settings["experts"] else None


FAMILY = Family(
    prefix="mixture_of_experts",
    kind="mixture of experts",
    settings={
        "design": Setting(0, 0, 2),  # 0 one-hot dispatch, 1 a loop over experts, 2 batched experts
        "width": Setting(256, 1, 8192),
        "depth": Setting(2, 1, 64),
        "inner": Setting(512, 1, 32768),
        "experts": Setting(8, 1, 256),
        "top": Setting(2, 1, 16),
        "length": Setting(128, 1, 8192),
        "vocab": Setting(8000, 2, 500000),
    },
    build=build,
    inputs=lambda settings: {"": Input((settings["length"],), below=settings["vocab"])},
    always_named=("design", "width", "depth"),
    problem=problem,
)
