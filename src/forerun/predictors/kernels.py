"""What kernels reach of the hardware's peak, and what it costs the host to launch them: one table, with its basis.

Ranges come from several hundred eager-PyTorch calls measured on an H200; they stand for "a well-kept library on a
current accelerator". A learned predictor replaces them; the roofline predictor keeps them and says how wide it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forerun.device import Device
from forerun.graph.profile import CLASSES


@dataclass(frozen=True)
class Kernel:
    """How a class of kernels runs."""

    slowdown: float  # time over the op's own roofline
    floor_us: float  # what even an empty launch takes on the device
    host_us: float  # what the framework spends on the host to launch it, eager


_KERNELS: dict[str, Kernel] = {
    # class: slowdown, floor, host. cuBLAS reaches 65 to 75 % of peak on large products.
    "matmul": Kernel(1.45, 4.0, 27),
    "batched_matmul": Kernel(1.6, 4.0, 27),
    "expert_matmul": Kernel(1.8, 8.0, 40),
    # Implicit GEMM: padding, halos and layout changes cost about as much as the arithmetic.
    "conv": Kernel(2.2, 6.0, 40),
    "conv_pointwise": Kernel(1.8, 5.0, 40),
    "conv_depthwise": Kernel(4.0, 5.0, 40),
    "conv_grouped": Kernel(8.0, 8.0, 40),
    "conv_backward": Kernel(2.4, 8.0, 60),
    "conv_depthwise_backward": Kernel(5.0, 8.0, 60),
    "attention": Kernel(2.0, 6.0, 60),
    "attention_backward": Kernel(2.2, 8.0, 60),
    "rnn": Kernel(3.0, 5.0, 30),
    "norm": Kernel(1.8, 3.0, 20),
    "norm_backward": Kernel(2.0, 4.0, 25),
    "softmax": Kernel(1.6, 3.0, 14),
    "elementwise": Kernel(1.4, 2.0, 10),
    "copy": Kernel(1.6, 2.0, 11),
    "fill": Kernel(1.4, 1.5, 8),
    "reduce": Kernel(1.7, 3.0, 14),
    "pool": Kernel(1.8, 3.0, 18),
    "resize": Kernel(1.8, 3.0, 18),
    "gather": Kernel(2.0, 3.0, 16),
    "scatter": Kernel(3.0, 4.0, 18),
    "embedding": Kernel(2.0, 3.0, 16),
    "sort": Kernel(4.0, 10.0, 30),
    "optimizer": Kernel(1.5, 3.0, 40),
    "fft": Kernel(2.5, 5.0, 30),
    "unknown": Kernel(2.0, 3.0, 15),
}

SLOWDOWN = np.array([_KERNELS[c].slowdown for c in CLASSES])
FLOOR_US = np.array([_KERNELS[c].floor_us for c in CLASSES])
HOST_US = np.array([_KERNELS[c].host_us for c in CLASSES])

#: Fixed host time of one call: Python, module hooks, the final synchronise.
CALL_US = 150.0


@dataclass(frozen=True)
class Runtime:
    """How much of the per-launch cost a way of running leaves."""

    host_share: float  # of HOST_US
    call_us: float
    floor_share: float  # of FLOOR_US


def runtime(device: Device, name: str) -> Runtime:
    """The launch costs of a runtime on a kind of device.

    Eager PyTorch on a GPU pays per op. TPUs and other ASICs run whole compiled programs: their ops pay nothing each.
    A CPU is its own host: dispatch costs a few microseconds and there is nothing to launch.
    """
    if device.kind in ("tpu", "asic"):
        return Runtime(0.0, 200.0, 0.5)
    if device.kind == "cpu":
        return Runtime(0.0, 20.0, 1.0)
    if name == "cudagraph":
        return Runtime(0.0, 20.0, 0.6)
    return Runtime(1.0, CALL_US, 1.0)
