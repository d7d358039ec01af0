"""What the default predictor's times are made of: the parts that a device's corrections apply to."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from forerun.device import Device
from forerun.graph.profile import CLASSES, Profile
from forerun.predictors.baselines.roofline import with_losses
from forerun.predictors.laws import many_cores
from forerun.predictors.laws.adaptation import (
    GROUP_OF_CLASS,
    GROUPS,
    HALF_UNITS,
    HOST_PARTS,
    RESOURCES,
    Calls,
    host_parts,
)
from forerun.predictors.laws.features import op_table
from forerun.predictors.laws.host import launch_counts
from forerun.predictors.laws.kernels import FLOOR_US, launch_costs
from forerun.predictors.laws.specs import op_roofline_s
from forerun.runtimes.registry import USUAL, of_row
from forerun.workload import Workload

if TYPE_CHECKING:
    from forerun.predictors.default.network import Ensemble
    from forerun.predictors.laws.host import HostCosts


def calls_of(
    network: Ensemble | None, host: HostCosts, slowness: float, profile: Profile, device: Device, workload: Workload,
    measured: Collection[str] = (),
) -> Calls:  # fmt: skip
    """The parts of a call at each of the profile's batch sizes; those of the roofline without a network. CPUs that are
    not `measured` are predicted from two of their cores."""
    ops, counts = profile.distinct, profile.distinct_ops[1]
    shape = (len(counts), len(profile.batches))
    if network is None:
        compute, memory, kernels = (each[0] for each in op_roofline_s(ops, [device]))
        reached, moved = (each[0] for each in with_losses(ops, [device], compute[None], memory[None]))
        share = launch_costs(device, workload.runtime).floor_share
        launching = np.broadcast_to((kernels * FLOOR_US[ops.classes] * share / 1e6)[:, None], shape)
        first = reached >= moved
        arithmetic, memory = reached * first, moved * ~first
    else:
        of = many_cores.cores([device], measured, workload.runtime)
        table = op_table(ops, [device] if of is None else of.seen)
        arithmetic, memory, launching = (each.reshape(shape) for each in network.parts(table))
        if of is not None:
            arithmetic, memory, launching = arithmetic * of.share, memory * of.share, launching * of.slower
    half = HALF_UNITS[ops.units][:, None]
    parts = np.zeros((shape[1], len(GROUPS), len(RESOURCES)))
    for place, each in enumerate((arithmetic * ~half, arithmetic * half, memory, launching)):
        np.add.at(parts[:, :, place].T, GROUP_OF_CLASS[ops.classes], each * counts[:, None] * 1e3)
    flat = parts.reshape(shape[1], -1)
    none, no_host = np.zeros(shape[1]), np.zeros((shape[1], len(HOST_PARTS)))
    run = of_row(workload.runtime)
    if device.traits.is_host or network is None or run.engine:
        return Calls(flat, none, no_host, host.sharpness)
    counts = launch_counts(profile)
    waits = np.full(shape[1], float(host.idle_ms(counts, slowness, workload.runtime)))
    launched = np.tile(slowness * _host_ms(host, counts, workload.runtime), (shape[1], 1))
    return Calls(flat, waits, host_parts(launched, bool(half.any())), host.sharpness)


def _host_ms(host: HostCosts, counts: np.ndarray, runtime: str) -> np.ndarray:
    """By group and the rest, on the reference host; what generated code and replays cost is not known by group."""
    out, whole = np.zeros(len(GROUPS) + 1), float(host.host_ms(counts, runtime))
    if of_row(runtime).name == USUAL:
        both = (counts * host.cost_us)[: 2 * len(CLASSES)].reshape(2, -1).sum(axis=0) / 1e3
        np.add.at(out, GROUP_OF_CLASS, both)
    out[-1] = max(0.0, whole - out.sum())
    return out
