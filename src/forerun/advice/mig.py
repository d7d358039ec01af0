"""MIG slices: which ones have enough memory, and the latency on each."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from forerun.device import Device
from forerun.device.mig import MigProfile, profiles, slice_device
from forerun.prediction import SliceOption
from forerun.predictors.memory import MemoryEstimate


@functools.lru_cache(maxsize=64)
def slices(device: Device) -> tuple[tuple[MigProfile, Device], ...]:
    """Every slice of the device, smallest first; none when the device has no MIG or is a slice itself."""
    if "/" in device.id:
        return ()
    return tuple((p, slice_device(device, p)) for p in profiles(device) if not p.media)


def slice_options(device: Device, latency_ms: Sequence[float], memory: MemoryEstimate) -> tuple[SliceOption, ...]:
    """The slices of the device with the latency of each."""
    return tuple(
        SliceOption(p.name, p.memory_mb, memory.needed_mb <= p.memory_mb, ms, p.max_instances)
        for (p, _), ms in zip(slices(device), latency_ms, strict=True)
    )


def smallest_that_fits(options: tuple[SliceOption, ...]) -> str | None:
    """The first profile that fits, in the order given."""
    return next((o.profile for o in options if o.fits), None)
