"""Energy of a call: what the chip burns anyway, plus what each operation and each byte costs, capped at its limit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.device import Device
from forerun.graph.profile import UNITS, Profile
from forerun.predictors.specs import unit_peak

# Fitted to 428 calls on an H200: half-precision tensor work 0.79 J per TFLOP, TF32 convolutions 3.1, plain fp32 11,
# elementwise work 500 (0.5 nJ an element), 0.12 J per GB moved, 126 W of waiting; within 9 % given the time. Divided by
# what the power limit would buy at full rate (700 W / 989 TFLOP/s = 0.71 J, and so on), they carry over to other chips.
_PER_FLOP = {"fp64": 1.1, "fp32": 1.1, "tf32": 2.1, "fp16": 1.1, "bf16": 1.1, "fp8": 1.1, "vector": 48.0}
_PER_BYTE = 0.84
#: Power of a chip that is clocked up but waiting, as a share of its limit, where nobody measured it.
STATIC_SHARE = 0.18


def static_w(device: Device) -> float | None:
    """Power of the device while it waits between kernels."""
    measured = device.calibrated.get("static_w")
    if measured is not None:
        return measured
    return None if device.tdp_w is None else STATIC_SHARE * device.tdp_w


def energy_j(
    profile: Profile, devices: Sequence[Device], latency_ms: np.ndarray, peaks: np.ndarray, bandwidth: np.ndarray
) -> np.ndarray:
    """Joules per call over [batch sizes, devices]; nan where the device's power limit is not known."""
    out = np.full(latency_ms.shape, np.nan)
    weights = profile.repeat[:, None]
    moved_gb = (profile.bytes * weights).sum(axis=0) / 1e9
    by_unit = np.stack([(profile.flops * weights)[profile.units == u].sum(axis=0) for u in range(len(UNITS))]) / 1e12
    factors = np.array([_PER_FLOP[u] for u in UNITS])
    for d, device in enumerate(devices):
        waiting, limit = static_w(device), device.tdp_w
        if waiting is None or limit is None:
            continue
        joules_per_tflop = factors * limit / peaks[:, d]
        joules_per_gb = _PER_BYTE * limit / bandwidth[d]
        seconds = latency_ms[:, d] / 1e3
        dynamic = joules_per_tflop @ by_unit + joules_per_gb * moved_gb
        out[:, d] = np.minimum(waiting * seconds + dynamic, limit * seconds)
    return out


#: What a learned factor stands before, each in joules: the power limit over the whole call, then each kind of
#: arithmetic and the bytes at what the limit buys at full rate.
TERMS = ("waiting", "fp64", "fp32", "tf32", "half", "fp8", "vector", "bytes")
_TERM_OF_UNIT = {"fp64": 1, "fp32": 2, "tf32": 3, "fp16": 4, "bf16": 4, "fp8": 5, "vector": 6}


def energy_terms(profile: Profile, device: Device, seconds: np.ndarray) -> np.ndarray:
    """[batch sizes, TERMS]; nan where the device's power limit is not known."""
    out = np.zeros((len(seconds), len(TERMS)))
    if device.tdp_w is None:
        return np.full_like(out, np.nan)
    weights = profile.repeat[:, None]
    flops = profile.flops * weights
    out[:, 0] = device.tdp_w * seconds
    for u in np.unique(profile.units):
        peak = unit_peak(device, UNITS[u])
        out[:, _TERM_OF_UNIT[UNITS[u]]] += device.tdp_w / (peak * 1e12) * flops[profile.units == u].sum(axis=0)
    out[:, -1] = device.tdp_w / ((device.bandwidth_gbs or np.nan) * 1e9) * (profile.bytes * weights).sum(axis=0)
    return out


def learned_energy_j(profile: Profile, device: Device, latency_ms: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Joules per call over batch sizes: the terms times what was learned of each, never over the power limit."""
    seconds = latency_ms / 1e3
    burnt = energy_terms(profile, device, seconds) @ factors
    return np.minimum(burnt, seconds * (device.tdp_w if device.tdp_w is not None else np.nan))
