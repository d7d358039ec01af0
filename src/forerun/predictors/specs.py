"""A device's spec sheet as the laws use it: peaks by unit, bandwidth, and the least time that both leave an op."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from forerun.device import Device
from forerun.errors import ForerunError
from forerun.graph.profile import UNITS, Profile


def op_roofline_s(profile: Profile, devices: Sequence[Device]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every op on every device: seconds of one launch [devices, ops, batch sizes] at the speed of light, by
    arithmetic and by memory, and its kernels [devices, ops]."""
    peaks, bandwidth = spec_matrix(devices)
    rate = peaks.T[:, profile.units, None] * 1e12
    # A CPU adds a convolution's bias within the convolution.
    apart = ~np.outer([d.kind == "cpu" for d in devices], profile.biases)
    compute, memory = profile.flops / rate, profile.bytes / (bandwidth[:, None, None] * 1e9)
    return compute * apart[..., None], memory * apart[..., None], profile.kernels * apart


#: GFLOP/s that a generation's multipliers yield for each watt of the power limit: plain fp32, half-precision tensor
#: work (None: not known to be limited). Read off the large matrix products of P4, V100, T4, A100 (NeuSight, Vidur),
#: L40S (aiconfigurator) and our H200. Where there are no such rows (fp32 on GeForce Ampere and Blackwell, halves on
#: Volta and Turing) or only those of a GPU that is left out for judging (fp32 on Ada: the L4), four fifths of what the
#: largest card lists, as on A100 and H200.
_PER_WATT: dict[str, tuple[float, float | None]] = {
    "pascal": (50, None), "volta": (55, 330), "turing": (57, 330), "ampere": (81, None), "ampere 8.0": (65, 800),
    "ada": (147, 720), "hopper": (75, 1170), "blackwell": (147, None),
}  # fmt: skip
_OF_HALF = {"tf32": 0.5, "fp16": 1.0, "bf16": 1.0, "fp8": 2.0}


def power_slowdown(devices: Sequence[Device]) -> np.ndarray:
    """[UNITS, devices]: how many times longer arithmetic takes than its peak says because the power limit slows the
    clock; 1 where the limit is not known. A T4 lists 116 GFLOP/s per watt and holds half of it; a V100 holds what it
    lists. A MIG slice is taken for a slice of a busy card."""
    return _power_slowdown(tuple(devices))


@functools.lru_cache(maxsize=64)
def _power_slowdown(devices: tuple[Device, ...]) -> np.ndarray:
    out = np.ones((len(UNITS), len(devices)))
    for d, device in enumerate(devices):
        name = (device.architecture or "").lower()
        chip = f"{name} {device.compute_capability or 0:.1f}"
        if device.tdp_w is None or name not in _PER_WATT:
            continue
        plain, half = _PER_WATT.get(chip, _PER_WATT[name])
        for u, unit in enumerate(UNITS):
            does = _first_known(device, unit) if unit != "vector" else ""
            # Halves that are listed below fp32 run on its lanes.
            lanes = does == "fp32" or device.peak_tflops.get(does, np.inf) < device.peak_tflops.get("fp32", 0.0)
            yields = plain if lanes and does != "fp64" else half and _OF_HALF.get(does, 0.0) * half
            if yields:
                out[u, d] = max(1.0, unit_peak(device, unit) * 1e3 / device.tdp_w / yields)
    return out


def spec_matrix(devices: Sequence[Device]) -> tuple[np.ndarray, np.ndarray]:
    return _spec_matrix(tuple(devices))


@functools.lru_cache(maxsize=64)
def _spec_matrix(devices: tuple[Device, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Peaks in TFLOP/s over [UNITS, devices] and bandwidth in GB/s; an unknown peak is that of the next best units."""
    peaks = np.empty((len(UNITS), len(devices)))
    bandwidth = np.empty(len(devices))
    for d, device in enumerate(devices):
        problem = spec_problem(device)
        if problem is not None:
            raise ForerunError(problem)
        bandwidth[d] = device.bandwidth_gbs
        peaks[:, d] = [unit_peak(device, u) for u in UNITS]
    return peaks, bandwidth


def spec_problem(device: Device) -> str | None:
    """What the spec sheet lacks for any prediction, as a sentence, or None."""
    if device.bandwidth_gbs is not None and device.peak_tflops:
        return None
    lacking = "memory bandwidth (bandwidth_gbs)" if device.peak_tflops else "arithmetic peaks (such as fp32_tflops)"
    return f"{device.id} has no known {lacking}; give them in a .yaml with base: {device.id}"


#: Units to use in turn where a device's own peak is not known.
_NEXT_BEST = {
    "fp64": ("fp64", "fp32", "fp16", "bf16"), "fp32": ("fp32", "tf32", "bf16", "fp16"),
    "tf32": ("tf32", "fp32", "bf16", "fp16"), "fp16": ("fp16", "bf16", "fp32"), "bf16": ("bf16", "fp16", "fp32"),
    "fp8": ("fp8", "fp16", "bf16", "fp32"), "vector": ("fp32", "bf16", "fp16"),
}  # fmt: skip


def unit_peak(device: Device, unit: str) -> float:
    """The device's TFLOP/s for a unit, or those of the next best units that are known."""
    known = [p for d in _NEXT_BEST[unit] if (p := device.peak(d)) is not None]
    if not known:
        return max(device.peak_tflops.values())
    # Where halves are slower than fp32 (GeForce Pascal: 1/64), libraries compute in fp32.
    return max(known[0], device.peak("fp32") or 0.0) if unit in ("fp16", "bf16") else known[0]


def substituted(device: Device, unit: str) -> str | None:
    """The units that stand in for an unknown peak, or None when the peak is known."""
    first = _first_known(device, unit)
    return None if first in (unit, "") or unit == "vector" else first


def _first_known(device: Device, unit: str) -> str:
    """The units that do the work of `unit`, as far as peaks are known; "" where none is."""
    return next((d for d in _NEXT_BEST[unit] if device.peak(d) is not None), "")


def roofline_ms(profile: Profile, devices: Sequence[Device]) -> np.ndarray:
    """The least time of a call over [batch sizes, devices] that the devices' peaks allow."""
    compute, memory, _ = op_roofline_s(profile, devices)
    return (np.maximum(compute, memory) * profile.repeat[:, None]).sum(axis=1).T * 1e3
