"""A device as a line of numbers, from its datasheet: features of predictors of more than one device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.device import Device, load_device
from forerun.device.cpus import cpu_key
from forerun.errors import ForerunError
from forerun.predictors.laws.specs import unit_peak

#: Per multiprocessor, by compute capability: resident threads, registers (thousands), shared memory (KB).
#: NVIDIA, CUDA C++ Programming Guide, "Technical specifications per compute capability", 2025.
_PER_SM: dict[float, tuple[float, float, float]] = {
    6.0: (2048, 64, 64), 6.1: (2048, 64, 96), 6.2: (2048, 64, 64), 7.0: (2048, 64, 96), 7.2: (2048, 64, 96),
    7.5: (1024, 64, 64), 8.0: (2048, 64, 164), 8.6: (1536, 64, 100), 8.7: (1536, 64, 164), 8.9: (1536, 64, 100),
    9.0: (2048, 64, 228), 10.0: (2048, 64, 228), 12.0: (1536, 64, 100),
}  # fmt: skip

#: In TFLOP/s, GB/s, GB, MB, MHz, W, and the figures of `_PER_SM`. `multiprocessors` of a CPU are its cores.
DEVICE_NUMBERS = (
    "peak_fp32", "peak_half", "bandwidth", "compute_capability", "memory", "l2_cache", "multiprocessors", "clock",
    "power_limit", "threads", "registers", "shared_memory", "is_cpu",
)  # fmt: skip

#: Of the machine around an accelerator, or of a CPU that is the device: MHz, cores, MB of the last cache, GB.
HOST_NUMBERS = ("host_clock", "host_cores", "host_cache", "host_memory")


def of_hosts(devices: Sequence[Device], names: Sequence[object] | None = None) -> dict[str, np.ndarray]:
    """HOST_NUMBERS over devices, by the `names` of the CPUs beside them; NaN where the catalogue does not know these
    (clouds hide them), and where a question names none. A CPU is its own host."""
    hosts = [device if device.traits.is_host else None for device in devices]
    if names is not None:
        known = {name: _cpu(name) for name in set(names)}
        hosts = [host or known[name] for host, name in zip(hosts, names, strict=True)]
    lines = np.array([_host_numbers(host) for host in hosts], dtype=float).reshape(len(devices), -1)
    return dict(zip(HOST_NUMBERS, lines.T, strict=True))


def _cpu(name: object) -> Device | None:
    """The CPU that a system reports under this name; None where the catalogue does not know it."""
    try:
        found = load_device(cpu_key(name)) if isinstance(name, str) else None
    except ForerunError:
        return None
    return found if found is not None and found.traits.is_host else None


def _host_numbers(host: Device | None) -> list[float | None]:
    if host is None:
        return [None] * len(HOST_NUMBERS)
    return [host.boost_clock_mhz, host.sm_count, host.l2_cache_mb, host.memory_gb]


def of_devices(devices: Sequence[Device]) -> dict[str, np.ndarray]:
    """DEVICE_NUMBERS over devices; NaN where the datasheet says nothing."""
    known = {id(device): _numbers(device) for device in devices}
    lines = np.array([known[id(device)] for device in devices], dtype=float).reshape(len(devices), -1)
    return dict(zip(DEVICE_NUMBERS, lines.T, strict=True))


def _numbers(device: Device) -> list[float | None]:
    threads, registers, shared = _PER_SM.get(device.compute_capability or 0.0, (None, None, None))
    return [
        unit_peak(device, "fp32"), unit_peak(device, "fp16"), device.bandwidth_gbs, device.compute_capability,
        device.memory_gb, device.l2_cache_mb, device.sm_count, device.boost_clock_mhz, device.tdp_w, threads,
        registers, shared, float(device.traits.is_host),
    ]  # fmt: skip
