"""A CPU of which a call uses some of the cores, a thread on each: a device of its own, `xeon-8275cl-8-threads`.

Peaks, the last cache, idle power and the power limit are the share of the cores; bandwidth grows with the threads until
the memory is saturated. Two threads of one core share its units: more threads than cores gain nothing, and a virtual
CPU of a cloud is half a core where the CPU has two threads on each.
"""

from __future__ import annotations

import dataclasses
import re

from forerun._util.readable import short
from forerun.device.device import Device
from forerun.errors import ForerunError

#: What one core can draw from memory, in GB/s: our virtual machines have 8 (Cascade Lake) to 14 (Emerald Rapids).
CORE_GBS = 12.0
_NAME = re.compile(r"(.+)[-_ ](\d{1,6})[-_ ]threads?", re.IGNORECASE)


def named(spec: str) -> tuple[str, int] | None:
    """The CPU and the threads that a name such as `epyc-7763-8-threads` has; None for any other name."""
    found = _NAME.fullmatch(spec.strip())
    return None if found is None else (found[1], int(found[2]))


def with_threads(device: Device, threads: int | None) -> Device:
    """The device that a number of a CPU's cores is; the CPU itself where none is asked for."""
    if threads is None:
        return device
    if not device.traits.is_host:
        raise ForerunError(f"{device.id} is a {device.kind.upper()}: threads are for CPUs")
    if device.sm_count is None:
        raise ForerunError(f"how many cores {device.id} has is not known: leave threads out")
    cores = int(device.sm_count)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= cores:
        raise ForerunError(
            f"threads must be a whole number from 1 to {cores}, the cores of {device.id}; got {short(threads)}"
        )
    if threads == cores:
        return device
    share, scaled = threads / cores, f"{threads} of {cores} cores"

    def part(value: float | None) -> float | None:
        return None if value is None else value * share

    bandwidth = device.bandwidth_gbs and min(device.bandwidth_gbs, threads * CORE_GBS)
    whole = ("bandwidth_gbs", "memory_gb", "boost_clock_mhz", "sm_count")
    lines = {name: line if name in whole else f"{line}; {scaled}" for name, line in device.provenance.items()}
    if bandwidth != device.bandwidth_gbs:
        lines["bandwidth_gbs"] = f"computed: {threads} cores x {CORE_GBS:g} GB/s; {lines.get('bandwidth_gbs', scaled)}"
    return dataclasses.replace(
        device, id=part_id(device.id, threads), name=f"{device.name}, {threads} threads",
        peak_tflops={dtype: peak * share for dtype, peak in device.peak_tflops.items()}, bandwidth_gbs=bandwidth,
        l2_cache_mb=part(device.l2_cache_mb), sm_count=float(threads), tdp_w=part(device.tdp_w),
        idle_w=part(device.idle_w), launch_price_usd=None, provenance=lines,
    )  # fmt: skip


def whole_name(name: str) -> str:
    """The name or id of the CPU that the name of some of its cores belongs to, or the name itself."""
    found = _NAME.fullmatch(name.strip())
    return name if found is None else found[1].rstrip(", -")


def whole_id(device_id: str) -> str:
    """The id of the CPU that the id of some of its cores belongs to, or the id itself."""
    found = named(device_id)
    return device_id if found is None else found[0]


def part_id(device_id: str, threads: int | None) -> str:
    """The id of a number of a CPU's cores; the CPU's own without a number."""
    return device_id if threads is None else f"{device_id}-{threads}-threads"
