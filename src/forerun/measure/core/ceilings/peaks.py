"""Peak matmul throughput of a device by dtype: TFLOP/s (TOP/s for integers)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from ..energy import EnergySteps
from ..meters import Meter
from .effort import Effort, best_ms, calls_in, check_works, why

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
#: Matmul shapes (m, n, k), smallest first: square ones, and the long and flat ones of language models.
SHAPES = (
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (4096, 16384, 4096),
    (8192, 8192, 8192), (16384, 8192, 4096), (16384, 4096, 16384), (8192, 28672, 8192), (16384, 16384, 16384),
)  # fmt: skip
BURST_S, SUSTAINED_S, CALL_S, REST_S = 0.05, 1.0, 0.25, 0.1
Shape = tuple[int, int, int]


def peak(meter: Meter, dtype: str, effort: Effort) -> dict[str, Any]:
    """Burst rate (milliseconds, best of all shapes) and sustained rate (a second, better of the two best shapes)."""
    import torch

    reason = meter.why_no_matmul(dtype)
    if reason:
        return {"reason": reason}
    tried: list[dict[str, Any]] = []
    try:
        with torch.inference_mode(), _mode(meter, dtype):
            for shape in _shapes(tried, effort):
                meter.reset_memory()
                time.sleep(0.0 if meter.is_host else effort.of(REST_S))  # clocks and power recover
                tried.append(burst(meter, dtype, shape, effort.of(BURST_S)))
            ranked = sorted(tried, key=lambda one: -one["tflops"])
            for one in ranked[:2]:
                one.update(_sustained(meter, dtype, one, effort))
    except Exception as error:  # noqa: BLE001 - an unsupported dtype is a property of the device
        check_works(meter)
        if not tried:
            return {"reason": why(error)}
    best = max(tried, key=_best)
    longest = max(tried, key=lambda one: one.get("sustained_tflops", 0.0))
    held = longest.get("sustained_tflops")
    return {
        "tflops": held, "shape": longest["shape"] if held else None, "power_w": longest.get("power_w"),
        "burst_tflops": _best(best), "burst_shape": best["shape"], "tried": tried,
    }  # fmt: skip


def burst(meter: Meter, dtype: str, shape: Shape, seconds: float) -> dict[str, Any]:
    """The fastest matmul of one shape, timed too briefly for heat or the power limit to slow it."""
    ms = best_ms(matmul(meter, dtype, shape), meter, seconds)
    return {"shape": list(shape), "ms": ms, "tflops": tflops(shape, ms)}


def tflops(shape: Shape, ms: float) -> float:
    """The throughput of one matmul in TFLOP/s."""
    m, n, k = shape
    return 2 * m * n * k / ms / 1e9


def matmul(meter: Meter, dtype: str, shape: Shape) -> Callable[[], Any]:
    """A call that multiplies two matrices in the memory layout of a linear layer's input and weights."""
    import torch

    m, n, k = shape
    device = meter.device
    if dtype == "int8":
        a, b = (torch.randint(-100, 100, size, dtype=torch.int8, device=device) for size in ((m, k), (n, k)))
        return lambda: torch._int_mm(a, b.t())
    a, b = (torch.randn(size, device=device).to(_torch_dtype(dtype)) for size in ((m, k), (n, k)))
    if dtype == "fp8":
        one = torch.ones((), device=device)
        scaled: dict[str, Any] = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return lambda: torch._scaled_mm(a, b.t(), **scaled)
    return lambda: torch.mm(a, b.t())


def _shapes(tried: list[dict[str, Any]], effort: Effort) -> Iterator[Shape]:
    """The shapes for which one matmul is short enough at the best rate so far, while time remains."""
    for shape in SHAPES:
        best = max((one["tflops"] for one in tried), default=0.0)
        if tried and (tflops(shape, 1e3) / best > effort.of(CALL_S) or effort.left_s < 0):
            return
        yield shape


def _sustained(meter: Meter, dtype: str, one: dict[str, Any], effort: Effort) -> dict[str, Any]:
    """Rate and power of back-to-back matmuls after the clocks have settled."""
    meter.reset_memory()
    shape, seconds = one["shape"], effort.of(SUSTAINED_S)
    call = matmul(meter, dtype, shape)
    settled = calls_in(one["ms"], seconds / 4)
    ms = meter.loop_ms(call, settled) / settled
    times = calls_in(ms, seconds)
    watch = EnergySteps(meter)
    try:
        ms = meter.loop_ms(call, times) / times
    finally:
        watch.end()
    return {"sustained_tflops": tflops(shape, ms), "sustained_calls": times, **watch.power()}


def _best(one: dict[str, Any]) -> float:
    """The best rate of a shape, burst or sustained."""
    return float(max(one["tflops"], one.get("sustained_tflops", 0.0)))


def _mode(meter: Meter, dtype: str) -> Any:
    return meter.tf32(dtype == "tf32") if dtype in ("fp32", "tf32") else nullcontext()


def _torch_dtype(dtype: str) -> Any:
    import torch

    return {
        "fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16,
        "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn,
    }[dtype]  # fmt: skip
