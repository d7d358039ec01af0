"""Single operators: how a case is built and how its device time is taken, free of launch overhead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .kernels import capture, synchronises, timer
from .meters import Meter
from .models import DTYPES
from .protocol import summary

GRAPH_S, GRAPH_MAX, REPLAYS = 0.006, 40, 3
UNARY = ("relu", "gelu", "silu", "sigmoid", "exp", "tanh", "hardswish", "copy", "scale")
_pool: list[Any] = []  # one graph pool for all captures: a new one each time would cost a cudaMalloc per tensor


def build(case: dict[str, Any], device: str) -> tuple[Callable[[], Any], list[Any]]:
    """The forward call of an operator, and the tensors that its backward differentiates."""
    import torch
    from torch.nn import functional

    s, op = case["shape"], case["op"]
    dtype = torch.float32 if case["dtype"] == "tf32" else getattr(torch, DTYPES[case["dtype"]])
    gradient = case["direction"] == "backward"

    def new(*shape: int, scale: float = 1.0) -> Any:
        return (torch.randn(shape, dtype=dtype, device=device) * scale).requires_grad_(gradient)

    def whole(high: int, *shape: int) -> Any:
        return torch.randint(0, high, shape, device=device)

    if op == "matmul":
        a, b = new(s["m"], s["k"]), new(s["k"], s["n"])
        return lambda: torch.mm(a, b), [a, b]
    if op == "linear":
        x, w, bias = new(s["m"], s["k"]), new(s["n"], s["k"], scale=s["k"] ** -0.5), new(s["n"])
        return lambda: functional.linear(x, w, bias), [x, w, bias]
    if op == "bmm":
        a, b = new(s["b"], s["m"], s["k"]), new(s["b"], s["k"], s["n"])
        return lambda: torch.bmm(a, b), [a, b]
    if op == "conv2d":
        x = new(s["b"], s["cin"], s["h"], s["w"])
        w = new(s["cout"], s["cin"] // s["groups"], s["r"], s["r"], scale=0.05)
        return lambda: functional.conv2d(x, w, None, s["stride"], s["r"] // 2, 1, s["groups"]), [x, w]
    if op == "sdpa":
        q = new(s["b"], s["heads"], s["q"], s["d"])
        k, v = new(s["b"], s["heads"], s["kv"], s["d"]), new(s["b"], s["heads"], s["kv"], s["d"])
        causal = bool(s["causal"])
        return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal), [q, k, v]
    if op == "softmax":
        x = new(s["rows"], s["cols"])
        return lambda: torch.softmax(x, -1), [x]
    if op == "cross_entropy":
        x, labels = new(s["rows"], s["cols"]), whole(s["cols"], s["rows"])
        return lambda: functional.cross_entropy(x, labels), [x]
    if op in ("layer_norm", "rms_norm"):
        x, w = new(s["rows"], s["cols"]), new(s["cols"])
        if op == "rms_norm":
            return lambda: functional.rms_norm(x, (s["cols"],), w), [x, w]
        b = new(s["cols"])
        return lambda: functional.layer_norm(x, (s["cols"],), w, b), [x, w, b]
    if op in ("batch_norm", "batch_norm_train", "group_norm"):
        x, w, b = new(s["b"], s["c"], s["h"], s["w"]), new(s["c"]), new(s["c"])
        if op == "group_norm":
            return lambda: functional.group_norm(x, s["groups"], w, b), [x, w, b]
        mean, var = torch.zeros(s["c"], device=device, dtype=dtype), torch.ones(s["c"], device=device, dtype=dtype)
        training = op == "batch_norm_train"
        return lambda: functional.batch_norm(x, mean, var, w, b, training), [x, w, b]
    if op in UNARY:
        x = new(s["n"])
        unary = _unary(op)
        return lambda: unary(x), [x]
    if op in ("add", "mul"):
        x, y = new(s["n"]), new(s["n"])
        binary = torch.add if op == "add" else torch.mul
        return lambda: binary(x, y), [x, y]
    if op == "bias_add":
        x, y = new(s["rows"], s["cols"]), new(s["cols"])
        return lambda: x + y, [x, y]
    if op == "cast":
        x = new(s["n"])
        other = torch.float16 if dtype == torch.float32 else torch.float32
        return lambda: x.to(other), [x]
    if op == "transpose":
        x = new(s["b"], s["rows"], s["cols"])
        return lambda: x.transpose(1, 2).contiguous(), [x]
    if op == "cat":
        x, y = new(s["b"], s["rows"], s["cols"]), new(s["b"], s["more"], s["cols"])
        return lambda: torch.cat([x, y], 1), [x, y]
    if op == "sum":
        x = new(s["rows"], s["cols"])
        return lambda: x.sum(-1), [x]
    if op in ("max_pool", "avg_pool", "global_pool"):
        x = new(s["b"], s["c"], s["h"], s["w"])
        if op == "global_pool":
            return lambda: functional.adaptive_avg_pool2d(x, 1), [x]
        pool = functional.max_pool2d if op == "max_pool" else functional.avg_pool2d
        return lambda: pool(x, s["r"], s["stride"], s["r"] // 2), [x]
    if op == "upsample":
        x = new(s["b"], s["c"], s["h"], s["w"])
        return lambda: functional.interpolate(x, scale_factor=2, mode="bilinear"), [x]
    if op == "embedding":
        table, ids = new(s["vocab"], s["cols"]), whole(s["vocab"], s["rows"])
        return lambda: functional.embedding(ids, table), [table]
    if op in ("gather", "scatter_add"):
        x, ids = new(s["rows"], s["cols"]), whole(s["rows"], s["picked"]).unsqueeze(1).expand(s["picked"], s["cols"])
        if op == "gather":
            return lambda: torch.gather(x, 0, ids), [x]
        source = new(s["picked"], s["cols"])
        return lambda: torch.scatter_add(x, 0, ids, source), [x, source]
    if op in ("sgd", "adamw"):
        return _optimizer(op, s, dtype, device), []
    raise ValueError(f"unknown operator {op!r}")


def _unary(op: str) -> Callable[[Any], Any]:
    import torch
    from torch.nn import functional

    found: dict[str, Callable[[Any], Any]] = {
        **{"relu": torch.relu, "gelu": functional.gelu, "silu": functional.silu, "sigmoid": torch.sigmoid},
        **{"exp": torch.exp, "tanh": torch.tanh, "hardswish": functional.hardswish, "copy": torch.clone},
        "scale": lambda x: x * 0.5,
    }
    return found[op]


def _optimizer(op: str, s: dict[str, int], dtype: Any, device: str) -> Callable[[], Any]:
    import torch

    parameters = []
    for i in range(s["tensors"]):
        # Half the tensors hold nearly all the numbers, as weights and biases do.
        size = max(8, int(1.98 * s["n"] / s["tensors"])) if i % 2 == 0 else max(8, int(0.02 * s["n"] / s["tensors"]))
        p = torch.nn.Parameter(torch.randn(size, dtype=dtype, device=device))
        p.grad = torch.randn_like(p)
        parameters.append(p)
    optimizer: Any
    if op == "adamw":
        optimizer = torch.optim.AdamW(parameters, lr=1e-6, capturable=device == "cuda")
    else:
        optimizer = torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)
    return lambda: optimizer.step()


def measure(case: dict[str, Any], meter: Meter) -> dict[str, Any]:
    """`device_ms` of one launch: many of them in a CUDA graph, or one after another where none can be captured."""
    import torch

    tf32 = case["dtype"] == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        if meter.kind != "cuda":
            return _measure_plain(_callable(case, meter), meter)
        stream: Any = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            results = _measure_cuda(_callable(case, meter), stream)
        if case["op"] == "adamw":
            results["note"] = "capturable=True, which a graph needs; the default AdamW keeps its step count on the host"
        return results
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = True


def _callable(case: dict[str, Any], meter: Meter) -> Callable[[], Any]:
    import torch

    forward, inputs = build(case, meter.device)
    if case["direction"] != "backward":
        if case["op"] in ("sgd", "adamw"):
            return forward

        def run() -> Any:
            with torch.no_grad():
                return forward()

        return run
    out = forward()
    upstream = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, upstream, retain_graph=True)


def _measure_cuda(call: Callable[[], Any], stream: Any) -> dict[str, Any]:
    import torch

    call()
    waits = synchronises(call)
    stream.synchronize()
    start, end = timer(), timer()
    begin = time.perf_counter()
    start.record(stream)
    call()
    host_ms = 1e3 * (time.perf_counter() - begin)
    end.record(stream)
    end.synchronize()
    once_s = max(start.elapsed_time(end) / 1e3, 2e-6)
    launches = max(1, min(GRAPH_MAX, int(GRAPH_S / once_s)))
    out: dict[str, Any] = {"launches": launches, "once_ms": 1e3 * once_s, "host_us": 1e3 * host_ms}

    def eager() -> None:
        for _ in range(launches):
            call()

    work: Callable[[], Any]
    graph = torch.cuda.CUDAGraph()
    if not _pool:
        _pool.append(torch.cuda.graph_pool_handle())
    try:
        if waits:
            work, out["method"] = eager, "loop"
        else:
            capture(graph, stream, eager, _pool[0])
            work, out["method"] = graph.replay, "graph"
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        torch.cuda.synchronize()
        torch.randn(8, device="cuda")  # raises when the broken capture poisoned the process
        work = eager
        out.update(method="loop", why_loop=str(error).splitlines()[0][:120])
    work()
    times = []
    for _ in range(REPLAYS):
        start, end = timer(), timer()
        start.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        times.append(start.elapsed_time(end) / launches)
    if out["method"] == "graph":
        graph.reset()
    spread = summary(times)
    return {**out, "device_ms": spread["median"], "device_mean_ms": spread["mean"], "device_min_ms": spread["min"]}


def _measure_plain(call: Callable[[], Any], meter: Meter) -> dict[str, Any]:
    times: list[float] = []
    begin = time.perf_counter()
    call()
    while len(times) < 20 and (len(times) < 3 or time.perf_counter() - begin < 0.2):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    spread = summary(times)
    return {
        **{"method": "wall", "launches": len(times), "host_us": None, "device_ms": spread["median"]},
        **{"device_mean_ms": spread["mean"], "device_min_ms": spread["min"]},
    }
