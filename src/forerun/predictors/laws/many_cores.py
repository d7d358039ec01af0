"""CPUs that nobody measured, from networks that were fitted to virtual machines of one or two cores.

    time of an op = work on two of its cores x 2 / threads + launches x how much slower its thread is

The networks say what two cores with this CPU's share of peak and bandwidth would take. Work is divided among threads;
what a launch costs (dispatch by PyTorch, starting threads) is the work of one, so it does not shrink with more of them,
and it is inverse to the published single-thread rating, as on hosts of GPUs (device/cpus.py). No constant of this law
was fitted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.device import Device
from forerun.device.cpus import all_cpus, find_cpu
from forerun.device.threads import whole_name
from forerun.device.together import Devices, together
from forerun.runtimes.registry import of_row

#: Cores of the machines that networks were fitted to.
FITTED_CORES = 2
#: The CPU beside which the rows of a runtime's own network were measured; others were measured on the reference host's.
_FITTED_ON = {"onnxruntime": "Intel Xeon Platinum 8259CL"}
#: Arm cores, whose ratings do not carry over, take as long as those of the one whose launches were published.
_ARM, _ARM_KNOWN = ("neoverse",), "NVIDIA Grace"


@dataclass(frozen=True)
class Cores:
    """Devices as their networks see them, and what makes of these times those of all their cores."""

    seen: Devices  # CPUs of many cores as pairs of them
    share: np.ndarray  # [devices] of the time of a pair's work
    slower: np.ndarray  # [devices] times as long as a launch where the network was fitted
    threads: np.ndarray  # [devices]; 1 where the law does not apply

    def of_ops(self, values: np.ndarray, ops: int) -> np.ndarray:
        """A value of every device for each of its ops in a table."""
        return np.repeat(values, ops // len(values))


def cores(devices: Sequence[Device], measured: Collection[str], runtime: str) -> Cores | None:
    """What the law says of devices; None where it applies to none of them: all are measured, or GPUs."""
    them = together(devices)

    def made() -> Cores | None:
        new = [d.traits.is_host and d.sm_count is not None and d.id not in measured for d in them]
        if not any(new):
            return None
        threads = np.array([float(d.sm_count or 1) if n else 1.0 for d, n in zip(them, new, strict=True)])
        fitted_on = _slowness(_FITTED_ON.get(of_row(runtime).part or "", ""))
        return Cores(
            seen=Devices(pair(d) if n else d for d, n in zip(them, new, strict=True)),
            share=np.where(new, FITTED_CORES / threads, 1.0),
            slower=np.array([slowness(d) / fitted_on if n else 1.0 for d, n in zip(them, new, strict=True)]),
            threads=threads,
        )

    return them.once(("cores", runtime, tuple(sorted(measured))), made)


def pair(device: Device) -> Device:
    """Two cores of a CPU with their share of its peaks and bandwidth, described as the machines of the fit are."""
    share = FITTED_CORES / float(device.sm_count or FITTED_CORES)
    return dataclasses.replace(
        device, id=f"{device.id}, {FITTED_CORES} cores", sm_count=None, boost_clock_mhz=None, l2_cache_mb=None,
        peak_tflops={dtype: peak * share for dtype, peak in device.peak_tflops.items()},
        bandwidth_gbs=device.bandwidth_gbs and device.bandwidth_gbs * share, tdp_w=None, idle_w=None,
    )  # fmt: skip


def slowness(device: Device) -> float:
    """How many times longer a launch takes beside this CPU than on the reference host."""
    return _slowness(whole_name(device.name), device.architecture or "")


@functools.cache
def _slowness(name: str, architecture: str = "") -> float:
    if architecture.startswith(_ARM):
        name = _ARM_KNOWN
    known = find_cpu(name)
    if known is not None:
        return known.slowness
    return 1.0 if not name else float(np.median([cpu.slowness for cpu in all_cpus()]))


def joules(devices: Sequence[Device], of: Cores, latency_ms: np.ndarray, launching_ms: np.ndarray) -> np.ndarray:
    """Energy of calls over [batch sizes, devices]: idle power throughout, and the rest of the design power (TDP) while
    all cores work, a core's share of it while one of them launches. nan where the design power is not known."""
    limit = np.array([np.nan if d.tdp_w is None else d.tdp_w for d in devices])
    idle = np.array([0.0 if d.idle_w is None else d.idle_w for d in devices])
    working_ms = np.maximum(latency_ms - launching_ms, 0.0) + launching_ms / of.threads
    return (idle * latency_ms + (limit - idle) * working_ms) / 1e3


def power_factors(devices: Sequence[Device], watts: np.ndarray, spread: tuple[float, float]) -> np.ndarray:
    """[batch sizes, devices, 2]: the ends of an interval of power as factors: never below idle, nor above the design
    power."""
    limit = np.array([np.nan if d.tdp_w is None else d.tdp_w for d in devices])
    idle = np.array([0.0 if d.idle_w is None else d.idle_w for d in devices])
    low = np.maximum(spread[0], np.minimum(idle / watts, 1.0))
    high = np.minimum(spread[1], np.maximum(limit / watts, 1.0))
    return np.stack((low, high), axis=-1)
