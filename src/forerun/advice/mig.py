"""Which MIG slice: memory that fits, and how much slower the slice's share of the chip is."""

from __future__ import annotations

from forerun.device import Device
from forerun.device.mig import profiles, slice_device
from forerun.graph.profile import Profile
from forerun.prediction import SliceOption
from forerun.predictors.base import Predictor
from forerun.predictors.memory import MemoryEstimate
from forerun.workload import Workload


def slice_options(
    predictor: Predictor, profile: Profile, device: Device, workload: Workload, memory: MemoryEstimate
) -> tuple[SliceOption, ...]:
    """Every slice of the device with its latency, smallest first; none when the device has no MIG."""
    known = [p for p in profiles(device) if not p.media]
    if not known or "/" in device.id:
        return ()
    slices = [slice_device(device, p) for p in known]
    latency = predictor.times(profile, slices, workload).latency_ms[0]
    return tuple(
        SliceOption(p.name, p.memory_mb, memory.needed_mb <= p.memory_mb, float(ms), p.max_instances)
        for p, ms in zip(known, latency, strict=True)
    )


def smallest_that_fits(options: tuple[SliceOption, ...]) -> str | None:
    return next((o.profile for o in options if o.fits), None)
