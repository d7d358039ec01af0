"""Features of an op on a device for the learned efficiency: dimensionless, so that a spec sheet is enough for an
unmeasured chip. None of them identifies a chip: there are a dozen to learn from, and a network that is given clock,
multiprocessors, cache and generation as such memorises each of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.device import Device
from forerun.device.together import Devices, together
from forerun.graph.features import DIMS, WHOLE_ROWS
from forerun.graph.profile import CLASSES, UNITS, Profile
from forerun.graph.variants import VARIANTS
from forerun.predictors.laws.kernels import H200_BYTES_PER_CYCLE
from forerun.predictors.laws.specs import on_host, op_roofline_s, power_slowdown, spec_matrix

NUMBERS = (
    "compute_us", "memory_us", "intensity", "rows", "cols", "inner", "count", "window", "stride", "flag", "tiles",
    "blocks", "cols_halvings", "inner_halvings", "cols_64", "inner_64", "in_cache", "at_once", "square", "image",
    "feed", "arithmetic",
)  # fmt: skip
#: Typical values where a spec sheet has none; more multiprocessors where its bandwidth would be too much for these.
_SMS, _CLOCK_MHZ, _CACHE_MB = 80.0, 1600.0, 40.0
#: Threads of a multiprocessor, and steps of one thread that take as long as a launch.
_THREADS, _STEPS_PER_LAUNCH = 1024, 8.0
#: The time of one addition to memory where others add to the same number, in launches, and the exponent by which it
#: grows with their count; FP16 takes longer (backward passes of bilinear resizes on an H200).
_WAIT_PER_FLOAT, _WAIT_PER_HALF, _WAIT_EXPONENT = 2e-6, 6e-6, 0.7
#: Launches that would take as long as a block of a kernel for each of many tiny tasks, on a chip of 1e9 cycles per
#: second of all multiprocessors: rows that are looked up have a block each (0.6 ns on an H200, however short they are).
_BLOCK = 0.08


@dataclass(frozen=True)
class OpTable:
    """Ops as input of a learned model; the last axis of `numbers` is NUMBERS. Times are in seconds at full speed; only
    in `numbers` is arithmetic slowed down by the power limit."""

    classes: np.ndarray  # [n]
    units: np.ndarray  # [n]
    variants: np.ndarray  # [n]
    numbers: np.ndarray  # [n, NUMBERS]
    compute_s: np.ndarray  # [n]
    power_slowdown: np.ndarray  # [n] times longer that arithmetic takes at the power limit
    memory_s: np.ndarray  # [n]
    launches: np.ndarray  # [n] kernels of one call


def op_table(profile: Profile, devices: Sequence[Device]) -> OpTable:
    """Every op at every batch size on every device: n = devices x ops x batch sizes."""
    peaks, _ = spec_matrix(devices)
    batches, many = len(profile.batches), len(devices)
    units = np.repeat(_units_used(together(devices))[:, profile.units], batches, axis=1)  # [devices, ops x batch sizes]
    compute, memory, kernels = op_roofline_s(profile, devices)
    compute, memory = compute.reshape(many, -1), memory.reshape(many, -1)
    peak = np.take_along_axis(peaks.T, units, axis=1)
    slowed = np.take_along_axis(power_slowdown(devices).T, units, axis=1)
    sizes = profile.sizes.reshape(-1, profile.sizes.shape[-1])
    numbers = describe(sizes, compute * slowed, memory, profile.bytes.ravel(), peak, devices)

    serial = _serial(profile.classes.repeat(batches), profile.variants.repeat(batches), sizes, devices)
    launches = np.repeat(kernels, batches, axis=1) + serial

    def on_all(values: np.ndarray) -> np.ndarray:
        return np.tile(np.repeat(values, batches), many)

    return OpTable(
        on_all(profile.classes), units.ravel(), on_all(profile.variants), numbers.reshape(-1, len(NUMBERS)),
        compute.ravel(), slowed.ravel(), memory.ravel(), launches.ravel(),
    )  # fmt: skip


def _serial(classes: np.ndarray, variants: np.ndarray, sizes: np.ndarray, devices: Sequence[Device]) -> np.ndarray:
    """[devices, n]: serial work of resizing and unfolding (one image after another, graph.features) and of lookups (one
    row after another) on a GPU, in launches that would take as long."""
    pixels, images = sizes[:, DIMS.index("rows")], sizes[:, DIMS.index("count")]
    sms, clock = _chips(together(devices))[:2]
    waves = np.ceil(pixels / (_THREADS * sms))
    resizing, unfolding, gathering = (classes == CLASSES.index(c) for c in ("resize", "pool", "gather"))
    gpus = ~on_host(devices)[:, None]
    turns = (images > 1) * (resizing * images * waves / _STEPS_PER_LAUNCH + unfolding * (images - 1))
    blocks = gathering * (sizes[:, DIMS.index("window")] == WHOLE_ROWS) * pixels * _BLOCK / (sms * clock)
    waits = (variants == VARIANTS.index("resize:backward")) * _waits(sizes)
    return gpus * (turns + waits + blocks)


def _waits(sizes: np.ndarray) -> np.ndarray:
    """[n]: serial additions of a resize's gradients to the same number, in launches that would take as long."""
    added, together, flag, images = (sizes[:, DIMS.index(name)] for name in ("rows", "window", "flag", "count"))
    each = np.where(flag >= 2, _WAIT_PER_HALF, _WAIT_PER_FLOAT) * together**_WAIT_EXPONENT
    return np.where((together > 1) & (images == 1), added * each, 0.0)  # others process their images one after another


