"""Cost laws on odd sizes: scores that a mask leaves, transforms along several axes, and that no op costs less than
nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import forerun
from forerun.capture.capture import record
from forerun.frontends import load_graph
from forerun.graph.cost import Shapes, cost, totals, visible_scores
from forerun.graph.ir import Graph
from forerun.workload import Workload

SIZES = st.integers(1, 40)


def visible_by_hand(queries: int, keys: int, cached: bool, window: int | None) -> int:
    """The ones of the mask, counted."""
    places = torch.arange(queries)[:, None] + (keys - queries if cached else 0)
    seen = torch.arange(keys)[None, :] <= places
    if window:
        seen &= torch.arange(keys)[None, :] > places - window
    return int(seen.sum())


@settings(max_examples=150, deadline=None)
@given(SIZES, SIZES, st.booleans(), st.none() | st.integers(1, 50))
def test_the_scores_of_a_causal_mask_are_counted_one_by_one(q: int, k: int, cached: bool, window: int | None) -> None:
    attrs = {"causal": True, "cached": cached, "window": window}
    assert visible_scores(q, k, attrs) == visible_by_hand(q, k, cached, window)
    assert visible_scores(np.array([q]), np.array([k]), attrs).tolist() == [visible_by_hand(q, k, cached, window)]


class Attends(nn.Module):
    def __init__(self, queries: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(1, 2, queries, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = x[:, None].expand(-1, 2, -1, -1)
        return F.scaled_dot_product_attention(self.query.expand(x.shape[0], -1, -1, -1), keys, keys, is_causal=True)


@pytest.mark.parametrize(("queries", "keys"), [(1024, 16), (24, 16), (16, 24), (16, 16), (1, 16)])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_causal_attention_of_every_shape_is_what_sdpa_computes(queries: int, keys: int, mode: str) -> None:
    model = Attends(queries)
    graph = load_graph(Workload(model, batch=3, mode=mode, input_shape=(keys, 8)))
    scores = 3 * 2 * int(torch.ones(queries, keys).tril().sum())
    matmuls = 2 if mode == "inference" else 7  # q k, p v; backward five more
    assert totals(graph).macs == matmuls * 8 * scores
    result = forerun.predict(model, "a100", batch=3, mode=mode, input_shape=(keys, 8))
    assert math.isfinite(result.latency_ms.value)


@pytest.mark.parametrize(
    ("transform", "lengths", "halved"),
    [
        (lambda x: torch.fft.fft(x).real, [32], False),
        (lambda x: torch.fft.ifft(x).real, [32], False),
        (lambda x: torch.fft.fft(x, dim=2).real, [64], False),
        (lambda x: torch.fft.fft2(x).real, [64, 32], False),
        (lambda x: torch.fft.fftn(x, dim=(1, 2, 3)).real, [4, 64, 32], False),
        (lambda x: torch.fft.rfft(x).real, [32], True),
        (lambda x: torch.fft.rfft2(x).real, [64, 32], True),
        (lambda x: torch.fft.irfftn(torch.complex(x, x)[..., :17], s=(64, 32), dim=(2, 3)), [64, 32], True),
    ],
)  # fmt: skip
def test_an_fft_counts_every_axis(transform: Callable[[Any], Any], lengths: list[int], halved: bool) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return transform(x)

    graph = load_graph(Workload(Net(), batch=2, input_shape=(4, 64, 32)))
    shapes = Shapes(graph)
    flops = sum(float(cost(op, shapes).flops) for op in graph.ops if op.kind == "fft")
    numbers = 2 * 4 * 64 * (17 if halved else 32)
    assert flops == pytest.approx(5 * numbers * math.log2(math.prod(lengths)))


def _conv_transpose(n: int, m: int) -> Any:
    x, w = torch.empty(n, 4, m, m), torch.empty(4, 3, 3, 3)
    return F.conv_transpose2d(x, w, stride=2, output_padding=1, groups=2)


def _bag(n: int, m: int) -> Any:
    index = torch.zeros(n * m, dtype=torch.int64)
    return F.embedding_bag(index, torch.empty(7, m), torch.zeros(n, dtype=torch.int64), mode="sum")


#: Calls on odd sizes: empty, broadcast, transposed, with gaps.
CALLS: dict[str, Callable[[int, int], Any]] = {
    "linear": lambda n, m: F.linear(torch.empty(n, m), torch.empty(3, m)),
    "einsum": lambda n, m: torch.einsum("nij,njk->nik", torch.empty(n, m, 2), torch.empty(n, 2, m)),
    "bmm": lambda n, m: torch.empty(n, m, 5) @ torch.empty(5, m),
    "conv": lambda n, m: F.conv2d(torch.empty(n, 4, m, m), torch.empty(6, 2, 3, 3), padding=1, groups=2),
    "conv_transpose": _conv_transpose,
    "sdpa": lambda n, m: F.scaled_dot_product_attention(*[torch.empty(2, 2, k, 8) for k in (n, m, m)], is_causal=True),
    "softmax": lambda n, m: torch.empty(n, m).softmax(-1),
    "layer_norm": lambda n, m: F.layer_norm(torch.empty(n, m), (m,)),
    "cumsum": lambda n, m: torch.empty(n, m).cumsum(0),
    "sort": lambda n, m: torch.empty(n, m).sort(-1).values,
    "topk": lambda n, m: torch.empty(n, m).topk(min(1, m)).values,
    "sum": lambda n, m: torch.empty(n, m).sum(),
    "add": lambda n, m: torch.empty(n, 1) + torch.empty(1, m),
    "expand": lambda n, m: torch.empty(1, 1).expand(n, m) * 2,
    "interpolate": lambda n, m: F.interpolate(torch.empty(1, n, m, m), size=(m + 1, 3), mode="bilinear"),
    "grid": lambda n, m: F.grid_sample(torch.empty(1, 2, m, m), torch.empty(1, n, 3, 2)),
    "embedding": lambda n, m: F.embedding(torch.zeros(n, dtype=torch.int64), torch.empty(5, m)),
    "embedding_bag": _bag,
    "scatter_add": lambda n, m: torch.zeros(n, m).scatter_add(
        0, torch.zeros(n, m, dtype=torch.int64), torch.empty(n, m)
    ),
    "index": lambda n, m: torch.empty(n, m)[torch.zeros(3, dtype=torch.int64)] if n else torch.empty(0),
    "index_add": lambda n, m: torch.zeros(n, m).index_add(0, torch.zeros(0, dtype=torch.int64), torch.empty(0, m)),
    "index_put": lambda n, m: torch.zeros(n, m).index_put((torch.zeros(2, dtype=torch.int64),), torch.tensor(1.0)),
    "pool": lambda n, m: F.adaptive_avg_pool2d(torch.empty(1, n, m, m), 1),
    "fft": lambda n, m: torch.fft.rfft2(torch.empty(n, m, m)),
    "cat": lambda n, m: torch.cat([torch.empty(n, m), torch.empty(0, m)]),
    "cdist": lambda n, m: torch.cdist(torch.empty(1, n, m), torch.empty(1, 3, m)),
}
#: Calls that PyTorch itself refuses on nothing.
NEED_ONE = frozenset({"conv", "conv_transpose", "topk", "interpolate", "grid", "pool", "fft", "embedding_bag", "cdist"})


def _recorded(call: Callable[[int, int], Any], n: int, m: int) -> Graph:
    def step(_recorder: Any, _emulation: Any) -> Any:
        with torch.no_grad(), torch.device("meta"):
            return call(n, m)

    return record(nn.Module(), step, repeats={}, held=lambda: iter(()))


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(CALLS)), st.integers(0, 9), st.integers(0, 9))
def test_no_op_costs_less_than_nothing(name: str, n: int, m: int) -> None:
    least = 1 if name in NEED_ONE else 0
    graph = _recorded(CALLS[name], max(n, least), max(m, least))
    shapes = Shapes(graph)
    for op in graph.ops:
        c = cost(op, shapes)
        for value in (c.macs, c.flops, c.read, c.written):
            assert math.isfinite(float(value)), (name, op)
            assert float(value) >= 0, (name, op)
