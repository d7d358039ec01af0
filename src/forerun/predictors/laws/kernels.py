"""What kernels reach of the hardware's peak, and what it costs the host to launch them: one table, with its basis.

The constants were fitted to eager-PyTorch calls measured on an H200 (428 cases, with 10,000 single operators as the
prior) and stand for "a well-kept library on a current accelerator". The default predictor starts from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.device import Device
from forerun.graph.profile import CLASSES
from forerun.runtimes import registry
from forerun.runtimes.base import LaunchCosts


@dataclass(frozen=True)
class Kernel:
    """How a class of kernels runs."""

    compute: float  # time over arithmetic / peak, where arithmetic binds
    memory: float  # time over bytes / bandwidth on an H200, where memory binds
    floor_us: float  # what even the smallest launch takes on the device
    host_us: float  # what eager PyTorch spends on the host to launch it


# Small convolutions stand far from their memory roofline (layout changes, tiles that do not fill the chip); norms and
# pools read and write in patterns that caches like less than plain elementwise work.
_KERNELS: dict[str, Kernel] = {
    "matmul": Kernel(1.55, 1.5, 3.3, 33),
    "batched_matmul": Kernel(1.9, 1.7, 2.5, 32),
    "expert_matmul": Kernel(1.8, 2.2, 8.0, 60),
    "conv": Kernel(1.9, 8.8, 9.9, 51),
    "conv_pointwise": Kernel(2.3, 2.1, 3.0, 36),
    "conv_depthwise": Kernel(2.5, 3.6, 2.1, 36),
    "conv_grouped": Kernel(8.7, 4.1, 8.8, 41),
    "conv_backward": Kernel(2.3, 13.0, 12.0, 180),
    "conv_depthwise_backward": Kernel(4.0, 6.2, 4.7, 85),
    "attention": Kernel(2.4, 1.9, 5.2, 63),
    "attention_backward": Kernel(2.7, 3.0, 4.6, 62),
    "rnn": Kernel(3.0, 2.0, 5.0, 60),
    "norm": Kernel(3.0, 3.5, 5.4, 51),
    "norm_backward": Kernel(4.0, 4.6, 3.3, 56),
    "softmax": Kernel(2.0, 2.2, 2.0, 20),
    "elementwise": Kernel(4.0, 1.6, 1.3, 17),
    "copy": Kernel(1.0, 1.2, 1.9, 24),
    "fill": Kernel(1.0, 1.3, 1.3, 13),
    "reduce": Kernel(1.5, 1.7, 2.4, 19),
    "pool": Kernel(2.0, 5.2, 2.5, 26),
    "resize": Kernel(3.0, 3.0, 3.0, 25),
    "gather": Kernel(2.0, 1.8, 1.5, 20),
    "scatter": Kernel(2.0, 1.6, 3.7, 20),
    "embedding": Kernel(1.0, 1.3, 2.2, 22),
    "sort": Kernel(4.0, 4.0, 10.0, 30),
    "optimizer": Kernel(1.0, 1.5, 3.1, 145),
    "fft": Kernel(2.5, 2.5, 5.2, 41),
    "unknown": Kernel(2.0, 2.0, 3.0, 15),
}

COMPUTE = np.array([_KERNELS[c].compute for c in CLASSES])
MEMORY = np.array([_KERNELS[c].memory for c in CLASSES])
FLOOR_US = np.array([_KERNELS[c].floor_us for c in CLASSES])
HOST_US = np.array([_KERNELS[c].host_us for c in CLASSES])

#: An H200 moves 4,800 GB/s with 132 SMs at 1.98 GHz: 18.4 bytes per SM and cycle.
H200_BYTES_PER_CYCLE = 4800 / (132 * 1.98)
#: No chip whose SMs and clock are known feeds its SMs faster than a B200, at 1.44 times that.
MOST_FEED = 1.5
#: Where SMs or clock are not known: most chips feed each SM less than half as fast as an H200 does.
_TYPICAL_FEED = 0.4
#: Even a plain copy does not reach the listed bandwidth.
BEST_MEMORY = 1.15


def memory_loss(device: Device) -> np.ndarray:
    """Time over bytes / bandwidth of every kernel class on a device.

    What keeps a class from the H200's bandwidth is how fast its SMs take data in, not the memory. A chip with less
    bandwidth for each SM loses less against it: an RTX 4090 feeds its SMs a sixth as fast and runs near its bandwidth.
    """
    feed = _TYPICAL_FEED
    if device.sm_count and device.boost_clock_mhz and device.bandwidth_gbs:
        cycles = device.sm_count * device.boost_clock_mhz / 1e3
        feed = min(device.bandwidth_gbs / cycles / H200_BYTES_PER_CYCLE, MOST_FEED)
    return np.maximum(BEST_MEMORY, MEMORY * feed)


#: Host time of a kernel that a library launches within an op.
INNER_US = 6.0


def launch_costs(device: Device, runtime: Any) -> LaunchCosts:
    """The launch costs of a runtime (by its name, or what a row has in the place of one) on a kind of device, which may
    leave the runtime no say."""
    of_kind = device.traits.launch
    return registry.of_row(runtime).launch if of_kind is None else LaunchCosts(*of_kind)
