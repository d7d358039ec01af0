"""A training step on several devices: data parallelism, gradients summed by a ring all-reduce.

The only place of this formula. Every device computes the step of its own batch; then all gradients are summed. A ring
sends each byte of the gradients 2 (n - 1) / n times through the slowest link. As in PyTorch's
DistributedDataParallel, the all-reduce overlaps the backward pass, so only a part of its time is exposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.device import Device
from forerun.errors import ForerunError
from forerun.prediction import Estimate

#: The share of a link's rate in one direction that a large all-reduce reaches, between the worst and the best case:
#: assumed.
LINK_EFFICIENCY = (0.5, 0.75, 0.9)
#: The share of a step that the all-reduce can overlap, that of the backward pass (two thirds of the arithmetic),
#: between the worst and the best case: assumed.
HIDDEN_SHARE = (0.0, 0.5, 0.66)
#: The latency of one hop of a ring, in microseconds: assumed.
HOP_US = 8.0
#: The share of a device's own throughput that it must add to be worth it: a convention.
WORTH_ADDING = 0.5
_BYTES = {"fp32": 4, "tf32": 4, "fp32-ieee": 4, "fp16": 2, "bf16": 2, "fp64": 8}


@dataclass(frozen=True)
class Scaled:
    """A training step on `devices` devices at once, each with a batch of its own."""

    devices: int
    step_ms: Estimate
    all_reduce_ms: float  # the whole all-reduce, overlapped or not
    efficiency: float  # throughput over that of as many independent devices


def link_gbs(device: Device) -> tuple[float, str]:
    """Gigabytes per second in one direction between two devices of one machine, and what the link is."""
    if device.interconnect_gbs is not None:
        return device.interconnect_gbs / 2, "interconnect"
    if device.pcie_gbs is not None:
        return device.pcie_gbs, "PCIe"
    raise ForerunError(f"the interconnect of {device.id} is unknown (interconnect_gbs or pcie_gbs)")


def gradient_mb(parameters: int, dtype: str) -> float:
    """The size of the gradients: one number per parameter, in the dtype of the weights."""
    return parameters * _BYTES[dtype] / 2**20


def ring_all_reduce_ms(size_mb: float, devices: int, gbs: float) -> float:
    """Milliseconds of a ring all-reduce over links of `gbs` gigabytes per second in one direction."""
    if devices == 1:
        return 0.0
    turns = 2 * (devices - 1)
    return turns / devices * size_mb * 2**20 / (gbs * 1e9) * 1e3 + turns * HOP_US / 1e3


def scaled(step_ms: Estimate, gradients_mb: float, device: Device, devices: int) -> Scaled:
    """The step on `devices` devices; its interval covers that of the step and the assumptions on the links."""
    if devices == 1:
        return Scaled(1, step_ms, 0.0, 1.0)
    rate, _ = link_gbs(device)
    sums = [ring_all_reduce_ms(gradients_mb, devices, rate * share) for share in LINK_EFFICIENCY]

    def total_ms(step: float, at: int) -> float:
        return step + max(0.0, sums[at] - HIDDEN_SHARE[at] * step)

    value = total_ms(step_ms.value, 1)
    scaled_ms = Estimate(value, min(value, total_ms(step_ms.low, 2)), max(value, total_ms(step_ms.high, 0)), "ms")
    return Scaled(devices, scaled_ms, sums[1], step_ms.value / value)


def worth_adding(scalings: Sequence[Scaled], batch: int) -> int:
    """The most devices up to which each one more adds at least WORTH_ADDING of a single device's throughput.

    `scalings` are those of 1, 2, 3 ... devices, `batch` samples each.
    """
    rates = [batch * each.devices / each.step_ms.value for each in scalings]
    for at in range(1, len(rates)):
        if rates[at] - rates[at - 1] < WORTH_ADDING * rates[0]:
            return scalings[at - 1].devices
    return scalings[-1].devices


def scaling(step_ms: Estimate, gradients_mb: float, device: Device, counts: Sequence[int]) -> list[Scaled]:
    """`scaled` for several counts of devices."""
    return [scaled(step_ms, gradients_mb, device, count) for count in counts]
