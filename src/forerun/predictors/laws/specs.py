"""A device's spec sheet as predictors use it: peaks by unit, bandwidth, rooflines, and slowdown at the power limit."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from forerun.device import Device, Generation
from forerun.device.together import Devices, together
from forerun.errors import ForerunError
from forerun.graph.profile import UNITS, Profile
from forerun.runtimes.registry import ran_by


def op_roofline_s(profile: Profile, devices: Sequence[Device]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The roofline of every op on every device: seconds of one launch [devices, ops, batch sizes] by arithmetic and by
    memory, and its kernels [devices, ops]."""
    peaks, bandwidth = spec_matrix(devices)
    rate = peaks.T[:, profile.units, None] * 1e12
    gain = ran_by(profile.graph).cache_gain
    compute, memory = profile.flops / rate, profile.bytes / (gain * bandwidth[:, None, None] * 1e9)
    hosts = on_host(devices)
    if not (hosts.any() and profile.biases.any()):
        return compute, memory, np.tile(profile.kernels, (len(hosts), 1))
    launched = ~np.outer(hosts, profile.biases)
    return compute * launched[..., None], memory * launched[..., None], profile.kernels * launched


def on_host(devices: Sequence[Device]) -> np.ndarray:
    """Which devices are their own host."""
    them = together(devices)
    return them.once("on_host", lambda: np.array([d.traits.is_host for d in them], dtype=bool))


def power_limits(devices: Sequence[Device]) -> np.ndarray:
    """The power limit of each device in watts; nan where it is not known."""
    them = together(devices)
    return them.once("tdp_w", lambda: np.array([np.nan if d.tdp_w is None else d.tdp_w for d in them]))


#: FLOPs per watt in a dtype, relative to FP16 on the same tensor cores.
_RELATIVE_TO_HALF = {"tf32": 0.5, "fp16": 1.0, "bf16": 1.0, "fp8": 2.0, "int8": 2.0}


def power_slowdown(devices: Sequence[Device]) -> np.ndarray:
    """[UNITS, devices]: how many times longer arithmetic takes than its peak allows because the power limit slows the
    clock; 1 where that is not known.

    A T4 lists 116 GFLOP/s per watt in fp32 and sustains half of it; a V100 sustains what it lists. What a generation
    sustains per watt is in the catalogue (device/catalog/generations.yaml). A MIG slice has its share of the power
    limit, as on a card whose other slices are busy.
    """
    return _power_slowdown(together(devices))


@functools.lru_cache(maxsize=64)
def _power_slowdown(devices: Devices) -> np.ndarray:
    out = np.ones((len(UNITS), len(devices)))
    for d, device in enumerate(devices):
        if device.tdp_w is None or device.generation is None:
            continue
        for u, unit in enumerate(UNITS):
            sustained = _gflops_per_watt(device, device.generation, unit)
            if sustained:
                out[u, d] = max(1.0, unit_peak(device, unit) * 1e3 / device.tdp_w / sustained)
    return out


def _gflops_per_watt(device: Device, generation: Generation, unit: str) -> float | None:
    """GFLOP/s per watt that the generation sustains on the units that do the work of `unit`; None when not known."""
    dtype = _first_known(device, unit) if unit != "vector" else ""
    # FP16 that is listed below fp32 runs on the fp32 units.
    on_fp32_units = device.peak_tflops.get(dtype, np.inf) < device.peak_tflops.get("fp32", 0.0)
    if dtype == "fp32" or (on_fp32_units and dtype != "fp64"):
        return generation.fp32_gflops_per_watt
    half = generation.half_gflops_per_watt
    return half and half * _RELATIVE_TO_HALF.get(dtype, 0.0)


def slowest_unit(devices: Sequence[Device], units: Sequence[int]) -> np.ndarray:
    """Per device, how many times longer arithmetic takes at the power limit, on the units that suffer most of these."""
    return power_slowdown(devices)[list(units)].max(axis=0, initial=1.0)


