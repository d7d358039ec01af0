"""Device time of a call as the sum of its kernel durations."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from .meters import Meter

_CLASSES = (
    ("copy", r"^memcpy|copy_kernel|CatArray|cat_|DtoD"),
    ("memset", r"^memset"),
    ("attention", r"flash|fmha|attention|cudnn_generated_fort_native_sdpa"),
    ("conv", r"conv|wgrad|dgrad|fprop|winograd|implicit|im2col|nchwToNhwc|nhwcToNchw|cudnn"),
    ("gemm", r"gemm|cutlass|cublas|sgemm|xmma|splitK|gemv|nvjet|matmul"),
    ("norm", r"norm|bn_fw|bn_bw|batch_norm|layer_norm|Welford|welford"),
    ("softmax", r"softmax"),
    ("optimizer", r"multi_tensor|adam|foreach"),
    ("reduce", r"reduce|Reduce"),
    ("pool", r"pool"),
    ("index", r"index|gather|scatter|embedding|sort|topk|radix"),
    ("elementwise", r"elementwise|vectorized|pointwise|unrolled|triu|tril|arange|fill"),
)
_PATTERNS = [(name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _CLASSES]


def kernel_class(name: str) -> str:
    """A coarse class from the kernel's name, for readers of rows."""
    for label, pattern in _PATTERNS:
        if pattern.search(name):
            return label
    return "other"


def kernel_times(
    meter: Meter, call: Callable[[], Any], restore: Callable[[], None] | None, calls: int
) -> dict[str, Any]:
    """`kernel_ms` (all device activity of one call), the number of kernels, times by class, the longest by name."""
    profiler = meter.profiler()
    if profiler is None:
        return {"kernel_ms": None, "kernel_ms_reason": meter.why_no_kernels}
    try:
        with profiler:
            for _ in range(calls):
                if restore is not None:
                    restore()
                call()
            meter.sync()
        records = profiler.records()
    except Exception as error:  # noqa: BLE001 - a profiler failure must not lose the row's other results
        return {"kernel_ms": None, "kernel_ms_reason": f"the profiler failed: {error}"[:200]}
    by_name: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for name, _, ns in records:
        entry = by_name[name]
        entry[0] += ns / 1e6
        entry[1] += 1
    if not by_name:
        return {"kernel_ms": None, "kernel_ms_reason": "the profiler saw no kernels"}
    classes: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for name, (ms, count) in by_name.items():
        entry = classes[kernel_class(name)]
        entry[0] += ms / calls
        entry[1] += count / calls
    heaviest = sorted(by_name.items(), key=lambda item: -item[1][0])[:5]
    copies = sum(entry[1] for name, entry in by_name.items() if is_copy(name))
    return {
        "kernel_ms": sum(entry[0] for entry in by_name.values()) / calls,
        "kernels": (sum(entry[1] for entry in by_name.values()) - copies) / calls,
        "copies": copies / calls,
        "kernel_classes": {k: [round(ms, 5), round(n, 2)] for k, (ms, n) in sorted(classes.items())},
        "top_kernels": [[name[:90], round(ms / calls, 5), round(n / calls, 2)] for name, (ms, n) in heaviest],
        "profiled_calls": calls,
    }


def is_copy(name: str) -> bool:
    """Whether a record is a copy or a memset rather than a kernel."""
    return name.startswith(("Memcpy", "Memset"))