@functools.lru_cache(maxsize=64)
def _units_used(devices: Devices) -> np.ndarray:
    """[devices, UNITS]: the units that do the work of each, fp32 lanes where a chip has no others."""
    plain = UNITS.index("fp32")
    missing = [[u not in ("vector", "fp32", "fp64") and d.supports(u) is False for u in UNITS] for d in devices]
    return np.where(missing, plain, np.arange(len(UNITS)))


def _clock_ghz(device: Device) -> float:
    return (device.boost_clock_mhz or _CLOCK_MHZ) / 1e3


@functools.lru_cache(maxsize=64)
def _chips(devices: Devices) -> np.ndarray:
    """[4, devices, 1]: multiprocessors, clock in GHz, bandwidth in GB/s, cache in MB."""
    found = [
        (
            d.sm_count or max(_SMS, (d.bandwidth_gbs or 0.0) / _clock_ghz(d) / H200_BYTES_PER_CYCLE),
            _clock_ghz(d),
            d.bandwidth_gbs or 1000.0,
            d.l2_cache_mb or _CACHE_MB,
        )
        for d in devices
    ]
    return np.array(found, dtype=np.float32).T[:, :, None]


def describe(
    sizes: np.ndarray, compute_s: np.ndarray, memory_s: np.ndarray, moved: np.ndarray, peak: np.ndarray,
    devices: Sequence[Device],
) -> np.ndarray:  # fmt: skip
    """[devices, n, NUMBERS] from the sizes of ops (graph.features.DIMS), their bytes, and by device their roofline
    times and their units' peak."""
    rows, cols, inner, count, window, stride, flag, image = np.maximum(sizes, 1e-9).T
    sms, clock, bandwidth, cache = _chips(together(devices))
    cycles = sms * clock  # in 1e9 per second
    log = np.log2
    compute_us = log(np.maximum(compute_s * 1e6, 1e-7, dtype=np.float32))
    memory_us = log(np.maximum(memory_s * 1e6, 1e-7, dtype=np.float32))
    in_cache = np.clip(log(np.maximum(moved, 1.0)) - log(cache * 2**20), -12, 10)
    columns = {
        "compute_us": np.maximum(compute_us, np.log2(1e-4)),
        "memory_us": np.maximum(memory_us, np.log2(1e-4)),
        "intensity": np.clip(compute_us - memory_us, -8, 8),
        "rows": log(np.maximum(rows, 1)),
        "cols": log(np.maximum(cols, 1)),
        "inner": log(np.maximum(inner, 1)),
        "count": log(np.maximum(count, 1)),
        "window": log(np.maximum(window, 1)),
        "stride": log(np.maximum(stride, 1)),
        "flag": np.minimum(np.where(flag < 1e-6, 0.0, log(1 + flag)), 4.0),
        "tiles": np.clip(log(np.ceil(rows / 128) * np.ceil(cols / 128) * count) - log(sms), -8, 10),
        "blocks": np.clip(log(rows * cols * count / 2048) - log(sms), -14, 14),
        "cols_halvings": _halvings(cols),
        "inner_halvings": _halvings(inner),
        "cols_64": _whole(cols, 64),
        "inner_64": _whole(inner, 64),
        "in_cache": in_cache,
        # Bytes that the multiprocessors work on at a time, two rows each: whether data that is read again is cached.
        "at_once": np.clip(in_cache - np.maximum(log(np.maximum(rows * count, 1)) - log(2 * sms), 0), -12, 10),
        "square": np.clip(log(np.maximum(rows, 1) / np.maximum(cols, 1)), -12, 12),
        "image": log(np.maximum(image, 1)),
        "feed": log(bandwidth / cycles),
        "arithmetic": log(peak * 1e3 / cycles),
    }
    out = np.empty((len(devices), len(rows), len(NUMBERS)), dtype=np.float32)
    for i, name in enumerate(NUMBERS):
        out[..., i] = columns[name]
    return out


def _halvings(size: np.ndarray) -> np.ndarray:
    """1 for multiples of 8, less for multiples of 4 or 2 alone: for odd sizes, threads load one number at a time."""
    return (_whole(size, 2) + _whole(size, 4) + _whole(size, 8)) / 3


def _whole(size: np.ndarray, step: int) -> np.ndarray:
    """1 where a size is a multiple of `step`."""
    return (np.abs(size / step - np.round(size / step)) < 1e-6).astype(float)
