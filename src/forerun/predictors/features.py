"""The numbers a learned efficiency sees of an op on a device: dimensionless, so that a spec sheet is enough for a chip
that nobody measured."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from forerun.device import Device
from forerun.graph.profile import UNITS, Profile
from forerun.predictors.specs import op_roofline_s, spec_matrix

NUMBERS = (
    "compute_us", "memory_us", "intensity", "rows", "cols", "inner", "count", "window", "stride", "flag", "tiles",
    "blocks", "cols_8", "inner_8", "rows_8", "cols_64", "inner_64", "in_cache", "square", "sms", "clock", "feed",
    "arithmetic", "cache", "generation",
)  # fmt: skip
#: What most chips have, where a spec sheet does not say.
_SMS, _CLOCK_MHZ, _CACHE_MB, _GENERATION = 80.0, 1600.0, 40.0, 8.0


@dataclass(frozen=True)
class OpTable:
    """Ops as a learned model takes them; the last axis of `numbers` is NUMBERS. Times in seconds at full speed."""

    classes: np.ndarray  # [n]
    units: np.ndarray  # [n]
    variants: np.ndarray  # [n]
    numbers: np.ndarray  # [n, NUMBERS]
    compute_s: np.ndarray  # [n]
    memory_s: np.ndarray  # [n]
    launches: np.ndarray  # [n] kernels of one call


def op_table(profile: Profile, device: Device) -> OpTable:
    """Every op at every batch size, op by op: n = ops x batch sizes."""
    peaks, bandwidth = spec_matrix([device])
    compute, memory = op_roofline_s(profile, peaks[:, 0], bandwidth[0])
    sizes = profile.sizes
    batches = len(profile.batches)
    units = np.repeat(_units_used(device)[profile.units], batches)
    numbers = describe(
        sizes.reshape(-1, sizes.shape[-1]), compute.ravel(), memory.ravel(), profile.bytes.ravel(),
        peaks[units, 0], device,
    )  # fmt: skip
    return OpTable(
        np.repeat(profile.classes, batches), units, np.repeat(profile.variants, batches), numbers, compute.ravel(),
        memory.ravel(), np.repeat(profile.kernels, batches),
    )  # fmt: skip


@functools.lru_cache(maxsize=512)
def _units_used(device: Device) -> np.ndarray:
    """Which units really do the work of each: fp32 lanes where a chip has no others."""
    plain = UNITS.index("fp32")
    missing = [u not in ("vector", "fp32", "fp64") and device.supports(u) is False for u in UNITS]
    return np.where(missing, plain, np.arange(len(UNITS)))


def describe(
    sizes: np.ndarray, compute_s: np.ndarray, memory_s: np.ndarray, moved: np.ndarray, peak: np.ndarray, device: Device
) -> np.ndarray:
    """[n, NUMBERS] from the sizes of ops (graph.features.DIMS), their roofline times, bytes, and their units' peak."""
    rows, cols, inner, count, window, stride, flag = np.maximum(sizes, 1e-9).T
    sms = device.sm_count or _SMS
    clock = (device.boost_clock_mhz or _CLOCK_MHZ) / 1e3
    cache = device.l2_cache_mb or _CACHE_MB
    generation = device.compute_capability or _GENERATION
    cycles = sms * clock  # in 1e9 per second
    log = np.log2
    columns = [
        log(np.maximum(compute_s * 1e6, 1e-4)),
        log(np.maximum(memory_s * 1e6, 1e-4)),
        np.clip(log(np.maximum(compute_s, 1e-13) / np.maximum(memory_s, 1e-13)), -8, 8),
        log(np.maximum(rows, 1)),
        log(np.maximum(cols, 1)),
        log(np.maximum(inner, 1)),
        log(np.maximum(count, 1)),
        log(np.maximum(window, 1)),
        log(np.maximum(stride, 1)),
        np.minimum(np.where(flag < 1e-6, 0.0, log(1 + flag)), 4.0),
        np.clip(log(np.ceil(rows / 128) * np.ceil(cols / 128) * count / sms), -8, 10),
        np.clip(log(rows * cols * count / (sms * 2048)), -14, 14),
        _whole(cols, 8),
        _whole(inner, 8),
        _whole(rows, 8),
        _whole(cols, 64),
        _whole(inner, 64),
        np.clip(log(np.maximum(moved, 1.0) / (cache * 2**20)), -12, 10),
        np.clip(log(np.maximum(rows, 1) / np.maximum(cols, 1)), -12, 12),
        np.full(len(rows), np.log2(sms / _SMS)),
        np.full(len(rows), np.log2(clock / 1.6)),
        np.full(len(rows), np.log2((device.bandwidth_gbs or 1000.0) / cycles)),
        log(peak * 1e3 / cycles),
        np.full(len(rows), np.log2(cache * 1024 / sms)),
        np.full(len(rows), generation - _GENERATION),
    ]
    return np.stack(columns, axis=-1)


def _whole(size: np.ndarray, step: int) -> np.ndarray:
    """1 where a size is a multiple of what tiles are made of."""
    return (np.abs(size / step - np.round(size / step)) < 1e-6).astype(float)
