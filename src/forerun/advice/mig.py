"""MIG slices: which ones have enough memory, the latency on each, and the rule by memory alone."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from math import isnan

from forerun.device import Device
from forerun.device.mig import MigProfile, profiles, slice_device
from forerun.prediction import SliceOption
from forerun.predictors.laws.energy import waiting_w
from forerun.predictors.laws.memory import MemoryEstimate, available_mb


@functools.lru_cache(maxsize=64)
def slices(device: Device) -> tuple[tuple[MigProfile, Device], ...]:
    """Every slice of the device, smallest first; none when the device has no MIG or is a slice itself."""
    if "/" in device.id:
        return ()
    return tuple((p, slice_device(device, p)) for p in profiles(device) if not p.media)


def unused_w(gpu: Device, cut: Device, count: int) -> float:
    """The power of a GPU with `count` such slices beyond that of the slices, for each of them: the part of its idle
    power that belongs to no slice. Slices are charged power by their multiprocessors, and some are in none."""
    all_of_it, in_slices = waiting_w(gpu), waiting_w(cut)
    if all_of_it is None or in_slices is None:
        return 0.0
    return max(0.0, all_of_it / count - in_slices)


def slice_options(device: Device, latency_ms: Sequence[float], memory: MemoryEstimate) -> tuple[SliceOption, ...]:
    """The slices of the device with the latency of each; NaN: unknown."""
    out = []
    for (profile, part), ms in zip(slices(device), latency_ms, strict=True):
        fits = memory.needed_mb <= (available_mb(part) or 0.0)
        have = part.usable_mb or profile.memory_mb
        out.append(SliceOption(profile.name, have, fits, None if isnan(ms) else ms, profile.max_instances))
    return tuple(out)


def smallest_that_fits(options: tuple[SliceOption, ...]) -> str | None:
    """The first profile that fits, in the order given."""
    return next((o.profile for o in options if o.fits), None)


def nominal_mb(profile: MigProfile) -> float:
    """The memory in a profile's name, in MB of 2**20 bytes: '1g.5gb' says 5,120 and has 4,864 usable."""
    match = re.search(r"\.(\d+)gb", profile.name)
    assert match is not None, profile.name
    return 1024.0 * int(match[1])


def threshold_profile(memory_mb: float, offered: Sequence[MigProfile]) -> str | None:
    """The memory-threshold rule: the smallest profile whose nominal memory holds the workload's, None when none does.

    On an A100 of 40 GB: 1g.5gb up to 5 GB, 2g.10gb up to 10, 3g.20gb up to 20, 7g.40gb up to 40 (Panner Selvam and
    Brorsson, "DIPPM", 2023). It knows one profile of each size, none with more memory than compute slices, and
    considers only memory.
    """
    plain = [p for p in offered if not p.media and 2 * p.compute_slices > p.memory_slices]
    by_size = {p.memory_slices: p for p in sorted(plain, key=lambda p: -p.compute_slices)}
    sizes = (by_size[size] for size in sorted(by_size))
    return next((p.name for p in sizes if memory_mb <= nominal_mb(p)), None)
