"""Energy of a call: what the chip burns anyway, plus what each operation and each byte costs, capped at its limit.

One law for every predictor: terms in joules (what the power limit buys), times a factor each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.device import Device
from forerun.graph.profile import UNITS, Profile
from forerun.predictors.specs import spec_matrix

#: What a factor stands before: the power limit over the whole call, then each kind of arithmetic and the bytes at what
#: the limit buys at full rate.
TERMS = ("waiting", "fp64", "fp32", "tf32", "half", "fp8", "vector", "bytes")
_TERM_OF_UNIT = {"fp64": 1, "fp32": 2, "tf32": 3, "fp16": 4, "bf16": 4, "fp8": 5, "vector": 6}
#: Power of a chip that is clocked up but waiting, as a share of its limit, where nobody measured it.
STATIC_SHARE = 0.18
# Fitted to 428 calls on an H200: half-precision tensor work 0.79 J per TFLOP, TF32 convolutions 3.1, plain fp32 11,
# elementwise work 500 (0.5 nJ an element), 0.12 J per GB moved, 126 W of waiting; within 9 % given the time. Divided by
# what the power limit would buy at full rate (700 W / 989 TFLOP/s = 0.71 J, and so on), they carry over to other chips.
FACTORS = np.array([STATIC_SHARE, 1.1, 1.1, 2.1, 1.1, 1.1, 48.0, 0.84])


def plain_factors(device: Device) -> np.ndarray:
    """FACTORS, with the power of waiting where it was measured."""
    out = FACTORS.copy()
    if device.tdp_w is not None and "static_w" in device.calibrated:
        out[0] = device.calibrated["static_w"] / device.tdp_w
    return out


def energy_j(
    profile: Profile, devices: Sequence[Device], latency_ms: np.ndarray, factors: np.ndarray | None = None
) -> np.ndarray:
    """Joules per call over [batch sizes, devices]; nan where the device's power limit is not known."""
    used = np.stack([plain_factors(d) for d in devices]) if factors is None else factors
    return burnt_j(energy_terms(profile, devices), used, latency_ms / 1e3)


def energy_terms(profile: Profile, devices: Sequence[Device]) -> np.ndarray:
    """[batch sizes, devices, TERMS] of a call that lasts one second; nan where a power limit is not known."""
    peaks, bandwidth = spec_matrix(devices)
    limit = np.array([np.nan if d.tdp_w is None else d.tdp_w for d in devices])
    flops, moved = profile.work
    out = np.zeros((len(profile.batches), len(devices), len(TERMS)))
    out[..., 0] = limit
    for u, unit in enumerate(UNITS):
        if flops[u].any():
            out[..., _TERM_OF_UNIT[unit]] += np.outer(flops[u], limit / (peaks[u] * 1e12))
    out[..., -1] = np.outer(moved, limit / (bandwidth * 1e9))
    return out


def lasting(terms: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Terms of calls that last so long: only the waiting grows."""
    return np.concatenate([terms[..., :1] * seconds[..., None], terms[..., 1:]], axis=-1)


def burnt_j(terms: np.ndarray, factors: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Joules of calls, never over the power limit."""
    return np.minimum((lasting(terms, seconds) * factors).sum(axis=-1), terms[..., 0] * seconds)
