"""Device time of whole calls by the networks: on devices as their networks know them, and on CPUs of many cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from forerun.device import Device
from forerun.graph.profile import Profile
from forerun.predictors.laws import many_cores
from forerun.predictors.laws.engines import in_engine
from forerun.predictors.laws.features import OpTable, op_table

if TYPE_CHECKING:
    from forerun.predictors.default.network import Ensemble


def on_devices(
    network: Ensemble, profile: Profile, devices: Sequence[Device], factors: Callable[[OpTable], np.ndarray | float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Over [batch sizes, devices]: the roofline in milliseconds, the device time, and how far the networks disagree."""
    counts = profile.distinct_ops[1]
    table = op_table(profile.distinct, devices)
    shape = (len(devices), len(counts), len(profile.batches))
    least = _summed(np.maximum(table.compute_s, table.memory_s).reshape(shape), counts)
    seconds, spread = network.seconds_and_spread(table)
    seconds = in_engine((seconds * factors(table)).reshape(shape), profile.distinct, table)
    device_ms = _summed(seconds, counts)
    disagreement = _summed(seconds * spread.reshape(shape), counts) / np.maximum(device_ms, 1e-12)
    return least, device_ms, disagreement


def on_cores(network: Ensemble, profile: Profile, of: many_cores.Cores) -> tuple[np.ndarray, ...]:
    """What `on_devices` says, of CPUs some of which are predicted from two of their cores; and the time of launches."""
    counts = profile.distinct_ops[1]
    table = op_table(profile.distinct, of.seen)
    shape = (len(of.seen), len(counts), len(profile.batches))
    share, slower = (of.of_ops(values, len(table.classes)) for values in (of.share, of.slower))
    least = _summed((np.maximum(table.compute_s, table.memory_s) * share).reshape(shape), counts)
    seconds, spread, launching = (each.reshape(shape) for each in network.on_cores(table, share, slower))
    device_ms = _summed(seconds, counts)
    return (
        least,
        device_ms,
        _summed(seconds * spread, counts) / np.maximum(device_ms, 1e-12),
        _summed(launching, counts),
    )


def _summed(seconds: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Milliseconds [batch sizes, devices] of whole calls, from ops [devices, ops, batch sizes]."""
    return np.einsum("dob,o->bd", seconds, counts) * 1e3
