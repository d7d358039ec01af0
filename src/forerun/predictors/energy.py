"""Energy of a call: what the chip burns anyway, plus what each operation and each byte costs, capped at its limit.

One law for every predictor: terms in joules (what the power limit buys), times a factor each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.device import Device
from forerun.graph.profile import UNITS, Profile
from forerun.predictors.specs import unit_peak

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
    out = np.full(latency_ms.shape, np.nan)
    for d, device in enumerate(devices):
        if device.tdp_w is not None:
            used = plain_factors(device) if factors is None else factors
            out[:, d] = burnt_j(energy_terms(profile, device), used, latency_ms[:, d] / 1e3)
    return out


def energy_terms(profile: Profile, device: Device) -> np.ndarray:
    """[batch sizes, TERMS] of a call that lasts one second; nan where the device's power limit is not known."""
    out = np.zeros((len(profile.batches), len(TERMS)))
    if device.tdp_w is None:
        return np.full_like(out, np.nan)
    weights = profile.repeat[:, None]
    flops = profile.flops * weights
    out[:, 0] = device.tdp_w
    for u in np.unique(profile.units):
        peak = unit_peak(device, UNITS[u])
        out[:, _TERM_OF_UNIT[UNITS[u]]] += device.tdp_w / (peak * 1e12) * flops[profile.units == u].sum(axis=0)
    out[:, -1] = device.tdp_w / ((device.bandwidth_gbs or np.nan) * 1e9) * (profile.bytes * weights).sum(axis=0)
    return out


def lasting(terms: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Terms of calls that last so long: only the waiting grows."""
    return np.concatenate([terms[:, :1] * seconds[:, None], terms[:, 1:]], axis=1)


def burnt_j(terms: np.ndarray, factors: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Joules of calls, never over the power limit."""
    return np.minimum(lasting(terms, seconds) @ factors, terms[:, 0] * seconds)