def spec_matrix(devices: Sequence[Device]) -> tuple[np.ndarray, np.ndarray]:
    return _spec_matrix(together(devices))


@functools.lru_cache(maxsize=64)
def _spec_matrix(devices: Devices) -> tuple[np.ndarray, np.ndarray]:
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
    """The figure that the spec sheet lacks for any prediction, as a sentence, or None."""
    if device.bandwidth_gbs is not None and device.peak_tflops:
        return None
    lacking = "memory bandwidth (bandwidth_gbs)" if device.peak_tflops else "arithmetic peaks (such as fp32_tflops)"
    return f"{device.id} has no known {lacking}; give them in a .yaml with base: {device.id}"


#: Units to use in turn where a device's own peak is not known.
_NEXT_BEST = {
    "fp64": ("fp64", "fp32", "fp16", "bf16", "int8"), "fp32": ("fp32", "tf32", "bf16", "fp16", "int8"),
    "tf32": ("tf32", "fp32", "bf16", "fp16", "int8"), "fp16": ("fp16", "bf16", "fp32", "int8"),
    "bf16": ("bf16", "fp16", "fp32", "int8"), "fp8": ("fp8", "fp16", "bf16", "fp32", "int8"),
    "int8": ("int8", "fp16", "bf16", "fp32"), "vector": ("fp32", "bf16", "fp16", "int8"),
}  # fmt: skip
#: FLOP/s in a dtype, relative to FP16 on one chip. Accelerators that list both do fp32 at 1/3.7 of the FP16 rate at
#: best, GPUs at 1/4 to 1/16; boards that list no fp64 do it at 1/64 of fp32. The substitute for an unknown peak is
#: never assumed to be faster than that.
_RELATIVE_RATE = {"fp64": 1 / 256, "fp32": 1 / 4, "tf32": 1 / 2, "fp16": 1.0, "bf16": 1.0, "fp8": 2.0, "int8": 2.0,
                  "vector": 1 / 4}  # fmt: skip


def unit_peak(device: Device, unit: str) -> float:
    """The device's TFLOP/s for a unit, or that of the next best known units at its work."""
    first = _first_known(device, unit)
    if not first:
        return max(device.peak_tflops.values()) * min(1.0, _RELATIVE_RATE[unit])
    known = (device.peak(first) or 0.0) * _share(device, unit, first)
    # Where FP16 is slower than fp32 (GeForce Pascal: 1/64), libraries compute in fp32.
    return max(known, device.peak("fp32") or 0.0) if unit in ("fp16", "bf16") else known


def _share(device: Device, unit: str, other: str) -> float:
    """The share of their own rate that the `other` units reach at the work of `unit`."""
    if unit == other or (device.traits.multiplies_fp32_as_bf16 and unit in ("fp32", "tf32")):
        return 1.0
    return min(1.0, _RELATIVE_RATE[unit] / _RELATIVE_RATE[other])


def substituted(device: Device, unit: str) -> str | None:
    """The units that stand in for an unknown peak, with the share of their rate, or None when the peak is known."""
    first = _first_known(device, unit)
    if first in (unit, "") or unit == "vector":
        return None
    share = _share(device, unit, first)
    return f"{first} units" if share == 1 else f"{first} units, at 1/{1 / share:g} of their rate,"


def _first_known(device: Device, unit: str) -> str:
    """The units that do the work of `unit`, as far as peaks are known; "" where none is."""
    return next((d for d in _NEXT_BEST[unit] if device.peak(d) is not None), "")


def roofline_ms(profile: Profile, devices: Sequence[Device]) -> np.ndarray:
    """The least time of a call over [batch sizes, devices] that the devices' peaks allow."""
    compute, memory, _ = op_roofline_s(profile, devices)
    return (np.maximum(compute, memory) * profile.repeat[:, None]).sum(axis=1).T * 1e3
