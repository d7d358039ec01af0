"""The launch speed of this host: microseconds per tiny call by kind of op. It determines the latency of small calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .host_facts import host
from .meters import Meter

CALLS, CHUNK = 2000, 250  # a chunk is below the depth of the launch queue, so that a call never blocks


def measure(meter: Meter, calls: int = CALLS) -> dict[str, Any]:
    """Mean and fastest chunk by op, in microseconds per call, without synchronising."""
    import os

    import torch

    out: dict[str, Any] = {"launch_us": {}, "launch_min_us": {}, "load": list(os.getloadavg()), **host()}
    begin = time.perf_counter()
    x = 0.0
    for i in range(2_000_000):
        x += i
    out["python_loop_ms"] = 1e3 * (time.perf_counter() - begin)
    for name, call in _calls(meter).items():
        with torch.inference_mode("backward" not in name):
            chunks = _chunks(call, meter, calls)
        out["launch_us"][name] = sum(chunks) / len(chunks)
        out["launch_min_us"][name] = min(chunks)
    return out


def quick_probe(meter: Meter, launches: int = 64, rounds: int = 3) -> dict[str, float]:
    """The current host speed, measured in about 3 ms: microseconds per tiny launch and per 1,000 Python additions.

    On a shared host both vary by half from one minute to the next, and every host-bound latency with them.
    """
    import torch

    with torch.inference_mode():
        a = torch.ones(16, device=meter.device)
        best = loop = float("inf")
        for _ in range(rounds):
            meter.sync()
            begin = time.perf_counter()
            for _ in range(launches):
                a + a
            best = min(best, time.perf_counter() - begin)
            begin = time.perf_counter()
            x = 0
            for i in range(5000):
                x += i
            loop = min(loop, time.perf_counter() - begin)
        meter.sync()
    return {"launch_us": 1e6 * best / launches, "python_us": 1e6 * loop / 5}


def _chunks(call: Callable[[], Any], meter: Meter, calls: int) -> list[float]:
    for _ in range(20):
        call()
    chunks = []
    for _ in range(max(2, calls // CHUNK)):
        meter.sync()
        begin = time.perf_counter()
        for _ in range(CHUNK):
            call()
        chunks.append(1e6 * (time.perf_counter() - begin) / CHUNK)
    meter.sync()
    return chunks


def _calls(meter: Meter) -> dict[str, Callable[[], Any]]:
    import torch
    from torch.nn import functional

    device = meter.device

    def new(*shape: int) -> Any:
        return torch.randn(shape, device=device)

    a, b, w, bias = new(16, 64), new(16, 64), new(64, 64), new(64)
    image, kernel, c8 = new(1, 8, 8, 8), new(8, 8, 3, 3), new(8)
    mean, var = torch.zeros(8, device=device), torch.ones(8, device=device)
    q = new(1, 2, 16, 64)
    query = q.half() if meter.prefers_half else q
    ids = torch.randint(0, 16, (16,), device=device)
    learned = new(64, 64).requires_grad_()

    def forward_backward() -> None:
        functional.linear(a, learned).sum().backward()

    tried: dict[str, Callable[[], Any]] = {
        "empty": lambda: torch.empty(16, device=device),
        "view": lambda: a.view(64, 16),
        "add": lambda: a + b,
        "add_": lambda: a.add_(b),
        "mul": lambda: a * b,
        "relu": lambda: torch.relu(a),
        "gelu": lambda: functional.gelu(a),
        "copy": lambda: a.t().contiguous(),
        "cast": lambda: a.to(torch.float16),
        "linear": lambda: functional.linear(a, w, bias),
        "matmul": lambda: torch.mm(a, w),
        "bmm": lambda: torch.bmm(q[0], q[0].transpose(1, 2)),
        "conv2d": lambda: functional.conv2d(image, kernel, c8, padding=1),
        "batch_norm": lambda: functional.batch_norm(image, mean, var, c8, c8),
        "layer_norm": lambda: functional.layer_norm(a, (64,), bias, bias),
        "softmax": lambda: torch.softmax(a, -1),
        "sdpa": lambda: functional.scaled_dot_product_attention(query, query, query),
        "cat": lambda: torch.cat([a, b]),
        "max_pool": lambda: functional.max_pool2d(image, 2),
        "mean": lambda: a.mean(-1),
        "embedding": lambda: functional.embedding(ids, w),
        "index": lambda: a[ids],
    }
    return {**tried, "linear_forward_backward": forward_backward, "sync": meter.sync}
